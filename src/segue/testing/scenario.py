"""Scenarios: a story of days or weeks in a file, to try a follow-up policy on.

Owns reading and checking one, and at which moments its events happen. Running it is
`segue.testing.simulation`'s. Every mistake is a `UsageError` of one line that names the setting.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StrictBool,
    ValidationError,
    model_validator,
)

from segue.agent.config import AgentConfig, Autonomy, Config, MemoryConfig, Share
from segue.core.decide import Delays
from segue.core.errors import NotFoundError, UsageError
from segue.core.policy import Policy
from segue.core.quiet import QuietHours
from segue.settings import Settings
from segue.testing.scenario_words import (
    Moment,
    find_moment,
    read_agent,
    read_hours,
    read_moment,
    read_span,
    read_zone,
)

_NO_TIME: Final = timedelta()
# What an id can hold: before and after, the journal has no place for a message.
_FIRST_YEAR: Final = 2011
_LAST_YEAR: Final = 2078

When = Annotated[Moment, PlainValidator(read_moment)]
Length = Annotated[timedelta, PlainValidator(read_span), Field(gt=_NO_TIME)]
Hours = Annotated[QuietHours | Literal[False], PlainValidator(read_hours)]
Zone = Annotated[str, AfterValidator(read_zone)]
Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class Answering(Config):
    """How the simulated user answers follow-ups; what the scenario says comes besides."""

    # Of all follow-ups, by the scenario's seed.
    share: Share
    after: Length = timedelta(hours=1)
    # In turn, from the first one on.
    say: Annotated[tuple[Text, ...], Field(min_length=1)] = (
        "I am still on it.",
        "I looked at it again this morning.",
        "It goes well so far, but I am not done.",
    )


class User(Config):
    """Who the agents talk to, with the wishes that hold from the start."""

    id: Text = "user"
    time_zone: Zone = "UTC"
    quiet_hours: Hours | None = None
    mute: StrictBool = False
    opt_out: StrictBool = False
    replies: Answering | None = None


class Event(Config):
    """One thing that happens. `agent` says with which one, where that makes a difference: without
    it, the first agent hears what is said, and wishes hold for all.
    """

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
    replies: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None

    @property
    def kind(self) -> str:
        """The setting that says what happens."""
        return next(name for name in KINDS if getattr(self, name) is not None)

    @model_validator(mode="after")
    def _check_kind(self) -> "Event":
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"it has {' and '.join(given)}" if given else "it has none"
            raise UsageError(f"an event has exactly one of {', '.join(KINDS)}; {found}")
        if self.agent is not None and given[0] in ("time_zone", "down"):
            raise UsageError(f"agent: {given[0]} is the same for all agents; leave it out")
        return self


KINDS: Final = tuple(name for name in Event.model_fields if name not in ("at", "agent"))


def _companion() -> tuple[AgentConfig, ...]:
    return (AgentConfig.model_validate(read_agent({"id": "companion"})),)


class Scenario(Config):
    """A story that can be simulated: who, from when to when, and what happens."""

    title: str = ""
    start: When
    end: When | None = None
    lasts: Length | None = Field(default=None, alias="for")
    # Chance follows from it: the same seed gives the same story.
    seed: int = 0
    user: User = User()
    agents: Annotated[
        tuple[Annotated[AgentConfig, BeforeValidator(read_agent)], ...], Field(min_length=1)
    ] = Field(default_factory=_companion)
    events: tuple[Event, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> "Scenario":
        if (self.end is None) == (self.lasts is None):
            raise UsageError("a scenario has either end or for, such as for = \"1 week\"")
        _check_agents(self)
        Timetable.of(self)
        return self

    def agent_of(self, event: Event) -> AgentConfig:
        """The agent that an event is about: the one it names, or the first."""
        found = (agent for agent in self.agents if agent.id == (event.agent or agent.id))
        return next(found)


@dataclass(frozen=True, slots=True)
class Timetable:
    """When everything happens, in UTC, and where the user is."""

    start: datetime
    end: datetime
    events: tuple[tuple[datetime, Event], ...]
    # The user's zone from each moment on.
    zones: tuple[tuple[datetime, tzinfo], ...]

    def local(self, moment: datetime) -> datetime:
        """The moment on the user's clock."""
        zone = next(z for since, z in reversed(self.zones) if since <= moment or since == self.start)
        return moment.astimezone(zone)

    @classmethod
    def of(cls, scenario: Scenario) -> "Timetable":
        """The moments of a scenario; `UsageError` for events out of order or out of reach.

        Local times are read on the clock that the user has by then.
        """
        zone = read_zone_info(scenario.user.time_zone)
        start = _named("start", scenario.start, None, zone)
        if scenario.lasts is not None:
            end = start + scenario.lasts
        else:
            assert scenario.end is not None  # noqa: S101 - one of the two is there
            end = _named("end", scenario.end, start.astimezone(zone), zone)
        _check_span(start, end)
        return cls(start, end, *_places(scenario, start, end, zone))
