"""Requests about follow-ups: to stop, to wait, to write again; and sentences that sound alike."""

import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from segue.core.autonomy.policy import resolve_when
from segue.core.speech.stops import Part, UserRequest, When, Wish, may_be_stop, read_request

TABLE = tomllib.loads(Path(__file__).with_name("requests.toml").read_text())
INDIRECT = tomllib.loads(Path(__file__).with_name("indirect.toml").read_text())


def kind_of(text: str) -> str:
    request = read_request(text)
    return request.wish.value if request else "other"


@pytest.mark.parametrize("language", TABLE)
def test_each_sentence_of_a_language_is_read_as_what_it_is(language: str) -> None:
    """At least 40 ways to say stop, and 40 that only sound like it."""
    sentences = TABLE[language]
    assert min(len(sentences["stop"]), len(sentences["other"])) >= 40
    read = {kind: {s: kind_of(s) for s in said} for kind, said in sentences.items()}
    assert read == {kind: dict.fromkeys(said, kind) for kind, said in sentences.items()}


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("let's talk tomorrow", When(Part.TOMORROW)),
        ("Lass mich eine Stunde in Ruhe", When(after=timedelta(hours=1))),
        ("no me escribas hasta el lunes", When(weekday=0)),
        ("give me 20 minutes", When(after=timedelta(minutes=20))),
        ("not now", When(Part.LATER)),
        ("Parlons-en la semaine prochaine", When(Part.NEXT_WEEK)),
        ("don't write to me for 9999 weeks", When(after=timedelta(days=366))),
        ("not now, maybe tomorrow", When(Part.TOMORROW)),
        ("Not now. Maybe tomorrow.", When(Part.TOMORROW)),
        ("Not now, talk tomorrow", When(Part.TOMORROW)),
        ("Ask me on Friday, not now", When(weekday=4)),
        ("Not this week, maybe on Monday", When(weekday=0)),
        ("Not tonight", When(Part.TOMORROW)),
        ("Nicht jetzt, vielleicht morgen", When(Part.TOMORROW)),
        ("Pas maintenant, peut-être lundi", When(weekday=0)),
        ("Don't write before Monday", When(weekday=0)),
        ("Stop for 2 hours", When(after=timedelta(hours=2))),
        ("Please don't write for a week", When(after=timedelta(weeks=1))),
        ("please don't write today", When(Part.TOMORROW)),
    ],
)
def test_a_time_that_the_user_names_is_read(text: str, when: When) -> None:
    """In any of the languages, as a part of the calendar, a weekday or a duration."""
    assert read_request(text) == UserRequest(Wish.LATER, when)


def test_a_letter_is_not_a_request() -> None:
    """Not one of the alphabet, though "a domani" is."""
    assert {kind_of(letter) for letter in "abcdefghijklmnopqrstuvwxyz"} == {"other"}
    assert kind_of("a domani") == "later"


def test_a_stop_among_other_sentences_counts() -> None:
    """At the beginning or the end of a long message, also beside a milder request."""
    talk = "The weather was fine. " * 50
    assert kind_of(f"Stop writing to me. {talk}") == "stop"
    assert kind_of(f"{talk} I'm busy today. And please leave me alone.") == "stop"


@pytest.mark.parametrize("language", TABLE)
def test_a_stop_in_unknown_words_is_suspected(language: str) -> None:
    """Of the sentences that the grammars know, the net alone catches all but single words."""
    stops = [text for text in TABLE[language]["stop"] if len(text.split()) > 1]
    missed = [text for text in stops if not may_be_stop(text)]
    assert len(missed) <= 0.03 * len(stops), missed


@pytest.mark.parametrize("language", INDIRECT)
def test_indirect_stops_are_mostly_not_followed_up_and_no_look_alike_opts_out(
    language: str,
) -> None:
    """At least two in five opt the user out, and 19 of 20 are not followed up."""
    stops, others = INDIRECT[language]["stop"], INDIRECT[language]["other"]
    understood = [text for text in stops if kind_of(text) in ("stop", "stop_reminders")]
    missed = [text for text in stops if kind_of(text) == "other" and not may_be_stop(text)]
    assert len(understood) >= 0.4 * len(stops)
    assert len(missed) <= 0.05 * len(stops), missed
    assert [text for text in others if kind_of(text) == "stop"] == []


def test_chat_spellings_are_read() -> None:
    """What people shorten or mistype when they are annoyed."""
    for text in ("dont wanna hear from u again", "stop writting me", "n quero mais msgs"):
        assert kind_of(text) == "stop", text


def test_what_a_user_does_without_is_not_a_stop() -> None:
    """A list of what there is none of is about the user's own life."""
    assert kind_of("Weekends are for my family: no work calls, no screens, no emails.") == "other"
    assert kind_of("No emails please.") == "stop"


@pytest.mark.parametrize(
    "text",
    [
        "Which of the two museums near the station is open today, and until when?",
        "Write me a list of three rhymes, please.",
        "Ich möchte Gitarre lernen und mit Freunden spielen.",
        "¿Qué tiempo hace mañana en Madrid?",
        "Je cherche un bon restaurant pour ce soir.",
    ],
)
def test_ordinary_messages_are_not_suspected(text: str) -> None:
    """The net is for messages about being written to, not for every negative or request."""
    assert not may_be_stop(text)


def test_text_that_a_user_pastes_is_not_their_request() -> None:
    """After a colon, between quotation marks, in code, or in the middle of a long text."""
    talk = "The weather was fine. " * 50
    for text in (
        "Please proofread this:\nDear Sir, stop contacting me.",
        'How do I say "leave me alone" in French?',
        "```\nleave me alone\n```",
        f"{talk} Leave me alone. {talk}",
    ):
        assert kind_of(text) == "other", text


def test_a_bare_stop_counts_only_as_the_whole_message() -> None:
    """As in text messages; "Stop, hammer time" is a song."""
    assert kind_of("STOP!") == "stop"
    assert kind_of("Stop, hammer time, what is that song?") == "other"


@pytest.mark.parametrize(
    ("when", "until"),
    [
        (When(Part.LATER), "2027-03-26T18:00+01:00"),
        (When(Part.EVENING), "2027-03-26T19:00+01:00"),
        (When(Part.TOMORROW), "2027-03-27T09:00+01:00"),
        (When(Part.DAY_AFTER), "2027-03-28T09:00+02:00"),  # the clock changes on that night
        (When(Part.WEEKEND), "2027-03-27T09:00+01:00"),
        (When(Part.NEXT_WEEK), "2027-03-29T09:00+02:00"),
        (When(Part.NEXT_MONTH), "2027-04-01T09:00+02:00"),
        (When(weekday=4), "2027-04-02T09:00+02:00"),
        (When(after=timedelta(minutes=20)), "2027-03-26T14:20+01:00"),
    ],
)
def test_a_time_is_resolved_by_the_users_clock(when: When, until: str) -> None:
    """On a Friday at 14:00 in Berlin."""
    now = datetime.fromisoformat("2027-03-26T13:00+00:00")
    assert resolve_when(when, now, ZoneInfo("Europe/Berlin")) == datetime.fromisoformat(until)


def test_this_evening_said_at_night_is_tomorrow() -> None:
    """It is never in the past."""
    now = datetime.fromisoformat("2027-03-26T21:00+00:00")
    assert resolve_when(When(Part.EVENING), now, UTC).day == 27


def test_invisible_characters_hide_no_stop() -> None:
    """They come with text that is copied from elsewhere."""
    request = read_request("Stop\u200b writ\u00ading to me")
    assert request is not None
    assert request.wish is Wish.STOP
