"""Promises of an agent not to write on its own any more, and replies that sound alike."""

import tomllib
from pathlib import Path

import pytest

from segue.core.speech.silence import promises_silence

TABLE = tomllib.loads(Path(__file__).with_name("silence.toml").read_text())


@pytest.mark.parametrize("language", TABLE)
def test_each_reply_of_a_language_is_read_as_what_it_is(language: str) -> None:
    """At least 15 ways to promise it, and 15 replies that only sound like it."""
    promises, others = TABLE[language]["promise"], TABLE[language]["other"]
    assert min(len(promises), len(others)) >= 15
    assert [reply for reply in promises if not promises_silence(reply)] == []
    assert [reply for reply in others if promises_silence(reply)] == []


def test_a_promise_counts_at_either_end_of_a_long_reply() -> None:
    """In the middle it may be a text that the agent wrote for the user."""
    talk = "The weather was fine. " * 50
    assert promises_silence(f"I won't write to you any more. {talk}")
    assert promises_silence(f"{talk} I won't write to you any more.")
    assert not promises_silence(f"{talk} I won't write to you any more. {talk}")


def test_a_text_that_the_agent_wrote_for_the_user_is_no_promise() -> None:
    """Between quotation marks, in code, or as a quoted line."""
    for reply in (
        'Write this: "I won\'t contact you again."',
        "```\nI won't contact you again.\n```",
        "> I won't contact you again.",
    ):
        assert not promises_silence(reply), reply


@pytest.mark.parametrize(
    "sample", ["i won't ", "and i ", "ich werde dir ab jetzt ", "any more ", "ok, ", "nao "]
)
def test_a_hostile_reply_is_read_in_no_time(sample: str) -> None:
    """Repetitions are bounded, so no text takes exponential time."""
    assert not promises_silence(sample * 20_000)
