"""Reading scenarios: people write times their way, and mistakes are named."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from segue.core.autonomy.local_time import QuietHours
from segue.errors import UsageError
from segue.settings.agents import AgentConfig
from segue.simulate.scenario import KINDS, Scenario, Timetable, load_scenario, read_scenario

WEEK = {"start": "2027-03-22 09:00", "for": "1 week"}
BERLIN = {"time_zone": "Europe/Berlin"}


def scenario(**more: Any) -> Scenario:
    return read_scenario({**WEEK, **more})


def moments(**more: Any) -> list[str]:
    """When each event happens, in UTC."""
    placed = Timetable.of(scenario(**more)).events
    return [f"{at:%m-%d %H:%M:%S}" for at, _ in placed]


def saying(*times: Any) -> list[dict[str, Any]]:
    return [{"at": time, "say": "Hello"} for time in times]


def test_two_lines_are_a_scenario() -> None:
    """Everything but when it starts and how long it takes has a default."""
    made = scenario()
    assert (made.user.id, made.user.time_zone, made.events) == ("user", "UTC", ())
    assert [(agent.id, agent.model) for agent in made.agents] == [("companion", "scripted")]
    assert not made.agents[0].memory.enabled


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("+0s", "03-22 08:00:00"),
        ("+2h30m", "03-22 10:30:00"),
        ("+ 1 day", "03-23 08:00:00"),
        ("day 1 09:15", "03-22 08:15:00"),
        ("Day 3, 9:15", "03-24 08:15:00"),
        # Clocks in Berlin go forward on the seventh day.
        ("day 7 09:15", "03-28 07:15:00"),
        ("2027-03-23 09:15", "03-23 08:15:00"),
        ("2027-03-23T09:15:30Z", "03-23 09:15:30"),
        (datetime(2027, 3, 23, 9, 15), "03-23 08:15:00"),  # noqa: DTZ001  # as TOML has it
        (datetime(2027, 3, 23, 9, 15, tzinfo=UTC), "03-23 09:15:00"),
    ],
)
def test_a_moment_can_be_written_in_several_ways(at: Any, expected: str) -> None:
    """An offset from the start, a day of the story or a date, on the user's clock by default."""
    assert moments(user=BERLIN, events=saying(at)) == [expected]


def test_times_after_a_change_of_zone_are_on_the_new_clock() -> None:
    """The change itself is still on the old one, and an offset is the same everywhere."""
    tokyo = {"at": "day 2 12:00", "time_zone": "Asia/Tokyo"}
    events = [*saying("day 2 11:00"), tokyo, *saying("day 3 11:00", "+3 days")]
    assert moments(user=BERLIN, events=events) == [
        "03-23 10:00:00",
        "03-23 11:00:00",
        "03-24 02:00:00",
        "03-25 08:00:00",
    ]


def test_a_moment_is_shown_on_the_clock_that_holds_by_then() -> None:
    """Before, at and after a change of zone."""
    table = Timetable.of(scenario(user=BERLIN, events=[{"at": "+1h", "time_zone": "Asia/Tokyo"}]))
    hour = timedelta(hours=1)
    shown = [table.shown(table.start + n * hour) for n in (-1, 0, 1, 2)]
    assert shown == ["2027-03-22 08:00", "2027-03-22 09:00", "2027-03-22 18:00", "2027-03-22 19:00"]


@pytest.mark.parametrize("end", [{"end": "2027-03-29 09:00"}, {"end": "day 8 09:00"}])
def test_the_end_can_be_written_instead_of_a_length(end: dict[str, str]) -> None:
    """On the user's clock, which may have changed: the week is an hour shorter then."""
    table = Timetable.of(read_scenario({"start": WEEK["start"], "user": BERLIN, **end}))
    assert table.end - table.start == timedelta(days=7) - timedelta(hours=1)


def test_an_agent_is_configured_as_anywhere_with_lengths_for_people() -> None:
    """All fields of its config, in their usual form or in words; numbers are seconds as ever."""
    settings = {
        "id": "coach",
        "system_prompt": "You are a coach.",
        "autonomy": {
            "holdout": 0.1,
            "expires_after": "3 days",
            "delays": {"check_in": "2h30m", "task_incomplete": 90},
            "policy": {
                "cooldown": "1h",
                "max_delay": "PT100H",
                "min_delay": "00:00:20",
                "quiet_hours": "22:00 to 7:00",
            },
        },
        "limits": {"tool_time": "5s"},
    }
    [agent] = scenario(agents=[settings]).agents
    assert agent.autonomy.delays.check_in == timedelta(hours=2, minutes=30)
    assert agent.autonomy.delays.task_incomplete == timedelta(seconds=90)
    assert agent.autonomy.expires_after == timedelta(days=3)
    assert agent.autonomy.policy.cooldown == timedelta(hours=1)
    assert agent.autonomy.policy.max_delay == timedelta(hours=100)
    assert agent.autonomy.policy.min_delay == timedelta(seconds=20)
    assert str(agent.autonomy.policy.quiet_hours) == "22:00 to 07:00"
    assert agent.limits.tool_time == timedelta(seconds=5)


