"""The stored form of a message."""

import pytest
from langchain_core.messages import HumanMessage

from segue import SnowflakeGenerator
from segue.core.stamp import stamp
from segue.journal import rows


@pytest.mark.parametrize("text", ["A", 'é🙂\u2028\x7f\x01"\\\n/', "\ud83d"], ids=repr)
def test_a_large_message_is_stored_as_a_small_one(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, whatever writes and reads it: exports and twins of it are compared."""
    block = {"type": "file", "base64": text * 200_000, "extras": {"page": 1.5e300, "0": None}}
    [message] = stamp([HumanMessage([block, "Look!"], id="m")], SnowflakeGenerator(node=1))
    large = rows.encode_message(message).body
    assert rows.decode_message(large) == message
    monkeypatch.setattr(rows, "_LARGE", len(large) + 1)
    assert rows.encode_message(message).body == large
    assert rows.decode_message(large) == message
