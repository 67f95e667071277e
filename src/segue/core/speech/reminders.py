"""Reminders in what people and agents write: a reply that promises one, and a message that names one.

A promise is a sentence of the agent's own. It counts only if it names a time, or the user asked to
be reminded. "I'll make sure to do that" is one, too, if the user asked for a reminder at a time, and
so is any reply that neither refuses nor asks about the reminder, if the message begins with the
request and the time is clear. A wrong time is worse than none: what is rough, repeated, ambiguous or contradictory
is left open.

A message names a reminder if both share a word that says something: not a common one, nor a number
word, a time or a word for reminding. In doubt it does not: a repetition costs less than a reminder
that says nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from functools import cache
from itertools import product
from typing import Any, Final
from unicodedata import combining, normalize

from segue.core.durations import show_duration
from segue.core.memory import query_words
from segue.core.speech.phrases import alternatives, folded, languages, whole_words
from segue.core.speech.reminder_requests import RequestGrammar, own_sentences
from segue.core.speech.sentences import is_question, sentences_of
from segue.core.speech.stops import UNITS, grammars, read_numbers
from segue.core.text import one_line

# Characters of the text of a reminder.
LONGEST_TEXT: Final = 1_000
_UNITS: Final = {name: length for name, length in UNITS.items() if name != "months"}
_DATES: Final = r"\d{1,2}[./]\d{1,2}[./]?(\d{2,4})?(?= |$)|\d{4}-\d\d(-\d\d)?|\d{1,2}(st|nd|rd|th|er|e|o|a)|\d{1,2}\. \w+"
_MARKS: Final = " .,;:!?…\"'()"
_SHORTEST_LAST: Final = 3  # characters
# Words of a question that is about the day it names: "Tomorrow morning, then?"
_LONGEST_QUESTION: Final = 3
# What may stand before a request: "Hey, could you".
_LEAD: Final = re.compile(r"(?:[\w']+,? ){0,4}")
# A reply may round the time that the user named.
_AGREEMENT: Final = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class PromisedTime:
    """Every time that was named; days are counted from today, weekdays from Monday."""

    durations: frozenset[timedelta] = frozenset()
    clocks: frozenset[time] = frozenset()
    days: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    # An hour alone, such as "at 9": today it could be in the evening.
    needs_day: bool = False

    def __or__(self, other: "PromisedTime") -> "PromisedTime":
        return PromisedTime(
            self.durations | other.durations,
            self.clocks | other.clocks,
            self.days | other.days,
            self.weekdays | other.weekdays,
            self.needs_day or other.needs_day,
        )

    @property
    def is_known(self) -> bool:
        return bool(self.durations or self.clocks)

    def arguments(self, now: datetime, zone: tzinfo) -> dict[str, str] | None:
        """For `parse_schedule`: `after` or `at`; None if the times named do not agree."""
        local = now.astimezone(zone).replace(tzinfo=None)
        dates = {local.date() + timedelta(days=n) for n in self.days}
        dates |= {_next_weekday(local.date(), n) for n in self.weekdays}
        if len(dates) > 1 or (self.needs_day and not dates) or local.weekday() in self.weekdays:
            return None
        moments = [local + span for span in self.durations]
        moments += [datetime.combine(min(dates, default=local), clock) for clock in self.clocks]
        if not moments or max(moments) - min(moments) > _AGREEMENT or min(moments) <= local:
            return None
        if dates and min(moments).date() not in dates:
            return None
        if self.durations:
            return {"after": show_duration(min(self.durations))}
        return {"at": min(moments).isoformat(timespec="minutes")}


@dataclass(frozen=True, slots=True)
class Promise:
    """What to remind the user of, in the words of the request or of the reply, and when.

    Not `is_made` if the user asked for it, and the reply does not take it on.
    """

    text: str
    time: PromisedTime | None
    is_made: bool = True


class _Reminders:
    """The phrases of one language."""

    def __init__(self, language: Mapping[str, Any]) -> None:
        table, times = language["reminders"], language["times"]
        # In every promise; looked for one by one, which is ten times as fast as a pattern.
        self.mentions: list[str] = table["mentions"]
        self.promise = whole_words(table["promises"], table.get("words"))
        self.other = whole_words(table["others"])
        self.ask = whole_words(table["asks"])
        self.requests = RequestGrammar(language)
        self.agrees = whole_words(table["agrees"])
        self.declines = whole_words(table["declines"])
        self.negates = whole_words(table["negates"])
        self.asks_when = whole_words(table["asks_when"])
        self.asks_to_confirm = whole_words(table["asks_to_confirm"])
        self.leads_in = re.compile(rf"(?:{alternatives(table['leads_in'])})")
        self.unclear_time = whole_words(f"{table['unclear']}\n{_DATES}")
        self.morning = whole_words(table["morning"])
        self.later = whole_words(table["later"])
        self.days = [*map(whole_words, table["days"])]
        self.weekdays = [*map(whole_words, times["weekdays"])]
        rough = re.compile(table["rough"])
        self.numbers = {w: n for w, n in read_numbers(times).items() if not rough.search(w)}
        units = "|".join(f"(?P<{name}>{alternatives(times['units'][name])})" for name in _UNITS)
        count = rf"\d{{1,4}}|{'|'.join(sorted(self.numbers, key=len, reverse=True))}"
        # With `within` if it is the time from now on.
        self.duration = re.compile(
            rf"(?<![\w'])(?P<within>(?:{table['within']})\s)?(?P<count>{count})"
            rf"[\s-]?(?:{units})(?![\w'])"
        )
        at, separator, suffix = (
            alternatives(table[name]) for name in ("at", "separator", "suffix")
        )
        self.clock = re.compile(
            rf"(?<![\w:.,/-])(?P<at>(?:{at})\s?)?(?P<hour>\d{{1,2}})"
            rf"(?:(?P<between>[:.]|{separator})(?P<minute>\d\d))?"
            rf"(?P<suffix>\s?(?:{suffix}))?(?![\w:]|[.,/-]\d)"
        )
        self.hour_in_words = re.compile(
            rf"(?<![\w'])(?:{at})\s(?:{'|'.join(self.numbers)})(?![\w'])"
        )
        self.common = _common_words(table, times)


def _common_words(table: Mapping[str, Any], times: Mapping[str, Any]) -> re.Pattern[str]:
    """Words that name no reminder: common ones, numbers, times, and those for reminding."""
    listed = "|".join([*table["common"].split(), *read_numbers(times)])
    lines = [*times["units"].values(), *times["weekdays"], *times["parts"].values()]
    times_of = "|".join(map(alternatives, lines))
    about = "|".join(map(re.escape, table["mentions"]))
    return re.compile(rf"(?:{listed}|{times_of})$|(?:{about})")


@cache
def _languages() -> tuple[_Reminders, ...]:
    return tuple(map(_Reminders, languages()))


def may_promise(reply: str) -> bool:
    """Whether `find_promise` is worth its time: few replies speak of reminders."""
    lower = reply.lower()
    return any(word in lower for language in _languages() for word in language.mentions)


def find_promise(reply: str, request: str) -> Promise | None:
    """The promise to remind in a reply to a request of the user; None if there is none."""
    sentences = [(each, folded(each)) for each in sentences_of(reply)]
    for plain, sentence in sentences:
        for language in _languages():
            is_promise = language.promise.search(sentence) and not language.other.search(sentence)
            if not is_promise or is_question(plain):
                continue
            requested = [*own_sentences(request)]
            if _is_about_words(requested):
                return None
            asked = [each for each in requested if language.ask.search(each)]
            times = [_read_time(each, language) for each in (sentence, *asked)]
            if asked or _names_time(sentence, times[0], language):
                return Promise(_own_words(request if asked else reply, language), _joined(times))
    return None


def _is_about_words(message: list[str]) -> bool:
    """Whether the user asks for words, such as a translation, and for no reminder besides: the
    reply says the words, and promises nothing by them.
    """
    every = [each.requests for each in _languages()]
    is_asked = any(each.requests_of(message) for each in every)
    return not is_asked and any(each.is_about_words(message) for each in every)


def find_agreement(reply: str, request: str) -> Promise | None:
    """The promise in a reply to a user's request for a reminder that names a time; None if the
    user requests none.

    For a model that called no tool. One that asks about the time promises nothing yet, but one that
    asks what else there is to do does.
    """
    sentences = [(each, folded(each)) for each in sentences_of(reply)]
    requested = [*own_sentences(request)]
    for language in _languages():
        asked = [
            each
            for each in language.requests.requests_of(requested)
            if _names_time(each, _read_time(each, language), language)
        ]
        if not asked:
            continue
        agreed = _agreeing(sentences, language)
        if not agreed and not _is_plain(requested, asked[0], language):
            continue
        said = agreed or [sentence for plain, sentence in sentences if not is_question(plain)]
        time = _joined([_read_time(each, language) for each in (*said, *asked)])
        questions = [sentence for plain, sentence in sentences if is_question(plain)]
        is_made = bool(agreed) or _accepts(sentences, language)
        if any(_asks_when(question, language) for question in questions):
            is_made = False
        if time is None and (not agreed or questions):
            is_made = False
        return Promise(_own_words(request, language, asked), time, is_made)
    return None


def _is_plain(message: list[str], asked: str, language: _Reminders) -> bool:
    """Whether the sentence of a message begins with the request, and nothing introduces it:
    "Translate: remind me" does not.
    """
    found = language.requests.request.search(asked)
    before = asked[: found.start()] if found else asked
    earlier = message[: message.index(asked)]
    is_own = not any(g.reports.search(each) for g in grammars() for each in (*earlier, before))
    return is_own and ":" not in "".join(earlier) and _LEAD.fullmatch(before) is not None


def _accepts(sentences: list[tuple[str, str]], language: _Reminders) -> bool:
    """Whether a reply neither refuses, in any language, nor asks about what was requested."""
    refusals = [p for each in _languages() for p in (each.declines, each.negates)]
    return bool(sentences) and not any(
        _asks_back(plain, sentence, language)
        or any(refusal.search(sentence) for refusal in refusals)
        for plain, sentence in sentences
    )


def _agreeing(sentences: list[tuple[str, str]], language: _Reminders) -> list[str]:
    """The sentences of a reply that agree, in any language; none if one declines."""
    every = _languages()
    if any(each.declines.search(sentence) for _, sentence in sentences for each in every):
        return []
    return [
        sentence
        for plain, sentence in sentences
        if not _asks_back(plain, sentence, language)
        and any(each.agrees.search(sentence) and not each.other.search(sentence) for each in every)
    ]


def _asks_back(plain: str, sentence: str, language: _Reminders) -> bool:
    """Whether a sentence asks when to remind, or whether to: "What else?" does neither."""
    return is_question(plain) and (
        _asks_when(sentence, language)
        or any(each.asks_to_confirm.search(sentence) for each in _languages())
    )


def _asks_when(question: str, language: _Reminders) -> bool:
    """Whether a question asks for a time or names one; "How are you today?" does not."""
    if any(each.asks_when.search(question) for each in _languages()):
        return True
    if any(sign.isdecimal() for sign in question):
        return True
    # Reply and request are in one language, or the reply is in English.
    return len(question.split()) <= _LONGEST_QUESTION and any(
        pattern.search(question)
        for each in (language, _languages()[0])
        for pattern in (*each.days, *each.weekdays, each.morning, each.later, each.hour_in_words)
    )


def _names_time(sentence: str, read: PromisedTime | None, language: _Reminders) -> bool:
    if read is not None:
        return read != PromisedTime()
    days = (*language.weekdays, *language.days)
    return any(char.isdecimal() for char in sentence) or any(d.search(sentence) for d in days)


def _joined(times: list[PromisedTime | None]) -> PromisedTime | None:
    """All times together; None if one is unclear or none is known."""
    joined = PromisedTime()
    for each in times:
        if each is None:
            return None
        joined |= each
    return joined if joined.is_known else None


def _own_words(text: str, language: _Reminders, asked: Iterable[str] = ()) -> str:
    """What the sentence about the reminder says it is about, as it was written."""
    lines = re.split(r"(?<=[.!?…])\s+|\n+", text.strip())
    about = [line for line in lines if not {*own_sentences(line)}.isdisjoint(asked)]
    about += [line for line in lines if language.ask.search(folded(line.casefold()))]
    return _subject(one_line(next(iter(about), text), LONGEST_TEXT), language)


def _subject(line: str, language: _Reminders) -> str:
    """The words after the request, without the time; the whole line if hardly any are left."""
    plain, places = _aligned(line)
    asked = language.ask.search(plain)
    if asked is None:
        return line
    days = (*language.days, *language.weekdays, language.morning, language.later)
    times = [found for pattern in days for found in pattern.finditer(plain)]
    times += [found for found in language.duration.finditer(plain) if found["within"]]
    times += filter(_is_clock, language.clock.finditer(plain))
    hidden = {places[n] for found in times for n in range(*found.span())}
    rest = range(places[asked.end() - 1] + 1, len(line))
    words = "".join(" " if n in hidden else line[n] for n in rest).split()
    while words and language.leads_in.fullmatch(_aligned(words[0].strip(",:'-"))[0]):
        words = words[1:]
    while words and len(words[-1].strip(_MARKS)) < _SHORTEST_LAST:  # what stood before the time
        words = words[:-1]
    return " ".join(words).strip(_MARKS) if words else line


def _aligned(line: str) -> tuple[str, list[int]]:
    """The line in lower case and without accents, and for each character its place in the line."""
    signs = [
        (sign, place)
        for place, written in enumerate(line)
        for sign in normalize("NFKD", written.casefold())
        if not combining(sign)
    ]
    return "".join(sign for sign, _ in signs), [place for _, place in signs]


def _read_time(sentence: str, language: _Reminders) -> PromisedTime | None:
    """The times that a sentence names, which may be none at all; None if they are unclear."""
    if language.unclear_time.search(sentence):
        return None
    is_morning = language.morning.search(sentence) is not None
    is_later = language.later.search(sentence) is not None
    rest = language.morning.sub(" ", sentence)
    days = set()
    for n in (2, 1, 0):  # "the day after tomorrow" contains "tomorrow"
        rest, count = language.days[n].subn(" ", rest)
        days |= {n} if count else set()
    durations = frozenset(_durations(rest, language))
    rest = language.duration.sub(lambda m: " " if m["within"] else m[0], rest)
    clocks = [*filter(_is_clock, language.clock.finditer(rest))]
    read = [_clock_time(c, is_morning=is_morning, is_later=is_later) for c in clocks]
    rest = language.clock.sub(lambda c: " " if _is_clock(c) else c[0], rest)
    if None in read or language.duration.search(rest):
        return None
    return PromisedTime(
        durations,
        frozenset(clock for clock in read if clock is not None),
        frozenset(days),
        frozenset(n for n, day in enumerate(language.weekdays) if day.search(rest)),
        needs_day=any(not c["minute"] and not c["suffix"] for c in clocks) and not is_later,
    )


def _durations(text: str, language: _Reminders) -> Iterator[timedelta]:
    for found in language.duration.finditer(text):
        if found["within"]:
            unit = next(unit for unit in _UNITS if found[unit])
            count = found["count"]
            number = int(count) if count.isdecimal() else language.numbers[count]
            yield number * _UNITS[unit]


def _is_clock(found: re.Match[str]) -> bool:
    """A mere number is not a time of day; "9.30" may be a price."""
    return bool(found["at"] or found["suffix"] or found["between"] not in (None, "."))


def _clock_time(found: re.Match[str], *, is_morning: bool, is_later: bool) -> time | None:
    """The time of day; None if it could be another half of the day, or there is no such time."""
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    half = (found["suffix"] or "").strip()[:1]
    is_later = is_later or half == "p"
    is_morning = is_morning or half == "a"
    if hour > 23 or minute > 59 or (hour == 12 and (is_later or is_morning)):
        return None
    if is_morning and (is_later or hour > 12):
        return None
    if is_later and 0 < hour < 12:
        return time(hour + 12, minute)
    is_sure = is_morning or is_later or found["hour"].startswith("0")
    # Hours that people mean in the afternoon as often as at night.
    return None if 1 <= hour <= 6 and not is_sure else time(hour, minute)


def _next_weekday(today: date, weekday: int) -> date:
    return today + timedelta(days=(weekday - today.weekday()) % 7)


# A shorter word counts only if it is equal; a longer one may be part of a compound.
_SHORTEST_PREFIX: Final = 4
_SHORTEST_PART: Final = 5
# Of a longer message, this much is read.
_LONGEST: Final = 20_000  # characters
_WORD: Final = re.compile(r"\w+")


def names_reminder(message: str, reminder: str) -> bool:
    """Whether a message has a word of the reminder that says what it is about."""
    return any(_is_same(*pair) for pair in product(_telling(reminder), _telling(message)))


def plain_reminder(reminder: str) -> str:
    return f"Reminder: {reminder}"


def _telling(text: str) -> set[str]:
    words = {*_WORD.findall(folded(text[:_LONGEST].casefold()))}
    said = " ".join(word for word in words if not _is_common(word))
    return {word for word in query_words(said) if len(word) > 2 or not word.isascii()}


def _is_common(word: str) -> bool:
    if word.isdecimal():
        return len(word) < 3
    return any(language.common.match(word) for language in _languages())


def _is_same(one: str, other: str) -> bool:
    """Equal, one a part of the other, or alike but for the last letter of the shorter one."""
    short, long = sorted((one, other), key=len)
    if short.isdecimal():
        return short == long
    is_part = len(short) >= _SHORTEST_PART and short in long
    prefix = short[:-1]
    return short == long or is_part or (len(prefix) >= _SHORTEST_PREFIX and long.startswith(prefix))
