"""Scenarios: a story of days or weeks in a file, to try a follow-up policy on.

Owns reading and checking one, and when its events happen. Running it is
`segue.testing.simulation`'s. A mistake is a `UsageError` of one line that names the setting.
"""

import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StrictBool,
    ValidationError,
    model_validator,
)

from segue.agent.config import AgentConfig, Config, Share
from segue.core.errors import UsageError
from segue.core.quiet import QuietHours
from segue.settings import Settings
from segue.testing.moments import (
    Moment,
    check_zone,
    read_hours,
    read_moment,
    read_span,
    resolve,
    zone_of,
)
from segue.testing.readable import names_of, readable

SCRIPTED: Final = "scripted"
# Ids hold the time, and not every time.
_FIRST: Final = datetime(2011, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(2079, 1, 1, tzinfo=UTC)


def _is_long(span: timedelta) -> timedelta:
    if span <= timedelta():
        raise UsageError("it is no time at all; expected more")
    return span


def _says_something(text: str) -> str:
    if not text.strip():
        raise UsageError("it is empty; expected some words")
    return text


def _is_not_empty(texts: tuple[str, ...]) -> tuple[str, ...]:
    if not texts:
        raise UsageError("there is none; expected at least one text")
    return texts


When = Annotated[Moment, PlainValidator(read_moment)]
Length = Annotated[timedelta, PlainValidator(read_span), AfterValidator(_is_long)]
Hours = Annotated[QuietHours | Literal[False], PlainValidator(read_hours)]
Zone = Annotated[str, AfterValidator(check_zone)]
Text = Annotated[str, AfterValidator(_says_something)]
Texts = Annotated[tuple[Text, ...], AfterValidator(_is_not_empty)]


class Answering(Config):
    """How the simulated user answers follow-ups, besides what the events say."""

    # Of all follow-ups. Which ones follows from the seed.
    share: Share
    after: Length = timedelta(hours=1)
    # One after the other, and again from the first.
    say: Texts = ("Good that you ask. I am at it.", "Not yet, but I will.", "Yes, I did it.")


class User(Config):
    """Who the agents talk to, with the wishes that hold from the start."""

    id: Text = "user"
    time_zone: Zone = "UTC"
    quiet_hours: Hours | None = None
    mute: StrictBool = False
    opt_out: StrictBool = False
    replies: Answering | None = None


class Event(Config):
    """One thing that happens. Without an `agent`, words go to the first one, and wishes to all."""

    at: When
    agent: str | None = None
    say: Text | None = None
    type: Literal[True] | None = None
    mute: StrictBool | None = None
    snooze: Length | None = None
    opt_out: StrictBool | None = None
    time_zone: Zone | None = None
    quiet_hours: Hours | None = None
    # The process is closed, and opened again after this time.
    down: Length | None = None
    # What the model says next, one after the other.
    replies: Texts | None = None

    @property
    def kind(self) -> str:
        """The setting that says what happens."""
        return self._given()[0]

    def _given(self) -> list[str]:
        return [name for name in KINDS if getattr(self, name) is not None]

    @model_validator(mode="after")
    def _check_kind(self) -> "Event":
        given = self._given()
        if len(given) != 1:
            found = f"this has {' and '.join(given) or 'none'}"
            raise UsageError(f"an event has exactly one of {', '.join(KINDS)}; {found}")
        if self.agent is not None and given[0] in ("time_zone", "down"):
            raise UsageError(f"agent: {given[0]} is the same for all agents; leave it out")
        return self


KINDS: Final = tuple(name for name in Event.model_fields if name not in ("at", "agent"))


def _read_agent(given: Any) -> Any:
    """An agent's settings with lengths as people write them; scripted, unless it says more."""
    if not isinstance(given, Mapping):
        return given
    # A summary would be taken from the replies that the scenario has for its users.
    off = {"enabled": False}
    model = {} if "graph" in given else {"model": SCRIPTED}
    return {**model, "memory": off, "compression": off} | readable(AgentConfig, given)


class Scenario(Config):
    """A story that can be simulated: who, from when until when, and what happens."""

    title: str = ""
    start: When
    end: When | None = None
    lasts: Annotated[Length | None, Field(alias="for")] = None
    # All chance follows from it: the same seed gives the same story.
    seed: int = 0
    user: User = User()
    agents: Annotated[
        tuple[Annotated[AgentConfig, BeforeValidator(_read_agent)], ...],
        Field(validate_default=True),
    ] = ({"id": "companion"},)  # type: ignore[assignment]  # read like any other
    events: tuple[Event, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> "Scenario":
        _check_agents(self)
        Timetable.of(self)
        return self

    def agent_of(self, event: Event) -> AgentConfig:
        """The agent that an event is about: the one it names, or the first."""
        if event.agent is None:
            return self.agents[0]
        return next(agent for agent in self.agents if agent.id == event.agent)


@dataclass(frozen=True, slots=True)
class Timetable:
    """When everything happens, in UTC, and where the user is by then."""

    start: datetime
    end: datetime
    events: tuple[tuple[datetime, Event], ...]
    # The user's zone from each moment on; the first is there from the start.
    zones: tuple[tuple[datetime, tzinfo], ...]

    @classmethod
    def of(cls, scenario: Scenario) -> "Timetable":
        """The moments of a scenario. `UsageError` for what is out of order or out of reach."""
        home = zone_of(scenario.user.time_zone)
        if isinstance(scenario.start, datetime):
            start = resolve(scenario.start, _FIRST, _FIRST.date(), home)
        else:
            raise UsageError("start: a story starts at a date, such as '2027-03-01 09:00'")
        made = cls(start, _end_of(scenario, start, home), (), ((start, home),))
        if not _FIRST <= made.start < made.end <= _LAST:
            raise UsageError(
                f"start, end: the story cannot be from {made.shown(made.start)} to "
                f"{made.shown(made.end)}; expected an end after the start, from {_FIRST.year} to "
                f"{_LAST.year}"
            )
        return made._with(scenario.events)

    def local(self, moment: datetime) -> datetime:
        """The moment on the user's clock."""
        place = bisect_right(self.zones, moment, key=lambda change: change[0])
        return moment.astimezone(self.zones[max(place - 1, 0)][1])

    def shown(self, moment: datetime) -> str:
        return f"{self.local(moment):%Y-%m-%d %H:%M}"

    def _with(self, events: tuple[Event, ...]) -> "Timetable":
        """All events at their moments; local times are read on the clock that holds by then."""
        first_day, zone = self.local(self.start).date(), self.zones[0][1]
        placed: list[tuple[datetime, Event]] = []
        zones = list(self.zones)
        up_since = self.start
        for number, event in enumerate(events, 1):
            try:
                at = resolve(event.at, self.start, first_day, zone)
                self._check_order(at, placed[-1][0] if placed else self.start, up_since)
            except UsageError as error:
                raise UsageError(f"event {number}: at: {error}") from None
            if event.down is not None:
                up_since = at + event.down
                if up_since > self.end:
                    raise UsageError(
                        f"event {number}: down: the outage lasts beyond the end, "
                        f"{self.shown(self.end)}"
                    )
            if event.time_zone is not None:
                zone = zone_of(event.time_zone)
                zones.append((at, zone))
            placed.append((at, event))
        return Timetable(self.start, self.end, tuple(placed), tuple(zones))

    def _check_order(self, at: datetime, last: datetime, up_since: datetime) -> None:
        if not self.start <= at <= self.end:
            raise UsageError(
                f"{self.shown(at)} is not in the story, which is from {self.shown(self.start)} "
                f"to {self.shown(self.end)}"
            )
        if at < last:
            raise UsageError(f"{self.shown(at)} is before the event above; write them in order")
        if at < up_since:
            raise UsageError(f"{self.shown(at)} is in an outage, until {self.shown(up_since)}")


def _end_of(scenario: Scenario, start: datetime, zone: tzinfo) -> datetime:
    if (scenario.end is None) == (scenario.lasts is None):
        raise UsageError("end, for: a story has exactly one of them, such as for = '1 week'")
    try:
        if scenario.end is not None:
            return resolve(scenario.end, start, start.astimezone(zone).date(), zone)
        return start + (scenario.lasts or timedelta())
    except (UsageError, OverflowError):
        raise UsageError("end, for: the story ends beyond the calendar") from None


def _check_agents(scenario: Scenario) -> None:
    Settings(agents=scenario.agents)  # raises for agents that do not go together
    for number, agent in enumerate(scenario.agents, 1):
        if agent.model == SCRIPTED and agent.autonomy.decider == "model" and agent.graph is None:
            raise UsageError(
                f"agent {number}: autonomy.decider: the scripted model decides nothing; "
                "use 'rules', or name another model"
            )
    known = {agent.id: agent for agent in scenario.agents}
    for number, event in enumerate(scenario.events, 1):
        if event.agent is not None and event.agent not in known:
            raise UsageError(
                f"event {number}: agent: there is no {event.agent!r}; there are: {', '.join(known)}"
            )
        agent = scenario.agent_of(event)
        if event.replies is not None and (agent.model != SCRIPTED or agent.graph is not None):
            raise UsageError(
                f"event {number}: replies: the model of {agent.id!r} is not the scripted one"
            )


def load_scenario(path: Path | str) -> Scenario:
    """The scenario in a TOML file."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"The scenario {str(path)!r} cannot be read: {reason}.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The scenario {str(path)!r} is no TOML: {error}.") from None
    return read_scenario(values, str(path))


def read_scenario(values: Mapping[str, Any], name: str = "scenario") -> Scenario:
    """The scenario in a mapping, as a TOML file would give it."""
    try:
        return Scenario.model_validate(dict(values))
    except ValidationError as error:
        problems = "; ".join(map(_words, error.errors(include_url=False)))
        raise UsageError(f"{name}: {problems}.") from None


def _words(problem: Any) -> str:
    """What is wrong with which setting; `event 4` is the fourth one in the file."""
    loc = [part for part in problem["loc"] if part != "[key]"]
    place = []
    if len(loc) > 1 and loc[0] in ("agents", "events") and isinstance(loc[1], int):
        place.append(f"{loc[0][:-1]} {loc[1] + 1}")
        loc = loc[2:]
    if loc:
        place.append(".".join(map(str, loc)))
    return ": ".join([*place, _message(problem, str(loc[-1]) if loc else "")])


def _message(problem: Any, name: str) -> str:
    kind = problem["type"]
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        known = {*names_of(Scenario), "for"} - {"lasts"}  # which files call by that word
        near = get_close_matches(name, sorted(known), n=1)
        return "there is no such setting" + (f"; perhaps {near[0]!r} is meant" if near else "")
    if kind == "missing":
        return "it is missing"
    message: str = problem["msg"]
    return message.removeprefix("Value error, ").removesuffix(".")
