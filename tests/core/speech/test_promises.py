"""Promises to remind: true ones with their times, and sentences that sound alike."""

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.autonomy.schedule import parse_schedule
from segue.core.speech.promises import find_promise, may_promise

TABLE = tomllib.loads(Path(__file__).with_name("promises.toml").read_text())
NOW = datetime(2026, 11, 17, 12, 26, tzinfo=UTC)  # 13:26 in Berlin, a Tuesday
BERLIN = ZoneInfo("Europe/Berlin")


def read(reply: str, request: str) -> str | None:
    """When the promise is due; empty if that is left open, None if there is no promise."""
    if (promise := find_promise(reply, request)) is None:
        return None
    arguments = promise.time.arguments(NOW, BERLIN) if promise.time else None
    return " ".join(f"{name} {value}" for name, value in (arguments or {}).items())


@pytest.mark.parametrize("language", TABLE)
def test_promises_are_found_with_their_times(language: str) -> None:
    """In seven languages; a time in doubt is left open rather than guessed."""
    promises = TABLE[language]["promises"]
    assert len(promises) >= (20 if language == "english" else 8)
    found = {reply: read(reply, request) for reply, request, _ in promises}
    assert all(map(may_promise, found))
    assert found == {reply: when for reply, _, when in promises}


@pytest.mark.parametrize("language", TABLE)
def test_what_only_sounds_like_a_promise_is_none(language: str) -> None:
    """Offers, questions, refusals, reports, and reminders of facts."""
    others = TABLE[language]["others"]
    assert len(others) >= (20 if language == "english" else 8)
    assert {reply: read(reply, request) for reply, request in others} == {
        reply: None for reply, _ in others
    }


def test_the_text_is_what_the_user_asked_for() -> None:
    """Without a request, as after "yes please", it is the agent's own sentence."""
    asked = find_promise("OK, I'll remind you.", "Hello. Remind me at 18:00 to Call Mum! Thanks.")
    offered = find_promise("Great! I'll remind you at 18:00 to call mum.", "yes please")
    assert asked is not None
    assert asked.text == "Call Mum"
    assert offered is not None
    assert offered.text == "call mum"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ("Can you remind me tomorrow at 9am to water the plants?", "water the plants"),
        ("Remind me to buy milk on Friday at 10:15", "buy milk"),
        ("Don't let me forget the milk in an hour!", "the milk"),
        ("Remind me in 20 minutes.", "Remind me in 20 minutes."),
        ("Erinnere mich in 20 Minuten daran, Mama anzurufen.", "Mama anzurufen"),
        ("Recuérdame en 20 minutos llamar a mamá", "llamar a mamá"),
        ("Herinner me over 20 minuten eraan om mama te bellen", "mama te bellen"),
    ],
)
def test_the_text_is_without_the_request_and_the_time(request_: str, text: str) -> None:
    """A list of reminders says what they are about; if that is not clear, the whole sentence."""
    found = [find_promise(reply, request_) for reply in ANSWERS]
    assert {each.text for each in found if each is not None} == {text}


ANSWERS = (
    "I'll remind you.",
    "Ich erinnere dich daran.",
    "Te lo recordaré.",
    "Ik herinner je eraan.",
)
PIECES = """
    I'll remind you|ich erinnere dich|te recordaré|remind me|erinnere mich|in 20 minutes
    in 0 minutes
    at 9|at 09:00|um 9|a las 9|99:99|9 heures|9 uur|tomorrow|morgen|mañana|Monday|pm|.|,|every|half
"""
WORDS = st.lists(st.sampled_from(re.split(r"[|\n]\s*", PIECES.strip())), max_size=20).map(" ".join)


@given(WORDS, WORDS)
def test_a_time_that_is_read_can_be_kept(reply: str, request: str) -> None:
    """Whatever was written, the arguments are accepted as a schedule in the future."""
    promise = find_promise(reply, request)
    arguments = promise.time.arguments(NOW, BERLIN) if promise and promise.time else None
    if arguments:
        schedule = parse_schedule(now=NOW, zone="Europe/Berlin", **arguments)
        assert schedule.first > NOW
