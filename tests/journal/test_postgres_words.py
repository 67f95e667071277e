"""The words that PostgreSQL is given to find a text by."""

import pytest

from segue.journal.search import words_of

ACCENTED = "é"


@pytest.mark.parametrize(
    "text", ["Half PEPPERONI, half mushroom?", "a_b-5 c.d", "x" * 600, "", " ", "A\tb\x00c"]
)
def test_plain_text_has_the_same_words_beside_an_accent(text: str) -> None:
    """The short way that text without accents takes leads to the same words."""
    assert words_of(f"{text} {ACCENTED}") == [*words_of(text), "e"]


def test_words_have_neither_case_nor_accents() -> None:
    """However they are written."""
    assert words_of("Crème BRÛLÉE straße") == ["creme", "brulee", "strasse"]
