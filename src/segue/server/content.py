"""What a client may send of content: words and data, in few blocks, but no addresses.

Some providers' clients fetch the address of a picture themselves, from this process. Whoever could
name one would reach what only this machine can, such as services behind its firewall. And a file's
id at a provider is looked up in the account of whoever runs this server.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from segue.server.problems import Refusal

# With blanks in front, since clients cut them off.
_ADDRESS: Final = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_FILE_ID: Final = re.compile(r"file[-_]?id", re.IGNORECASE)
_DATA: Final = "data:"


def check_count(content: str | list[Any], most: int) -> None:
    """`Refusal` with 422 if there are too many blocks; each one costs time wherever it is read."""
    if isinstance(content, list) and len(content) > most:
        raise Refusal(
            422,
            "content_blocks",
            f"The content has {len(content)} blocks; at most {most} are taken, see "
            "server.max_content_blocks.",
        )


def check_text(content: str | list[Any], most: int) -> None:
    """`Refusal` with 422 if there are too many words: history, search and every context hold them
    again and again, other than a picture's bytes.
    """
    blocks = [content] if isinstance(content, str) else content
    texts = (block.get("text") if isinstance(block, dict) else block for block in blocks)
    size = sum(len(text.encode(errors="replace")) for text in texts if isinstance(text, str))
    if size > most:
        raise Refusal(
            422,
            "content_text",
            f"The text has {size} bytes; at most {most} are taken, see server.max_text_bytes.",
        )


def check_content(content: str | list[Any]) -> None:
    """`Refusal` with 422 if a block holds an address that somebody might fetch, or names a file
    that the owner of this server has at a provider.
    """
    blocks = [] if isinstance(content, str) else content
    for name, text in _texts(blocks):
        if _FILE_ID.fullmatch(name):
            raise Refusal(
                422,
                "content_file",
                f"A block of content names a file of the provider in {name!r:.60}. Send the file "
                "itself as base64; only if server.allow_content_urls is set, names are taken.",
            )
        if _is_address(name, text):
            raise Refusal(
                422,
                "content_url",
                f"A block of content has an address in {name!r:.60}. Send what is there as base64 "
                "or as a data: URL; only if server.allow_content_urls is set, addresses are taken.",
            )


def _texts(blocks: list[Any]) -> Iterator[tuple[str, str]]:
    """All texts in blocks, however deep, each with the name under which it stands."""
    # No recursion: how deep it goes is up to the client.
    left = [("content", each) for each in blocks if not isinstance(each, str)]
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left += value.items()
        elif isinstance(value, list):
            left += ((name, each) for each in value)
        elif isinstance(value, str) and name != "text":  # words may speak of addresses
            yield name, value


def _is_address(name: str, text: str) -> bool:
    if name.lower().endswith(("url", "uri")):
        return not text.startswith(_DATA)
    return _ADDRESS.match(text) is not None
