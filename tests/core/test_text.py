"""Text and JSON that any store and any reader takes."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_core import to_json

from segue.core.batch import BatchState
from segue.core.text import exact_json, is_deeper, plain_json, storable


@dataclass(frozen=True, slots=True)
class _Record:
    id: int
    at: datetime
    parts: tuple[Any, ...] = ()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2**53, "9007199254740992"),
        (-(2**53), "-9007199254740992"),
        (2**53 - 1, 2**53 - 1),
        (True, True),
        (0.5, 0.5),
        (None, None),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        ({"half \ud83d": "half \ud83d"}, {"half \ufffd": "half \ufffd"}),
        (BatchState.OPEN, "open"),
        (b"\xff", "b'\\xff'"),
        ({1: {2**60}}, {"1": ["1152921504606846976"]}),
    ],
)
def test_values_are_what_any_reader_takes(value: Any, shown: Any) -> None:
    """Numbers that JavaScript would round or not read are text, and nothing fails to be written."""
    assert exact_json(value) == shown
    assert json.loads(json.dumps(exact_json(value))) == shown
    assert json.loads(to_json(exact_json(value))) == shown


def test_records_become_objects_of_their_fields() -> None:
    """Also those inside of others; times are text."""
    at = datetime(2027, 1, 15, 8, tzinfo=UTC)
    inner_json = {"id": "1152921504606846976", "at": "2027-01-15T08:00:00Z"}
    inner = _Record(2**60, at)
    assert exact_json(_Record(1, at, (inner,))) == {
        "id": 1,
        "at": inner_json["at"],
        "parts": [{**inner_json, "parts": []}],
    }


def test_storable_text_keeps_everything_else() -> None:
    """Whole emoji, accents and line ends survive; a NUL and half an emoji are replaced."""
    assert storable("naïve 😀\r\n") == "naïve 😀\r\n"
    assert storable("\ud83d\ude00") == "😀"
    assert storable("a\x00b\ud83d") == "a\ufffdb\ufffd"


def test_plain_json_reaches_every_depth() -> None:
    """Keys, lists and nested objects are cleaned, and nothing of the input is shared."""
    inner: dict[str, Any] = {"k\x00": [("a", 1.5, None, True)]}
    plain = plain_json(inner)
    assert plain == {"k\ufffd": [["a", 1.5, None, True]]}
    inner["k\x00"].append("later")
    assert plain == {"k\ufffd": [["a", 1.5, None, True]]}


@pytest.mark.parametrize(
    ("value", "depth"),
    [("x", 0), ([], 1), ({}, 1), ([1, {}], 2), ({"a": [[]], "b": 1}, 3), ([[([],)]], 4)],
)
def test_the_depth_of_containers_is_counted_as_far_as_they_go(value: Any, depth: int) -> None:
    """A limit far beyond costs nothing: almost every value is shallow."""
    assert not is_deeper(value, depth)
    assert depth == 0 or is_deeper(value, depth - 1)
    assert not is_deeper(value, 10**12)
