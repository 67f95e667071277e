"""The notes of clients on threads."""

import pytest

from segue.core.client_metadata import metadata_of, metadata_settings
from segue.errors import UsageError


def test_notes_come_back_as_they_were_given() -> None:
    """Beside settings of other kinds, which are not among them."""
    notes = {"customer": "c-7", "tags": ["a", 1], "deep": {"x": None}}
    settings = {"muted": True, **metadata_settings(notes)}
    assert metadata_of(settings) == notes
    assert metadata_settings({"customer": None}, notes) == {"metadata.customer": None}


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ({str(n): n for n in range(51)}, {}),
        ({"one": 1}, {f"n{n}": n for n in range(50)}),
        ({"long": "x" * 10_000}, {}),
        ({"": 1}, {}),
        ({"a" * 201: 1}, {}),
    ],
)
def test_notes_are_few_and_small(given: dict[str, object], known: dict[str, object]) -> None:
    """Together with those that are kept already."""
    with pytest.raises(UsageError, match="Nothing was written"):
        metadata_settings(given, known)
