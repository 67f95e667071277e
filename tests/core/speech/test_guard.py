"""The guard: what a model writes instead of talk is found, and talk is left alone."""

import tomllib
from pathlib import Path

from segue.core.speech.guard import OPENING, MachineryKind, can_be_judged, find_machinery
from segue.core.triggers import with_data

TABLE = tomllib.loads(Path(__file__).with_name("follow_ups.toml").read_text())


def test_machinery_is_found() -> None:
    """Silence tokens, comments on messages, reasoning, stage directions, templates."""
    assert [text for text in TABLE["machinery"] if find_machinery(text) is None] == []
    assert len(TABLE["machinery"]) > 150


def test_talk_is_left_alone() -> None:
    """Also about timers, prompts, users and empty messages, in code, quotations and Markdown."""
    found = {text: find_machinery(text) for text in TABLE["talk"]}
    assert {text: machinery for text, machinery in found.items() if machinery} == {}
    assert len(found) > 300


def test_a_repeated_prompt_is_known_by_the_frame_of_its_data() -> None:
    """Whatever the owner's prompt says; what the data says may be told."""
    asked = with_data("Ask me how the exam went.", {"subject": "chemistry"})
    for text in (asked, f"Sure! {asked}", asked.partition("\n")[2]):
        found = find_machinery(text)
        assert found is not None
        assert found.kind is MachineryKind.PROMPT
    assert find_machinery("How did the exam in chemistry go?") is None


def test_only_the_opening_is_read() -> None:
    """A long answer may well mention such words later on."""
    talk = "Let us look at the chords of the song, one after the other. " * 8
    assert len(talk) > OPENING
    assert find_machinery(f"{talk} The user hasn't replied.") is None
    assert find_machinery(f"The user hasn't replied. {talk}") is not None


def test_a_beginning_is_judged_after_a_sentence_or_enough_text() -> None:
    """The user waits for a sentence, not for the whole message."""
    assert not can_be_judged("How is the guitar? ")
    assert can_be_judged("word " * 30 + "and so on. ")
    assert can_be_judged("x" * OPENING)
