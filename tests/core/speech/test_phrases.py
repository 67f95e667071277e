"""The files of phrases: what their tables hold, for whoever translates them."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from segue.core.speech.phrases import LANGUAGES, alternatives, read_phrases, whole_words

ENGLISH_ONLY = {"acts", "vocabulary"}


def keys(tables: Mapping[str, Any]) -> dict[str, set[str]]:
    """The keys of each table; the word lists that patterns name are each language's own."""
    return {
        name: {*table} - {"words"} for name, table in tables.items() if name not in ENGLISH_ONLY
    }


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_language_fills_the_same_tables(name: str) -> None:
    """A misspelt key would be ignored, and what it should say be missed."""
    assert keys(read_phrases(f"languages/{name}")) == keys(read_phrases("languages/english"))


@pytest.mark.parametrize("name", [*(f"languages/{each}" for each in LANGUAGES), "machinery"])
def test_every_list_of_words_is_named_in_a_pattern(name: str) -> None:
    """A list that no pattern names does nothing."""
    tables = {"": read_phrases(name)} if name == "machinery" else read_phrases(name)
    for table in tables.values():
        named = set(re.findall(r"<(\w+)>", str(table)))
        assert set(table.get("words", {})) <= named


def test_words_stand_for_their_names_also_within_each_other() -> None:
    """Parentheses only group, and a repetition ends: hostile text costs no more."""
    words = {"write": "write|<say>", "say": "say\ntell"}
    pattern = whole_words("stop (<write>)* me", words)
    assert pattern.groups == 0
    assert pattern.search("stop saytell me")
    assert alternatives("(a )*b") == "(?:a ){0,5}b"
