"""Scenarios: a story of days or weeks in a file, to try a follow-up policy on.

Reads and checks a scenario, and computes the times of its events. `segue.simulate.simulation` runs
it. A mistake is a `UsageError` of one line that names the setting.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StrictBool,
    ValidationError,
    model_validator,
)

from segue.core.autonomy.local_time import QuietHours, as_utc, find_zone
from segue.core.durations import parse_duration
from segue.errors import UsageError
from segue.settings import Settings
from segue.settings.agents import AgentConfig
from segue.settings.loading import read_toml
from segue.settings.schema import Config, Expected, Mistake, Share, Span, error_at, find_mistakes

SCRIPTED: Final = "scripted"
# Snowflake ids cannot hold times before or after these.
_FIRST: Final = datetime(2011, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(2079, 1, 1, tzinfo=UTC)
_DAY: Final = re.compile(r"day +(\d{1,5}),? +(\d{1,2}):(\d{2})", re.ASCII | re.IGNORECASE)
_HOURS: Final = re.compile(r"(\S+?)\s*(?: to |-)\s*(\S+)")


def parse_hours(value: Any) -> QuietHours | Literal[False]:
    """Quiet hours from `22:00 to 07:00`, from a table with start and end, or false for none."""
    if value is False or isinstance(value, QuietHours):
        return value
    if value == "none":  # as in other settings
        return False
    with suppress(ValueError, TypeError, AttributeError):
        if isinstance(value, str) and (found := _HOURS.fullmatch(value.strip())):
            return QuietHours(_clock_time(found[1]), _clock_time(found[2]))
        if isinstance(value, Mapping) and value.keys() == {"start", "end"}:
            return QuietHours(_clock_time(value["start"]), _clock_time(value["end"]))
    raise UsageError(
        f"{value!r:.60} are not quiet hours; write them like '22:00 to 07:00', or false for none"
    )


def _clock_time(value: Any) -> time:
    return value if isinstance(value, time) else time.fromisoformat(value.zfill(len("22:00")))


def _check_zone(name: str) -> str:
    if find_zone(name) is None:
        raise UsageError(f"{name!r:.60} is not a time zone; write its name like 'Europe/Berlin'")
    return name


def _check_text(text: str) -> str:
    if not text.strip():
        raise UsageError("it is empty; expected a text")
    return text


# A moment as written in TOML or text; `resolve` finds it on the user's clock at that time.
Moment = Annotated[Any, Expected("a moment")]
Hours = Annotated[QuietHours | Literal[False], PlainValidator(parse_hours)]
Zone = Annotated[str, AfterValidator(_check_zone)]
Text = Annotated[str, AfterValidator(_check_text)]
Texts = Annotated[tuple[Text, ...], Field(min_length=1)]


class AutoReplies(Config):
    """How the simulated user answers follow-ups, in addition to the events."""

    # Of all follow-ups. Which ones follows from the seed.
    share: Share
    after: Span = timedelta(hours=1)
    # One after the other, and again from the first.
    say: Texts = (
        "Thanks for asking. I am working on it.",
        "Not yet, but I will.",
        "Yes, I did it.",
    )


class User(Config):
    """The user of the scenario, with the preferences that hold from the start."""

    id: Text = "user"
    time_zone: Zone = "UTC"
    quiet_hours: Hours | None = None
    mute: StrictBool = False
    opt_out: StrictBool = False
    replies: AutoReplies | None = None


class Remind(Config):
    """A reminder that the user sets: `after`, `at` a local time, or `every` with `until`."""

    text: Text
    after: Text | None = None
    at: Text | None = None
    every: Text | None = None
    until: Text | None = None


class Event(Config):
    """Without an `agent`, a message goes to the first one, and a preference applies to all."""

    at: Moment
    agent: str | None = None
    say: Text | None = None
    type: Literal[True] | None = None
    mute: StrictBool | None = None
    snooze: Span | None = None
    opt_out: StrictBool | None = None
    time_zone: Zone | None = None
    quiet_hours: Hours | None = None
    # The process is closed, and opened again after this time.
    down: Span | None = None
    # What the model says next, one after the other.
    replies: Texts | None = None
    remind: Remind | None = None
    # A program asks the agent to write first, with this prompt.
    follow_up: Text | None = None
    # A program reports an event of this type.
    news: Text | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> "Event":
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"this has {' and '.join(given) or 'none'}"
            raise UsageError(f"an event has exactly one of {', '.join(KINDS)}; {found}")
        if self.agent is not None and given[0] in ("time_zone", "down"):
            raise UsageError(f"agent: {given[0]} is the same for all agents; leave it out")
        return self


KINDS: Final = tuple(name for name in Event.model_fields if name not in ("at", "agent"))


def _read_agent(given: Any) -> Any:
    """An agent's settings, with quiet hours as a text; scripted, unless they name a model."""
    if not isinstance(given, Mapping):
        return given
    # A summary would use up replies that the scenario has for its users.
    off = {"enabled": False}
    model = {} if "graph" in given else {"model": SCRIPTED}
    # Weeks pass in seconds: no real server should be called.
    read = {**model, "memory": off, "compression": off, **given, "mcp": {}}
    match given:
        case {"autonomy": {"policy": {"quiet_hours": hours} as policy} as autonomy}:
            try:
                policy = {**policy, "quiet_hours": parse_hours(hours) or None}
            except UsageError as error:
                mistake = error_at(str(error), "autonomy", "policy", "quiet_hours")
                raise ValidationError.from_exception_data("agent", [mistake]) from None
            read["autonomy"] = {**autonomy, "policy": policy}
    return read


