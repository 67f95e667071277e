"""What the fuzz of the server sends: bodies, frames, headers and files, the same for each seed."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tests.transfer.files import sealed

Dice = random.Random
SIGNS: Final = (
    *"\0\n\r\t \"'\\/[{(<`“„.?!:,0aé你😀\ud800\ufdfa\u202e",
    "```\n",
    "\\u",
    "www.",
    "ok, ",
)
NAMES: Final = (
    *("type", "content", "text", "url", "image_url", "base64", "data", "mime_type", "file", "id"),
    *("client_message_id", "strategy", "turn_id", "answer", "title", "time_zone", "quiet_hours"),
    *("agent_id", "key", "until", "confirm", "synthetic", "source_type", "additional_kwargs", ""),
)
KINDS: Final = ("text", "image", "image_url", "audio", "file", "video", "tool_use", "text-plain", 7)
NUMBERS: Final = (
    "0",
    "-1",
    "1e999",
    "-0.0",
    "NaN",
    "Infinity",
    "9" * 400,
    "1e-400",
    "0." + "1" * 900,
)


def size(dice: Dice, most: int) -> int:
    """Small as a rule; sometimes as large as can be."""
    return int(most ** dice.random())


def text(dice: Dice, most: int) -> str:
    """A few signs, again and again."""
    unit = "".join(dice.choices(SIGNS, k=dice.randint(1, 4)))
    return unit * (size(dice, most) // len(unit))


def value(dice: Dice, most: int, parts: int = 12_000) -> Any:
    """Any JSON of about so many bytes and at most so many parts, which is more than is taken."""
    kind = dice.randrange(8 if parts > 5 else 4)
    if kind < 2:
        return text(dice, most)
    if kind < 4:
        return dice.choice((None, True, False, 0, -1, 2**53, 2**64, 1e308, float("nan"), ""))
    if kind == 4:
        return _nested(dice, min(dice.choice((3, 70, 900)), parts))
    count = size(dice, parts) if kind < 7 else 5
    room, left = most // count, parts // count - 1
    if kind == 5:
        return [value(dice, room, left) for _ in range(count)]
    names = (
        dice.sample(NAMES, 5) if kind == 7 else [f"{dice.choice(NAMES)}{n}" for n in range(count)]
    )
    return {name: value(dice, room, left) for name in names}


def _nested(dice: Dice, depth: int) -> Any:
    made: Any = dice.choice(("", 0, None))
    for _ in range(depth):
        made = [made] if dice.random() < 0.5 else {dice.choice(NAMES): made}
    return made


def block(dice: Dice, most: int) -> Any:
    """Something like a block of content."""
    made = {"type": dice.choice(KINDS)}
    for name in dice.sample(NAMES, dice.randint(0, 5)):
        made[name] = (
            value(dice, most // 5, 100) if dice.random() < 0.7 else "data:," + text(dice, most)
        )
    if dice.random() < 0.5:
        made |= {"base64": "QUJD" * size(dice, most // 8), "mime_type": "image/png"}
    return made


def message(dice: Dice, most: int) -> dict[str, Any]:
    """Something like a message: of text, of blocks, or of anything."""
    content: Any = text(dice, min(most, 150_000))
    if dice.random() < 0.5:
        count = dice.choice((1, 2, 100, 101))
        content = [block(dice, most // count) for _ in range(count)]
    elif dice.random() < 0.2:
        content = value(dice, most)
    more = {
        name: value(dice, most // 10, 100) for name in dice.sample(NAMES, dice.choice((0, 0, 0, 3)))
    }
    return {"content": content, **more}


def written(dice: Dice, made: Any) -> bytes:
    """As JSON, or nearly so."""
    wrote = json.dumps(made, ensure_ascii=dice.random() < 0.5).encode(errors="surrogatepass")
    way = dice.randrange(12)
    if way == 0:
        return wrote[: dice.randrange(len(wrote) + 1)]
    if way == 1:
        at = dice.randrange(len(wrote) + 1)
        return wrote[:at] + bytes(dice.choices(range(256), k=5)) + wrote[at:]
    if way == 2:
        return wrote.decode(errors="surrogatepass").encode("utf-16", errors="surrogatepass")
    if way == 3:
        return wrote.replace(b"0", dice.choice(NUMBERS).encode())
    return wrote


def bodies(dice: Dice, count: int, most: int) -> Iterator[bytes]:
    """Random ones; the larger, the rarer."""
    for _ in range(count):
        make = message if dice.random() < 0.6 else value
        yield written(dice, make(dice, most))[:most]


def _filled(begin: str, unit: str, end: str, most: int) -> bytes:
    """As many units as there is room for."""
    room = most - len(begin.encode()) - len(end.encode())
    return (begin + unit * (room // len(unit.encode())) + end).encode()


def limits(most: int) -> Iterator[bytes]:
    """What fills all the room there is, each in its own way."""
    content, data = '{"content":"', '{"content":[{"type":"image","mime_type":"image/png","base64":"'
    ways = [
        ("[", "0,", "0]"),
        ('{"content":[', "{},", "{}]}"),
        ('{"content":[', '"",', '""]}'),
        ("{", '"content":"",', '"content":""}'),
        ('{"content":{', '"a":1,', '"a":1}}'),
        ("", "[", ""),
        ("", '{"a":', ""),
        ("", '\\"', ""),
        ('"', '\\"', ""),
        ("", '"', ""),
        ("", "\n", "1"),
        ("", "9", ""),
        ("0.", "1", ""),
        ("1e", "9", ""),
        ('{"content":-', "9", "}"),
        (content, "\\ud800", '"}'),
        (content, "\\u0000", '"}'),
        (content, '\\"', '"}'),
        (content, "a", '"}'),
        (content, "😀", '"}'),
        (data, "A", '"}]}'),
        (data, "\\u0041", '"}]}'),
        (data, "é", '"}]}'),
        ('{"content":[{"type":"image","image_url":"data:', "A", '"}]}'),
        ('{"content":[{"type":"file","mime_type":"', "a/", '","base64":"QQ=="}]}'),
        ('{"', "a", '":1}'),
        ('{"content":"x","strategy":"', "a", '"}'),
        ('{"content":"x","client_message_id":"', "\\ud83d", '"}'),
    ]
    yield from (_filled(*way, most) for way in ways)
    yield bytes(range(256)) * (most // 256)
    yield "\ud800".encode(errors="surrogatepass") * (most // 3)
    many, digits = range(9_000), min(4_000, most // 10_000)
    yield json.dumps({f"x{n}": 1 for n in many}).encode()
    for number in ("9" * digits, f"0.{'3' * digits}"):
        yield ('{"content":[' + ",".join([number] * len(many)) + "]}").encode()[:most]
    yield json.dumps({"content": [{f"url{n}": "data:" for n in many}]}).encode()
    yield json.dumps({"content": [{"type": "image", "image_url": "data:,"}] * 100}).encode()
    # Bytes that are quotation marks in UTF-8, and something else in UTF-16.
    yield ('{"content":["∀"' + ",0" * (min(most, 580_000) // 4) + "]}").encode("utf-16-le")


Head = list[tuple[bytes, bytes]]
_ODD_NAMES: Final = (
    *(b"Segue-User", b"Authorization", b"X-Request-ID", b"traceparent", b"tracestate", b"Accept"),
    *(
        b"Content-Type",
        b"Origin",
        b"Sec-Fetch-Site",
        b"Last-Event-ID",
        b"Cookie",
        b"Range",
        b"Host",
    ),
    *(b"X-Forwarded-For", b"Content-Encoding", b"Transfer-Encoding", b"Content-Length", b"Expect"),
    *(b"Connection", b"Upgrade", b"If-None-Match", b"Access-Control-Request-Method", b"X"),
)
_ODD_VALUES: Final = (
    *(
        b"",
        b" ",
        b"\xff\xfe",
        b"\xc3\xa4",
        "ä".encode("latin-1"),
        b"\x00",
        b"a\tb",
        b"0",
        b"-1",
        b"9" * 400,
    ),
    *(
        b"Bearer",
        b"Bearer ",
        b"Bearer sgu_",
        b"Bearer a.b.c",
        b"Bearer " + b"\xff" * 50,
        b"Basic Og==",
    ),
    *(
        b"Bearer eyJhbGciOiJub25lIn0.e30.",
        b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01",
        b"[",
        b"]",
    ),
    *(
        b"null",
        b"http://[",
        b"http://localhost:99999999",
        b"chunked",
        b"100-continue",
        b"websocket",
    ),
    *(
        b"upgrade",
        b"gzip",
        b"text/plain",
        b"application/json; charset=\xff",
        b"application/x-",
        b"a/b/c",
    ),
    *(
        b'multipart/form-data; boundary="',
        b"text/event-stream",
        b"*/*;q=" + b"9" * 300,
        b"h2c",
        b"GET",
    ),
)


def heads(dice: Dice, count: int) -> Iterator[Head]:
    """Headers of a request: odd ones, long ones, many."""
    for _ in range(count):
        made = [
            (dice.choice(_ODD_NAMES), dice.choice(_ODD_VALUES)) for _ in range(dice.randint(1, 5))
        ]
        way = dice.randrange(8)
        if way == 0:
            made.append((dice.choice(_ODD_NAMES), b"a" * size(dice, 200_000)))
        elif way == 1:
            made += [(b"X-%d" % n, b"\xe4") for n in range(size(dice, 5_000))]
        elif way == 2:
            made += [(dice.choice(_ODD_NAMES), b"x")] * size(dice, 2_000)
        elif way == 3:
            made.append((bytes(dice.choices(range(256), k=5)), b"x"))
        yield made


def damaged(dice: Dice, export: bytes) -> bytes:
    """An export with something wrong in it; most of them fit their footer."""
    if dice.random() < 0.3:
        at = dice.randrange(len(export))
        return (
            export[:at] + bytes(dice.choices(range(256), k=3)) + export[at + dice.randint(0, 9) :]
        )
    lines: list[dict[str, Any]] = [json.loads(line) for line in export.splitlines()]
    for _ in range(dice.randint(1, 3)):
        _DAMAGES[dice.randrange(len(_DAMAGES))](dice, lines)
    if dice.random() < 0.1:
        return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return sealed(lines)


def _some(lines: Sequence[Any], dice: Dice) -> int:
    return dice.randrange(1, max(len(lines) - 1, 2))


def _drop(dice: Dice, lines: list[dict[str, Any]]) -> None:
    if len(lines) > 3:
        del lines[_some(lines, dice)]


def _repeat(dice: Dice, lines: list[dict[str, Any]]) -> None:
    lines.insert(_some(lines, dice), lines[_some(lines, dice)])


def _change(dice: Dice, lines: list[dict[str, Any]]) -> None:
    """Some value, however deep, becomes another one."""
    place: Any = lines[_some(lines, dice)]
    while True:
        keys = [*place] if isinstance(place, dict) else [*range(len(place))]
        keys = [key for key in keys if key not in ("type", "messages") or dice.random() < 0.3]
        if not keys:
            return
        key = dice.choice(keys)
        inner = place[key]
        if not isinstance(inner, dict | list) or dice.random() < 0.3:
            break
        place = inner
    if key in ("type", "messages"):  # the footer could not be made
        return
    if isinstance(place, dict) and dice.random() < 0.2:
        del place[key]
    else:
        place[key] = value(dice, 2_000, 100) if dice.random() < 0.7 else _like(dice, inner)


def _like(dice: Dice, inner: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(inner, str):
        return inner[::-1] if dice.random() < 0.5 else f"{inner}\0"
    if isinstance(inner, int):
        return dice.choice((-inner, inner + 1, inner << 70, float(inner)))
    return not inner


_DAMAGES: Final[Sequence[Callable[[Dice, list[dict[str, Any]]], None]]] = (
    _drop,
    _repeat,
    _change,
    _change,
    _change,
)
