"""Plain JSON: records for readers that know neither our types nor large numbers."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from segue.core.batch import BatchState
from segue.core.plain import exact_json


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
        (BatchState.OPEN, "open"),
        (b"\xff", "b'\\xff'"),
        ({1: {2**60}}, {"1": ["1152921504606846976"]}),
    ],
)
def test_values_are_what_any_reader_takes(value: Any, shown: Any) -> None:
    """Numbers that JavaScript would round are text, and nothing fails to be written."""
    assert exact_json(value) == shown
    assert json.loads(json.dumps(exact_json(value))) == shown


def test_records_are_told_by_their_fields() -> None:
    """Also those inside of others; times are text."""
    at = datetime(2027, 1, 15, 8, tzinfo=UTC)
    told = {"id": "1152921504606846976", "at": "2027-01-15T08:00:00+00:00"}
    inner = _Record(2**60, at)
    assert exact_json(_Record(1, at, (inner,))) == {
        "id": 1,
        "at": told["at"],
        "parts": [{**told, "parts": []}],
    }