class Scenario(Config):
    """A story that can be simulated: the user, the agents, when it is, and what happens."""

    title: str = ""
    start: Moment
    end: Moment = None
    lasts: Annotated[Span | None, Field(alias="for")] = None
    # It determines all random choices: the same seed gives the same story.
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


def _check_agents(scenario: Scenario) -> None:
    Settings(agents=scenario.agents)  # raises for agents that do not go together
    for agent in scenario.agents:
        if agent.model == SCRIPTED and agent.autonomy.decider == "model" and agent.graph is None:
            raise UsageError(
                f"agents.{agent.id}.autonomy.decider: the scripted model decides nothing; "
                "use 'rules', or name another model"
            )
    known = {agent.id: agent for agent in scenario.agents}
    for number, event in enumerate(scenario.events, 1):
        if event.agent is not None and event.agent not in known:
            raise UsageError(
                f"event {number}: agent: unknown {event.agent!r}; there are: {', '.join(known)}"
            )
        agent = scenario.agent_of(event)
        if event.replies is not None and (agent.model != SCRIPTED or agent.graph is not None):
            raise UsageError(
                f"event {number}: replies: the model of {agent.id!r} is not the scripted one"
            )


@dataclass(slots=True)
class Timetable:
    """When everything happens, in UTC, and the user's zone at each time."""

    start: datetime
    end: datetime
    # The user's zone from each moment on; the first is there from the start.
    zones: list[tuple[datetime, tzinfo]]
    events: list[tuple[datetime, Event]] = field(default_factory=list)

    @classmethod
    def of(cls, scenario: Scenario) -> "Timetable":
        """The moments of a scenario. `UsageError` for what is out of order or out of range."""
        home = ZoneInfo(scenario.user.time_zone)
        if isinstance(scenario.start, str) and scenario.start.strip().startswith("+"):
            raise UsageError("start: a story starts at a date, such as '2027-03-01 09:00'")
        start = _resolve(scenario.start, "start", _FIRST, home)
        made = cls(start, _end_of(scenario, start, home), [(start, home)])
        if not _FIRST <= made.start < made.end <= _LAST:
            raise UsageError(
                f"start, end: the story cannot be from {made.shown(made.start)} to "
                f"{made.shown(made.end)}; expected an end after the start, from {_FIRST.year} to "
                f"{_LAST.year}"
            )
        for number, event in enumerate(scenario.events, 1):
            made._add(event, f"event {number}")
        return made

    def local(self, moment: datetime) -> datetime:
        """The moment on the user's clock."""
        place = bisect_right(self.zones, moment, key=lambda change: change[0])
        return moment.astimezone(self.zones[max(place - 1, 0)][1])

    def shown(self, moment: datetime) -> str:
        return f"{self.local(moment):%Y-%m-%d %H:%M}"

    def _add(self, event: Event, name: str) -> None:
        """Put an event at its moment; a local time is on the clock that holds by then."""
        (_, home), (_, zone) = self.zones[0], self.zones[-1]
        at = _resolve(event.at, f"{name}: at", self.start.astimezone(home), zone)
        self._check_order(f"{name}: at", at)
        if event.down is not None and at + event.down > self.end:
            raise UsageError(
                f"{name}: down: the outage lasts beyond the end, {self.shown(self.end)}"
            )
        if event.time_zone is not None:
            self.zones.append((at, ZoneInfo(event.time_zone)))
        self.events.append((at, event))

    def _check_order(self, place: str, at: datetime) -> None:
        if not self.start <= at <= self.end:
            raise UsageError(
                f"{place}: {self.shown(at)} is not in the story, which is from "
                f"{self.shown(self.start)} to {self.shown(self.end)}"
            )
        last, before = self.events[-1] if self.events else (self.start, None)
        if at < last:
            raise UsageError(
                f"{place}: {self.shown(at)} is before the event above; write them in order"
            )
        if before is not None and before.down is not None and at < last + before.down:
            raise UsageError(
                f"{place}: {self.shown(at)} is in an outage, until {self.shown(last + before.down)}"
            )