def test_an_agent_may_have_another_model_and_memories() -> None:
    """What the scenario says is not replaced by what a simulation prefers."""
    [agent] = scenario(agents=[{"id": "a", "model": "local", "memory": {"limit": 3}}]).agents
    assert (agent.model, agent.memory.enabled, agent.memory.limit) == ("local", True, 3)
    own = AgentConfig(id="b", model="scripted")
    assert scenario(agents=[own]).agents == (own,)


@pytest.mark.parametrize(
    "hours", ["22:00 to 07:30", "22:00-7:30", {"start": "22:00", "end": "07:30"}]
)
def test_quiet_hours_can_be_written_in_several_ways(hours: Any) -> None:
    """As a text or as a table; false means none on purpose."""
    made = scenario(user={"quiet_hours": hours}, events=[{"at": "+1h", "quiet_hours": False}])
    assert str(made.user.quiet_hours) == "22:00 to 07:30"
    assert isinstance(made.user.quiet_hours, QuietHours)
    assert made.events[0].quiet_hours is False


def event(**settings: Any) -> dict[str, Any]:
    return {"events": [{"at": "+1h", **settings}]}


def agent(**settings: Any) -> dict[str, Any]:
    return {"agents": [{"id": "a", **settings}]}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"start": None}, "start: missing; expected a moment"),
        ({"start": "soon"}, "start: 'soon' is not a moment; write it like"),
        ({"start": "+2h"}, "start: a story starts at a date"),
        ({"start": "1999-01-01"}, "start, end: the story cannot be from 1999-01-01"),
        ({"start": 7}, "start: 7 is not a moment"),
        ({"for": None}, "end, for: a story has exactly one of them"),
        ({"end": "day 3 09:00"}, "end, for: a story has exactly one of them"),
        ({"for": "1 month"}, "for: got '1 month'; expected a length of time ('30s',"),
        ({"for": [7]}, "for: got a list; expected a length of time ('30s',"),
        ({"for": "0s"}, "for: got '0s'; expected a length of time ('30s',"),
        ({"for": "999999 weeks"}, "for: it is beyond the end of the calendar"),
        ({"for": None, "end": "day 1 08:00"}, "start, end: the story cannot be from"),
        ({"sede": 3}, "sede: unknown; did you mean seed?"),
        ({"qqq": 3}, "qqq: unknown; there are: title, start, end, for, seed, user,"),
        ({"seed": "x"}, "seed: "),
        ({"user": {"time_zone": "Mars"}}, "user.time_zone: 'Mars' is not a time zone"),
        ({"user": {"quiet_hours": "late"}}, "user.quiet_hours: 'late' are not quiet hours"),
        ({"user": {"quiet_hours": "25:00 to 07:00"}}, "user.quiet_hours: "),
        ({"user": {"quiet_hours": True}}, "user.quiet_hours: True are not quiet hours"),
        ({"user": {"quiet_hours": {"start": "22:00"}}}, "user.quiet_hours: "),
        ({"user": {"id": " "}}, "user.id: it is empty"),
        ({"user": {"mute": "yes"}}, "user.mute: "),
        ({"user": {"replies": {"after": "1h"}}}, "user.replies.share: missing; expected a number"),
        ({"user": {"replies": {"share": 2}}}, "user.replies.share: "),
        (
            {"user": {"replies": {"share": 1, "after": "2x"}}},
            "user.replies.after: got '2x';",
        ),
        (
            {"user": {"replies": {"share": 1, "say": []}}},
            "user.replies.say: got a list; expected",
        ),
        ({"user": 3}, "user: "),
        (event(), "event 1: an event has exactly one of say, type, mute, snooze"),
        (event(say="x", mute=True), "event 1: an event has exactly one of"),
        (event(sya="x"), "event 1: sya: unknown; did you mean say?"),
        (event(say=" "), "event 1: say: it is empty"),
        (event(say=3), "event 1: say: "),
        (event(type=False), "event 1: type: "),
        (event(mute="yes"), "event 1: mute: "),
        (event(opt_out=1), "event 1: opt_out: "),
        (event(snooze="soon"), "event 1: snooze: got 'soon'; expected a length of time"),
        (event(snooze=0), "event 1: snooze: got 0; expected a length of time"),
        (event(time_zone="Mars"), "event 1: time_zone: 'Mars' is not a time zone"),
        (event(quiet_hours="x"), "event 1: quiet_hours: 'x' are not quiet hours"),
        (event(down="30 days"), "event 1: down: the outage lasts beyond the end"),
        (event(replies=[]), "event 1: replies: got a list; expected a list, at least 1 long"),
        (event(replies="x"), "event 1: replies: "),
        (event(say="x", agent="bob"), "event 1: agent: unknown 'bob'; there are: companion"),
        (event(down="1h", agent="companion"), "event 1: agent: down is the same for all"),
        ({"events": [{"say": "x"}]}, "event 1: at: missing; expected a moment"),
        ({"events": saying("day 3 25:00")}, "event 1: at: 'day 3 25:00' is not a moment"),
        ({"events": saying("+2x")}, "event 1: at: '2x' is not a duration"),
        ({"events": saying("day 0 09:00")}, "event 1: at: 2027-03-21 09:00 is not in the story"),
        ({"events": saying("+8 days")}, "event 1: at: 2027-03-30 09:00 is not in the story"),
        ({"events": saying("day 99999 09:00")}, "event 1: at: "),
        (
            {"events": saying("+9999999 days")},
            "event 1: at: it is beyond the end of the calendar",
        ),
        ({"events": saying("+2h", "+1h")}, "event 2: at: 2027-03-22 10:00 is before the event"),
        (
            {"events": [{"at": "+1h", "down": "3h"}, *saying("+2h")]},
            "event 2: at: 2027-03-22 11:00 is in an outage, until 2027-03-22 13:00",
        ),
        ({"events": 3}, "events: "),
        ({"events": [3]}, "event 1: "),
        ({"agents": []}, "agents: the list is empty"),
        ({"agents": [{"id": "a"}, {"id": "a"}]}, "agents: two have the same id"),
        ({"agents": [{}]}, "agents.0.id: missing; expected a text"),
        ({"agents": [3]}, "agents.0: "),
        (
            agent(autonomy={"delays": {"check_in": "2x"}}),
            "agents.a.autonomy.delays.check_in: got",
        ),
        (
            agent(autonomy={"policy": {"cooldwn": 1}}),
            "agents.a.autonomy.policy.cooldwn: unknown",
        ),
        (agent(autonomy={"policy": {"quiet_hours": "x"}}), "agents.a.autonomy.policy.quiet_hours:"),
        (agent(autonomy={"policy": {"max_per_day": -1}}), "agents.a.autonomy.policy.max_per_day: "),
        (agent(autonomy={"holdout": 3}), "agents.a.autonomy.holdout: "),
        (agent(autonomy={"prompts": {"hi": "x"}}), "agents.a.autonomy.prompts.hi: "),
        (agent(autonomy={"decider": "model"}), "agents.a.autonomy.decider: the scripted model"),
        (agent(may_ask=["b"]), "agents.a.may_ask: unknown agent 'b'"),
        (agent(model="openai:x") | event(replies=["x"]), "event 1: replies: the model of 'a' is"),
        (agent(graph="x:y") | event(replies=["x"]), "event 1: replies: the model of 'a' is"),
    ],
)
def test_a_mistake_is_told_in_one_line_that_names_the_setting(
    wrong: dict[str, Any], said: str
) -> None:
    """Which event, counted from one, or which agent, and which of its settings."""
    values = {name: value for name, value in {**WEEK, **wrong}.items() if value is not None}
    with pytest.raises(UsageError) as error:
        read_scenario(values, "week.toml")
    assert str(error.value).startswith(f"week.toml: {said}")
    assert "\n" not in str(error.value)


def test_all_mistakes_are_told_at_once() -> None:
    """Who wrote a file wrong in two places need not run it twice."""
    with pytest.raises(UsageError, match=r"for: .*; event 1: say: "):
        scenario(**{"for": "1 month"}, events=[{"at": "+1h", "say": ""}])


def test_the_page_lists_every_kind_of_event() -> None:
    """Who reads the page knows all that can happen in a scenario."""
    page = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"| `{kind} = " not in page] == []


def test_a_file_is_read(tmp_path: Path) -> None:
    """TOML, with its own dates."""
    path = tmp_path / "week.toml"
    path.write_text('start = 2027-03-22T09:00:00\nfor = "1 week"\ntitle = "Wöche"\n', "utf-8")
    made = load_scenario(path)
    assert made.title == "Wöche"
    assert Timetable.of(made).start == datetime(2027, 3, 22, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"start = ", "is not TOML"), (b"\xff", "it is not UTF-8"), (None, "does not exist")],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    """Not there, not UTF-8, not TOML."""
    path = tmp_path / "week.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=said) as error:
        load_scenario(path)
    assert "week.toml" in str(error.value)
