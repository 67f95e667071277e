"""The instruments of the provider tests: each rule of `wire` fires, and the recorder records."""

import http.client
import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.providers.recorder import REPLY, Recorder
from tests.providers.wire import (
    anthropic_problems,
    google_problems,
    openai_problems,
    responses_problems,
)

Json = dict[str, Any]
Problems = Callable[[Json], list[str]]

USER: Final[Json] = {"role": "user", "content": "What is the weather?"}
REPLIED: Final[Json] = {"role": "assistant", "content": "It rains."}


def chat(*messages: Json) -> Json:
    return {"model": "any", "messages": list(messages)}


def calling(*ids: str, name: str = "weather", arguments: Any = "{}", **more: Any) -> Json:
    calls = [
        {"type": "function", "id": i, "function": {"name": name, "arguments": arguments}}
        for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(call_id: str = "a", content: Any = "4 degrees") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def item_input(*items: Json) -> Json:
    return {"model": "any", "input": list(items)}


def function_call(call_id: str = "a", **more: Any) -> Json:
    call = {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": "{}"}
    return {**call, **more}


def function_output(call_id: str = "a", kind: str = "function_call_output") -> Json:
    return {"type": kind, "call_id": call_id, "output": "4 degrees"}


def custom_call(**more: Any) -> Json:
    call = {"type": "custom_tool_call", "call_id": "a", "name": "weather", "input": "Oslo"}
    return {**call, **more}


def tool_use(call_id: str = "a", **more: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": "weather", "input": {}, **more}


def tool_result(call_id: str = "a", content: Any = "4 degrees") -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def text(words: str = "I look it up.") -> Json:
    return {"type": "text", "text": words}


def assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def contents(*turns: Json) -> Json:
    return {"contents": list(turns)}


def said(*parts: Json) -> Json:
    return {"role": "user", "parts": list(parts) or [{"text": "What is the weather?"}]}


def model(*parts: Json) -> Json:
    return {"role": "model", "parts": list(parts) or [{"text": "It rains."}]}


def fcall(name: str = "weather", args: Any = None) -> Json:
    return {"functionCall": {"name": name, "args": {} if args is None else args}}


def fresponse(name: str = "weather", response: Any = None) -> Json:
    return {"functionResponse": {"name": name, "response": {} if response is None else response}}


IMAGE_URL: Final[Json] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}

GOOD: Final[list[tuple[Problems, Json]]] = [
    (openai_problems, chat({"role": "system", "content": "Be kind."}, USER)),
    (openai_problems, chat(USER, REPLIED, USER)),
    (openai_problems, chat(user(text(), IMAGE_URL))),
    (openai_problems, chat(user(text(""), IMAGE_URL))),
    (openai_problems, chat(USER, calling("a", "b"), result("b"), result("a"), REPLIED)),
    (openai_problems, chat(USER, calling("a"), result("a", ""), calling("a"), result("a"))),
    (openai_problems, chat(USER, calling("a", content="I look."), result())),
    (responses_problems, item_input(USER)),
    (responses_problems, item_input({**USER, "type": "message"}, {**REPLIED, "id": "msg_1"})),
    (responses_problems, item_input(USER, function_call(id="fc_1"), function_output(), REPLIED)),
    (
        responses_problems,
        item_input(
            USER, function_call("a"), function_call("b"), function_output("b"), function_output("a")
        ),
    ),
    (
        responses_problems,
        item_input(USER, custom_call(), function_output(kind="custom_tool_call_output")),
    ),
    (responses_problems, item_input(USER, {"type": "reasoning", "id": "rs_1"}, REPLIED)),
    (anthropic_problems, {**chat(USER), "system": "Be kind."}),
    (anthropic_problems, {**chat(USER), "system": [text("Be kind.")]}),
    (anthropic_problems, chat(USER, REPLIED)),
    (anthropic_problems, chat(USER, assistant(text(), tool_use()), user(tool_result(), text()))),
    (
        anthropic_problems,
        chat(USER, assistant(tool_use("a"), tool_use("b")), user(tool_result("b"), tool_result())),
    ),
    (anthropic_problems, chat(USER, assistant(tool_use()), user(tool_result(content="")))),
    (anthropic_problems, chat(USER, assistant(tool_use()), user(tool_result(content=[text()])))),
    (google_problems, {**contents(said()), "systemInstruction": {"parts": [{"text": "Kind."}]}}),
    (google_problems, contents(said(), model(), said(), said())),
    (google_problems, contents(said({"inlineData": {"data": "AA==", "mime_type": "image/png"}}))),
    (google_problems, contents(said(), model(fcall()), said(fresponse()), model())),
    (
        google_problems,
        contents(
            said(),
            model({"text": "I look."}, fcall("weather"), fcall("tides")),
            said(fresponse("tides"), fresponse("weather")),
            model(fcall()),
            said(fresponse()),
        ),
    ),
]

BROKEN_CHAT: Final[dict[str, tuple[Json, str]]] = {
    "no messages": (chat(), "no messages"),
    "unknown role": (chat({"role": "human", "content": "Hi"}), "has the role 'human'"),
    "empty user text": (chat({"role": "user", "content": ""}), "(user) is empty"),
    "no user parts": (chat(user()), "(user) is empty"),
    "empty user parts": (chat(user(text(""))), "(user) is empty"),
    "empty assistant": (chat(USER, {"role": "assistant", "content": None}), "(assistant) is empty"),
    "foreign user part": (chat(user(tool_use())), "a part of type 'tool_use'"),
    "bare string part": (chat({"role": "user", "content": ["Hi"]}), "a part of type 'str'"),
    "foreign assistant part": (chat(USER, assistant(IMAGE_URL)), "a part of type 'image_url'"),
    "empty list of calls": (chat(USER, {**REPLIED, "tool_calls": []}), "empty list of calls"),
    "call without id": (chat(USER, calling(""), result("")), "without an id"),
    "long id": (chat(USER, calling("a" * 41), result("a" * 41)), "41 characters"),
    "bad name": (chat(USER, calling("a", name="a.b"), result()), "named 'a.b'"),
    "no name": (chat(USER, calling("a", name=""), result()), "named ''"),
    "arguments as object": (chat(USER, calling("a", arguments={}), result()), "no JSON text"),
    "arguments cut off": (chat(USER, calling("a", arguments="{"), result()), "no JSON text"),
    "arguments as list": (chat(USER, calling("a", arguments="[]"), result()), "no JSON text"),
    "repeated id": (chat(USER, calling("a", "a"), result(), result()), "2 calls with id 'a'"),
    "unanswered call": (chat(USER, calling("a", "b"), result()), "Call 'b' of Message 1 has no"),
    "unanswered at the end": (chat(USER, calling("a")), "Call 'a' of Message 1 has no result"),
    "late result": (chat(USER, calling("a"), USER, result()), "Call 'a' of Message 1 has no"),
    "orphan result": (chat(USER, result()), "Message 1 is a result without a call"),
    "stray result": (chat(USER, calling("a"), result(), result("b")), "answers no call: 'b'"),
    "two results": (chat(USER, calling("a"), result(), result()), "has 2 results"),
    "null result": (chat(USER, calling("a"), result(content=None)), "has no content"),
}

BROKEN_RESPONSES: Final[dict[str, tuple[Json, str]]] = {
    "no input": (item_input(), "no input"),
    "unknown role": (item_input({"role": "human", "content": "Hi"}), "role 'human'"),
    "unknown item": (item_input({"type": "tool_call"}), "type 'tool_call'"),
    "empty message": (item_input({"role": "user", "content": ""}), "(user) is empty"),
    "empty parts": (
        item_input(user({"type": "input_text", "text": ""})),
        "(user) is empty",
    ),
    "foreign part": (item_input(user(text())), "a part of type 'text'"),
    "call without id": (item_input(USER, function_call("")), "without an id"),
    "long id": (item_input(USER, function_call("a" * 65)), "65 characters"),
    "bad name": (item_input(USER, function_call(name="a.b")), "named 'a.b'"),
    "arguments as object": (item_input(USER, function_call(arguments={})), "no JSON text"),
    "custom input as object": (item_input(USER, custom_call(input={})), "not text"),
    "repeated id": (
        item_input(USER, function_call(), function_output(), function_call(), function_output()),
        "repeats the call id 'a'",
    ),
    "unanswered call": (item_input(USER, function_call()), "Call 'a' has no result"),
    "late result": (
        item_input(USER, function_call(), USER, function_output()),
        "Call 'a' has no result before Item 2",
    ),
    "orphan result": (item_input(USER, function_output()), "answers no open call 'a'"),
    "two results": (
        item_input(USER, function_call(), function_output(), function_output()),
        "Item 3 (function_call_output) answers no open call",
    ),
    "result of another kind": (
        item_input(USER, custom_call(), function_output()),
        "answers no open call 'a'",
    ),
    "invented item id": (
        item_input(USER, {**REPLIED, "type": "message", "id": "77"}),
        "does not begin with 'msg'",
    ),
    "repeated item id": (
        item_input({**USER, "id": "msg_1"}, {**REPLIED, "id": "msg_1"}),
        "2 items have the id 'msg_1'",
    ),
}

BROKEN_ANTHROPIC: Final[dict[str, tuple[Json, str]]] = {
    "no messages": (chat(), "no messages"),
    "system among the messages": (
        chat(USER, {"role": "system", "content": "Be kind."}),
        "has the role 'system'",
    ),
    "empty system": ({**chat(USER), "system": ""}, "The system prompt is empty"),
    "blank system block": ({**chat(USER), "system": [text(" ")]}, "blank text block"),
    "assistant first": (chat(REPLIED, USER), "first message is not the user's"),
    "empty text": (chat({"role": "user", "content": ""}), "Message 0 is empty"),
    "blank text": (chat({"role": "user", "content": "\n"}), "Message 0 is empty"),
    "no blocks": (chat(user()), "Message 0 is empty"),
    "empty block": (chat(user(text(""))), "blank text block"),
    "blank block": (chat(USER, assistant(text("\n"), tool_use()), user(tool_result())), "blank"),
    "foreign block": (chat(USER, assistant({"type": "tool_call"})), "a part of type 'tool_call'"),
    "call by the user": (chat(user(tool_use()), user(tool_result())), "a part of type 'tool_use'"),
    "foreign block in a result": (
        chat(USER, assistant(tool_use()), user(tool_result(content=[{"type": "output"}]))),
        "A result in Message 2 holds a part of type 'output'",
    ),
    "empty block in a result": (
        chat(USER, assistant(tool_use()), user(tool_result(content=[text("")]))),
        "A result in Message 2 holds a blank",
    ),
    "bad name": (chat(USER, assistant(tool_use(name="a.b")), user(tool_result())), "named 'a.b'"),
    "input as text": (
        chat(USER, assistant(tool_use(input="{}")), user(tool_result())),
        "input is not an object",
    ),
    "repeated id in a message": (
        chat(USER, assistant(tool_use(), tool_use()), user(tool_result())),
        "2 calls have the id 'a'",
    ),
    "repeated id in the request": (
        chat(
            *(USER, assistant(tool_use()), user(tool_result())),
            *(assistant(tool_use()), user(tool_result())),
        ),
        "2 calls have the id 'a'",
    ),
    "malformed id": (
        chat(USER, assistant(tool_use("a.b:0")), user(tool_result("a.b:0"))),
        "'a.b:0' is malformed",
    ),
    "missing id": (chat(USER, assistant(tool_use("")), user(tool_result(""))), "'' is malformed"),
    "unanswered call": (
        chat(USER, assistant(tool_use("a"), tool_use("b")), user(tool_result("a"))),
        "Call 'b' has no result in Message 2",
    ),
    "unanswered at the end": (chat(USER, assistant(tool_use())), "nothing follows"),
    "assistant after a call": (
        chat(USER, assistant(tool_use()), REPLIED, user(tool_result())),
        "follows calls but is not the user's",
    ),
    "late result": (
        chat(USER, assistant(tool_use()), USER, user(tool_result())),
        "Call 'a' has no result in Message 2",
    ),
    "result after text": (
        chat(USER, assistant(tool_use()), user(text(), tool_result())),
        "a result after something else",
    ),
    "orphan result": (chat(user(tool_result())), "answers no call: 'a'"),
    "two results": (
        chat(USER, assistant(tool_use()), user(tool_result(), tool_result())),
        "has 2 results",
    ),
    "trailing whitespace": (
        chat(USER, {"role": "assistant", "content": "It rains. "}),
        "ends with whitespace",
    ),
    "trailing whitespace in a block": (
        chat(USER, assistant(text("It rains.\n"))),
        "ends with whitespace",
    ),
}

BROKEN_GOOGLE: Final[dict[str, tuple[Json, str]]] = {
    "no contents": (contents(), "no contents"),
    "model first": (contents(model(), said()), "first content is not the user's"),
    "unknown role": (contents(said(), {"role": "assistant", "parts": [{"text": "Hi"}]}), "role"),
    "no parts": (contents({"role": "user", "parts": []}), "has no parts"),
    "empty part": (contents(said({})), "holds nothing"),
    "part with two": (contents(said({"text": "Hi", "fileData": {}})), "holds ['text', 'fileData']"),
    "empty text": (contents(said({"text": ""})), "an empty text part"),
    "empty system": (
        {**contents(said()), "systemInstruction": {"parts": [{"text": ""}]}},
        "The system instruction has an empty text part",
    ),
    "nameless call": (contents(said(), model(fcall("")), said(fresponse(""))), "without a name"),
    "args as text": (
        contents(said(), model(fcall(args="{}")), said(fresponse())),
        "value is not an object",
    ),
    "response as text": (
        contents(said(), model(fcall()), said(fresponse(response="rain"))),
        "value is not an object",
    ),
    "call after the model": (
        contents(said(), model(), model(fcall()), said(fresponse())),
        "not as the model right after a user's turn",
    ),
    "call by the user": (contents(said(), said(fcall()), said(fresponse())), "not as the model"),
    "unanswered at the end": (contents(said(), model(fcall())), "nothing follows"),
    "unanswered call": (contents(said(), model(fcall()), said()), "responds to []"),
    "fewer responses": (
        contents(said(), model(fcall(), fcall()), said(fresponse())),
        "but ['weather', 'weather'] were called",
    ),
    "other name": (
        contents(said(), model(fcall()), said(fresponse("tides"))),
        "responds to ['tides']",
    ),
    "orphan response": (contents(said(fresponse())), "but [] were called"),
    "response by the model": (
        contents(said(), model(fcall()), model(fresponse())),
        "not as the user",
    ),
}

BROKEN: Final = [
    pytest.param(check, body, words, id=f"{name}: {rule}")
    for name, check, rules in (
        ("chat", openai_problems, BROKEN_CHAT),
        ("responses", responses_problems, BROKEN_RESPONSES),
        ("anthropic", anthropic_problems, BROKEN_ANTHROPIC),
        ("google", google_problems, BROKEN_GOOGLE),
    )
    for rule, (body, words) in rules.items()
]


@pytest.mark.parametrize(("problems", "body"), GOOD)
def test_a_body_that_keeps_the_rules_has_no_problems(problems: Problems, body: Json) -> None:
    """What a provider accepts is not reported."""
    assert problems(body) == []


@pytest.mark.parametrize(("problems", "body", "words"), BROKEN)
def test_a_broken_rule_is_reported(problems: Problems, body: Json, words: str) -> None:
    """Each rule that a body breaks is named in the words of that rule."""
    assert any(words in problem for problem in problems(body)), problems(body)


def connect(recorder: Recorder) -> http.client.HTTPConnection:
    address = urlsplit(recorder.url)
    return http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)


def ask(connection: http.client.HTTPConnection, path: str, body: bytes) -> tuple[int, Json]:
    connection.request("POST", path, body)
    with connection.getresponse() as response:
        return response.status, json.load(response)


def test_the_recorder_keeps_each_request_of_a_connection() -> None:
    """Requests over one kept connection are kept in order, byte for byte, and each is answered."""
    bodies = [json.dumps(chat(USER), indent=i).encode() for i in (0, 3)]
    with Recorder() as recorder:
        connection = connect(recorder)
        answers = [ask(connection, "/v1/messages?beta=true", body) for body in bodies]
        taken = recorder.take()
        connection.close()
    assert [status for status, _ in answers] == [200, 200]
    assert all(answer["content"] == [text(REPLY)] for _, answer in answers)
    assert [(r.path, r.raw, r.body) for r in taken] == [
        ("/v1/messages", body, chat(USER)) for body in bodies
    ]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/embeddings", b"{}", 404),
        ("/v1/messages", b"{", 400),
        ("/v1/messages", b'{"model": NaN}', 400),
    ],
)
def test_the_recorder_refuses_what_it_does_not_know(path: str, body: bytes, status: int) -> None:
    """An unknown path and a body that is not JSON get an error and are not recorded."""
    with Recorder() as recorder:
        connection = connect(recorder)
        assert ask(connection, path, body)[0] == status
        assert recorder.take() == []
        connection.close()


def test_the_recorder_refuses_a_body_of_unknown_length() -> None:
    """A request that does not state its length is answered and ended, not waited for."""
    with Recorder() as recorder:
        connection = connect(recorder)
        connection.putrequest("POST", "/v1/messages")
        connection.endheaders()
        with connection.getresponse() as response:
            assert response.status == 411
        connection.close()


def test_the_recorder_stops_while_a_client_holds_on() -> None:
    """Leaving ends idle connections, too, and nothing listens at the address afterwards."""
    with Recorder() as recorder:
        connection = connect(recorder)
        ask(connection, "/v1/messages", json.dumps(chat(USER)).encode())
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        connect(recorder).connect()