def _end_of(scenario: Scenario, start: datetime, zone: tzinfo) -> datetime:
    if (scenario.end is None) == (scenario.lasts is None):
        raise UsageError("end, for: a story has exactly one of them, such as for = '1 week'")
    if scenario.lasts is None:
        return _resolve(scenario.end, "end", start.astimezone(zone), zone)
    try:
        return start + scenario.lasts
    except OverflowError:
        raise UsageError("for: it is beyond the end of the calendar") from None


def _resolve(value: Any, place: str, start: datetime, zone: tzinfo) -> datetime:
    """A moment in UTC: an offset from the start, a day of the story, or a date, in this zone."""
    try:
        if isinstance(value, str):
            value = value.strip()
            if value.startswith("+"):
                return as_utc(start + parse_duration(value[1:]))
            if found := _DAY.fullmatch(value):
                day = start.date() + timedelta(days=int(found[1]) - 1)
                return as_utc(datetime.combine(day, time(int(found[2]), int(found[3])), zone))
            value = datetime.fromisoformat(value)
        elif isinstance(value, date) and not isinstance(value, datetime):
            value = datetime.combine(value, time())
        if isinstance(value, datetime):
            return as_utc(value if value.tzinfo else value.replace(tzinfo=zone))
    except OverflowError:
        raise UsageError(f"{place}: it is beyond the end of the calendar") from None
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    except ValueError:
        pass
    raise UsageError(
        f"{place}: {value!r:.60} is not a moment; write it like '+2h30m' (after the start), "
        "'day 3 09:15' or '2027-03-01 09:15' (on the user's clock)"
    )


def load_scenario(path: Path | str) -> Scenario:
    """The scenario in a TOML file."""
    return read_scenario(read_toml(Path(path), "scenario"), str(path))


def read_scenario(values: Mapping[str, Any], name: str = "scenario") -> Scenario:
    """The scenario in a mapping, as a TOML file would give it."""
    try:
        return Scenario.model_validate(dict(values))
    except ValidationError as error:
        found = "; ".join(map(_shown, find_mistakes(error, Scenario, values)))
        raise UsageError(f"{name}: {found}.") from None


def _shown(mistake: Mistake) -> str:
    """`event 4` is the fourth one in the file."""
    match mistake.place:
        case ("events", number, *rest) if number.isdigit():
            parts = [f"event {int(number) + 1}", ".".join(rest), mistake.text]
        case place:
            parts = [".".join(place), mistake.text]
    return ": ".join(filter(None, parts))
