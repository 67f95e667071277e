"""The difference between two runs of one story, in plain words."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from segue.core.durations import show_duration

Totals = Mapping[str, Any]
_CAUSES: Final = {
    "daily_cap": "the cap of the day",
    "consecutive_cap": "the cap in a row",
    "cooldown": "the time between two",
    "cancelled": "a message of the user",
}
_LOST: Final = "a message that is not sent"


def describe_difference(first: Totals, second: Totals) -> list[str]:
    """What policy B does other than policy A, from the totals of their reports."""
    found = [*_differences(first, second)]
    return found or ["Both policies do the same."]


def _differences(a: Totals, b: Totals) -> Iterator[str]:
    more = b["sent"] - a["sent"]
    if more:
        word = "more" if more > 0 else "fewer"
        noun = "follow-up" if abs(more) == 1 else "follow-ups"
        yield f"B sends {abs(more)} {word} {noun}: {b['sent']} instead of {a['sent']}."
    elif a["sent_by_trigger"] != b["sent_by_trigger"] or a["by_day"] != b["by_day"]:
        yield f"Both send {a['sent']} follow-ups, B at other times or for other reasons."
    for name, (one, many, rest) in (
        ("sent_at_night", ("comes", "come", "at night, between 22:00 and 08:00")),
        ("answered", ("is", "are", "answered")),
        ("replies_lost", ("answer of then follows", "answers of then follow", _LOST)),
    ):
        was, now = a.get(name, 0), b.get(name, 0)
        if was != now:
            yield f"{now} {one if now == 1 else many} {rest}, instead of {was}."
    for name, words in (("postponed_by_gate", "has to wait"), ("not_sent_by_gate", "is not sent")):
        yield from _by_gate(a[name], b[name], words)
    silences = [timedelta(seconds=each["longest_silence"]["seconds"]) for each in (a, b)]
    shown = [show_duration(each) for each in silences]
    if shown[0] != shown[1]:
        yield f"The longest silence is {shown[1]} instead of {shown[0]}."


def _by_gate(a: Mapping[str, int], b: Mapping[str, int], words: str) -> Iterator[str]:
    for gate in sorted({*a, *b}):
        was, now = a.get(gate, 0), b.get(gate, 0)
        if was != now:
            why = _CAUSES.get(gate, gate.replace("_", " "))
            yield f"A follow-up {words} because of {why} {_times(now)} instead of {_times(was)}."


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")
