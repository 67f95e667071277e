"""Simulations: a scenario happens as written, and the report tells all of it, with reasons."""

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from segue.core.autonomy.gates import Gate
from segue.core.triggers import TRIGGER_PROMPTS
from segue.errors import UsageError
from segue.simulate.report import EntryKind, SimulationReport, TimelineEntry, Usage
from segue.simulate.scenario import read_scenario
from segue.simulate.simulation import simulate
from segue.simulate.world import VirtualClock
from segue.stores import JOURNAL_FILE

# The user writes at nine and is asked something back: without more, a follow-up comes at ten.
ASKED = [
    {"at": "+0s", "replies": ["What is your goal?"]},
    {"at": "+0s", "say": "I want to run."},
]


def run(*events: dict[str, Any], **more: Any) -> SimulationReport:
    """One day from nine o'clock on, with these events besides."""
    values = {"start": "2027-03-01 09:00", "for": "1 day", "events": [*ASKED, *events], **more}
    return simulate(read_scenario(values))


def once(**policy: Any) -> list[dict[str, Any]]:
    """One agent that follows up only once."""
    return [{"id": "coach", "autonomy": {"policy": {"max_consecutive": 1, **policy}}}]


def short(entry: TimelineEntry) -> tuple[str, str, str | None]:
    return f"{entry.at:%d %H:%M:%S}", entry.kind.value, entry.gate or entry.trigger


def told(report: SimulationReport, *kinds: EntryKind) -> list[tuple[str, str, str | None]]:
    """What became of follow-ups, or some kinds of entries."""
    chosen = kinds or (EntryKind.FOLLOW_UP, EntryKind.POSTPONED, EntryKind.NOT_SENT)
    return [short(entry) for entry in report.of(*chosen)]


SENT = ("01 10:00:00", "follow_up", "question_unanswered")


def test_silence_is_followed_up_and_everything_is_told_in_order() -> None:
    """What was said, what was planned, what was sent and why no more came."""
    report = run(agents=once())
    assert [(e.kind.value, e.who) for e in report.entries] == [
        ("user_message", "user"),
        ("reply", "coach"),
        ("planned", "coach"),
        ("follow_up", "coach"),
        ("not_planned", "coach"),
    ]
    message, reply, planned, follow_up, last = report.entries
    assert (message.what, reply.what) == ("I want to run.", "What is your goal?")
    assert planned.until == follow_up.at
    assert follow_up.why == "The reply asks the user something."
    assert [v.gate for v in follow_up.verdicts] == [
        gate for gate in Gate if gate is not Gate.TALKING
    ]
    assert last.why == "1 of 1 follow-ups sent since the user last wrote; the user is next."
    assert told(report) == [SENT]


def test_what_the_user_says_ends_what_was_planned() -> None:
    """The follow-up is dropped at that moment, and told right after the message."""
    report = run({"at": "+30m", "say": "Goodbye!"})
    assert told(report) == [("01 09:30:00", "not_sent", "cancelled")]
    [dropped] = report.not_sent
    assert report.entries[report.entries.index(dropped) - 1].what == "Goodbye!"
    assert dropped.why == "The user wrote."
    assert dropped.until == report.start + timedelta(hours=1)


def test_typing_holds_a_follow_up_back() -> None:
    """Until half a minute after the last sign of it."""
    report = run({"at": "+59m45s", "type": True}, agents=once())
    assert told(report) == [
        ("01 10:00:00", "postponed", "typing"),
        ("01 10:00:15", "follow_up", "question_unanswered"),
    ]
    assert told(report, EntryKind.WISH) == [("01 09:59:45", "wish", None)]


def test_a_mute_ends_a_follow_up_when_it_is_due() -> None:
    """Unless it was taken back in time; for a user who is muted from the start none is planned."""
    muted = {"at": "+10m", "mute": True}
    assert told(run(muted)) == [("01 10:00:00", "not_sent", "muted")]
    assert told(run(muted, {"at": "+20m", "mute": False}, agents=once())) == [SENT]
    assert told(run(user={"mute": True})) == []  # none is planned


def test_an_opt_out_ends_a_follow_up_when_it_is_due() -> None:
    """Unless it was taken back in time."""
    out = {"at": "+10m", "opt_out": True}
    assert told(run(out)) == [("01 10:00:00", "not_sent", "opted_out")]
    assert told(run(out, {"at": "+20m", "opt_out": False}, agents=once())) == [SENT]
    assert told(run(user={"opt_out": True})) == []


def test_what_the_user_asks_for_in_words_is_not_told_as_unsent() -> None:
    """Nor is a promise to remind, nor a reminder that is said in plain words."""
    report = run(
        {"at": "+10m", "say": "Please stop writing to me."},
        {"at": "+20m", "say": "You can write to me again."},
        {"at": "+30m", "replies": ["I will remind you at 11:00.", "Time to go!"]},
        {"at": "+30m", "say": "Remind me to drink."},
    )
    assert told(report, EntryKind.NOT_SENT) == [
        ("01 09:10:00", "not_sent", "cancelled"),
        ("01 09:30:00", "not_sent", "cancelled"),
    ]
    assert ("01 11:00:00", "follow_up", "reminder") in told(report)


def test_a_snooze_lets_a_follow_up_wait() -> None:
    """For as long as it says, from its own moment on."""
    report = run({"at": "+10m", "snooze": "4h"}, agents=once())
    assert told(report) == [
        ("01 10:00:00", "postponed", "snoozed"),
        ("01 13:10:00", "follow_up", "question_unanswered"),
    ]


def test_quiet_hours_let_a_follow_up_wait() -> None:
    """The user's own, from the start or from an event on; false takes even an agent's away."""
    waited = [
        ("01 10:00:00", "postponed", "quiet_hours"),
        ("01 12:00:00", "follow_up", "question_unanswered"),
    ]
    hours = "09:30 to 12:00"
    assert told(run({"at": "+10m", "quiet_hours": hours}, agents=once())) == waited
    assert told(run(user={"quiet_hours": hours}, agents=once())) == waited
    assert told(run(agents=once(quiet_hours=hours))) == waited
    none = {"at": "+10m", "quiet_hours": False}
    assert told(run(none, agents=once(quiet_hours=hours))) == [SENT]


def test_a_change_of_zone_moves_the_quiet_hours_and_the_report() -> None:
    """Ten o'clock in London is night in Los Angeles; from there on that clock is shown."""
    report = run(
        {"at": "+10m", "time_zone": "America/Los_Angeles"},
        user={"time_zone": "Europe/London", "quiet_hours": "22:00 to 07:30"},
        agents=once(),
    )
    assert told(report) == [
        ("01 02:00:00", "postponed", "quiet_hours"),
        ("01 07:30:00", "follow_up", "question_unanswered"),
    ]
    assert report.follow_ups[0].at.isoformat() == "2027-03-01T07:30:00-08:00"
    assert report.entries[0].at.isoformat() == "2027-03-01T09:00:00+00:00"


def test_what_is_due_in_an_outage_is_found_late() -> None:
    """The process is really gone: what the agent's rule for it says happens when it is back."""
    outage = {"at": "+30m", "down": "3h"}
    report = run(outage, agents=once())
    assert told(report, EntryKind.OUTAGE, EntryKind.FOLLOW_UP) == [
        ("01 09:30:00", "outage", None),
        ("01 12:30:00", "follow_up", "question_unanswered"),
    ]
    [down] = report.of(EntryKind.OUTAGE)
    assert (down.who, down.until) == ("segue", report.start + timedelta(hours=3.5))
    skipping = [{"id": "coach", "autonomy": {"missed": "skip"}}]
    assert told(run(outage, agents=skipping)) == [("01 12:30:00", "not_sent", "missed")]


def test_the_process_can_go_down_more_than_once() -> None:
    """And the model goes on with its script where it was."""
    report = run(
        {"at": "+1h30m", "replies": ["One.", "Two."]},
        {"at": "+2h", "down": "1h"},
        {"at": "+3h30m", "say": "Hello"},
        {"at": "+4h", "down": "1h"},
        {"at": "+5h30m", "say": "Hello again"},
        agents=[{"id": "coach", "autonomy": {"enabled": False}}],
    )
    assert [entry.what for entry in report.of(EntryKind.REPLY)] == [
        "What is your goal?",
        "One.",
        "Two.",
    ]
    assert len(report.of(EntryKind.OUTAGE)) == 2


def test_the_model_says_what_it_is_given_and_then_speaks_for_itself() -> None:
    """Scripted lines are for follow-ups too, in the order in which the model is asked."""
    report = run(
        {"at": "+30m", "replies": ["And when?"]},
        {"at": "+90m", "say": "In the autumn."},
        agents=once(),
    )
    spoken = [e.what for e in report.of(EntryKind.REPLY, EntryKind.FOLLOW_UP)]
    assert spoken[:2] == ["What is your goal?", "And when?"]
    assert spoken[2] not in ("", *spoken[:2])


def test_what_names_an_agent_is_about_that_one() -> None:
    """Words go to the named one, and a wish does not touch the others."""
    quiet = [once()[0] | {"id": name} for name in ("coach", "tutor")]
    report = run(
        {"at": "+0s", "agent": "tutor", "replies": ["Which language?"]},
        {"at": "+5m", "agent": "tutor", "say": "Teach me."},
        {"at": "+30m", "agent": "tutor", "mute": True},
        agents=quiet,
    )
    assert told(report) == [SENT, ("01 10:05:00", "not_sent", "muted")]
    assert [e.agent for e in report.of(EntryKind.USER_MESSAGE)] == ["coach", "tutor"]
    assert [e.agent for e in report.not_sent] == ["tutor"]


def test_the_daily_cap_counts_all_agents() -> None:
    """The second agent waits for the next day, and until that day's quiet hours are over."""
    agents = [
        {"id": name, "autonomy": {"policy": {"max_per_day": 1, "quiet_hours": "22:00 to 07:00"}}}
        for name in ("coach", "tutor")
    ]
    report = run(
        {"at": "+0s", "agent": "tutor", "replies": ["Which language?"]},
        {"at": "+30m", "agent": "tutor", "say": "Teach me."},
        agents=agents,
    )
    assert told(report)[:2] == [SENT, ("01 10:30:00", "postponed", "daily_cap")]
    [first, *_] = report.of(EntryKind.POSTPONED)
    assert (first.agent, first.until) == ("tutor", report.start + timedelta(hours=22))
    assert "All 1 of the day are sent" in first.why
    assert "Quiet hours are" in first.why


def test_what_is_held_out_is_told() -> None:
    """As not sent, by no gate: all of them were open."""
    report = run(agents=[{"id": "coach", "autonomy": {"holdout": 1.0}}])
    assert told(report) == [("01 10:00:00", "not_sent", "held_out")]
    assert {v.outcome.value for v in report.not_sent[0].verdicts} == {"allow"}


def test_what_is_still_planned_at_the_end_is_told() -> None:
    """With its time, which lies behind the end."""
    report = run(**{"for": "30m"})
    [pending] = report.of(EntryKind.PENDING)
    assert (pending.at, pending.until) == (report.end, report.start + timedelta(hours=1))
    assert pending.trigger == "question_unanswered"


def test_events_at_the_very_end_still_happen() -> None:
    """The end belongs to the story."""
    report = run({"at": "+1 day", "say": "Here I am."}, agents=once())
    assert [e.what for e in report.of(EntryKind.USER_MESSAGE)][-1] == "Here I am."
    assert report.of(EntryKind.REPLY)[-1].at == report.end


def answering(share: float = 1, **more: Any) -> dict[str, Any]:
    return {"id": "mia", "replies": {"share": share, "after": "2h", "say": ["Yes."], **more}}


def test_the_user_answers_follow_ups_after_a_while() -> None:
    """All of them at a share of one, with the words given in turn, and none at a share of zero."""
    report = run(user=answering(say=["First.", "Second."]), agents=once(), **{"for": "7h"})
    answers = [e for e in report.of(EntryKind.USER_MESSAGE) if e.why]
    assert [(f"{e.at:%H:%M}", e.what) for e in answers] == [
        ("12:00", "First."),
        ("15:00", "Second."),
    ]
    assert answers[0].why == "answers the follow-up of 2027-03-01 10:00"
    assert report.answered == len(answers)
    nothing = run(user=answering(0), **{"for": "7h"})
    assert [e.what for e in nothing.of(EntryKind.USER_MESSAGE)] == ["I want to run."]
    assert nothing.answered == 0


def test_a_user_who_wrote_meanwhile_does_not_answer_again() -> None:
    """What the scenario says is the answer then, even at the moment at which it comes."""
    for at in ("+2h", "+1h"):
        report = run({"at": at, "say": "Goodbye!"}, user=answering(), agents=once())
        assert [e.what for e in report.of(EntryKind.USER_MESSAGE)] == ["I want to run.", "Goodbye!"]
        assert told(report) == [SENT]


def test_an_answer_that_falls_into_an_outage_comes_when_it_is_over() -> None:
    """Nobody can write to a process that is not there."""
    report = run({"at": "+2h", "down": "4h"}, user=answering(), agents=once(), **{"for": "7h"})
    assert [f"{e.at:%H:%M}" for e in report.of(EntryKind.USER_MESSAGE)] == ["09:00", "15:00"]


def test_the_seed_decides_which_follow_ups_are_answered() -> None:
    """Over many seeds about the share of first follow-ups, and not always the same ones."""
    answered = []
    for seed in range(20):
        report = run(user=answering(0.5), agents=once(), seed=seed, **{"for": "3h30m"})
        answered.append(report.answered)
    assert set(answered) == {0, 1}
    assert 4 <= sum(answered) <= 16


# Three agents whose follow-ups are due at the same moments, so that any race would show.
CROWD: dict[str, Any] = {
    "start": "2027-03-22 21:30",
    "for": "5 days",
    "seed": 3,
    "user": {"quiet_hours": "22:00 to 07:30", "replies": {"share": 0.4, "after": "2h"}},
    "agents": [
        {
            "id": name,
            "autonomy": {
                "holdout": 0.4,
                "policy": {"cooldown": "0s", "max_per_day": 2},
                "prompts": {
                    trigger: [{"name": "a", "text": "Go on."}, {"name": "b", "text": "Say more."}]
                    for trigger in TRIGGER_PROMPTS
                },
            },
        }
        for name in ("coach", "tutor", "guide")
    ],
    "events": [
        {"at": "+0s", "agent": name, "say": "Help me with my plan."}
        for name in ("coach", "tutor", "guide")
    ],
}


def test_the_same_scenario_gives_the_same_report() -> None:
    """To the last word and variant, also where several agents are due at one moment."""
    scenario = read_scenario(CROWD)
    reports = {json.dumps(simulate(scenario).as_json()) for _ in range(5)}
    assert len(reports) == 1


def test_a_year_is_simulated() -> None:
    """A follow-up policy can be looked at over seasons: nothing is left out at its far end."""
    report = run(
        {"at": "+360 days", "replies": ["And now?"]},
        {"at": "+360 days", "say": "I did it."},
        user={"time_zone": "Europe/Berlin"},
        agents=once(),
        **{"for": "365 days"},
    )
    assert [f"{e.at:%m-%d %H:%M %z}" for e in report.follow_ups] == [
        "03-01 10:00 +0100",
        "02-24 10:00 +0100",
    ]
    assert report.longest_silence.span == timedelta(days=360) - timedelta(hours=1)


OWN_PROMPT = "Ask about the zebra called Archibald."


def test_no_triggers_words_are_in_the_report() -> None:
    """Neither the fixed prompts nor an owner's, nor does the scripted model repeat those."""
    prompts = dict.fromkeys(TRIGGER_PROMPTS, OWN_PROMPT)
    agents = [{"id": "coach", "autonomy": {"prompts": prompts}}, {"id": "tutor"}]
    report = run(
        {"at": "+0s", "agent": "tutor", "say": "Teach me."}, agents=agents, **{"for": "1 week"}
    )
    assert {e.agent for e in report.follow_ups} == {"coach", "tutor"}
    text = json.dumps(report.as_json()).lower()
    for words in ("zebra", "archibald", *map(str.lower, TRIGGER_PROMPTS.values())):
        assert words not in text


def test_silence_costs_no_model_call() -> None:
    """Calls are counted, those of follow-ups too; what a gate stops is never asked for."""
    assert run(user={"mute": True}).usage.model_calls == 1
    usage = run(agents=once()).usage
    assert usage.model_calls == 2
    assert usage.tokens_read > usage.tokens_written > 0


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[bytes]]]:
    """A web server, and what it was sent."""
    got: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_simulation_reaches_nobody(receiver: tuple[str, list[bytes]]) -> None:
    """An agent's webhook, copied from where it really runs, is not called."""
    url, got = receiver
    webhook = {"url": url, "secret": "0123456789abcdef", "all_replies": True}
    report = run(agents=[{**once()[0], "webhook": webhook}])
    assert told(report) == [SENT]
    assert got == []


def test_the_database_is_kept_if_a_folder_is_given(tmp_path: Path) -> None:
    """The journal and nothing else; and never one that is in use, whose timers would be played
    with.
    """
    folder = tmp_path / "kept"
    scenario = read_scenario({"start": "2027-03-01 09:00", "for": "1 day", "events": ASKED})
    simulate(scenario, folder)
    assert [path.name for path in folder.iterdir()] == [JOURNAL_FILE]
    kept = (folder / JOURNAL_FILE).read_bytes()
    with pytest.raises(UsageError, match="holds a journal already"):
        simulate(scenario, folder)
    assert (folder / JOURNAL_FILE).read_bytes() == kept


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file is in its place."""
    (tmp_path / "taken").touch()
    scenario = read_scenario({"start": "2027-03-01 09:00", "for": "1 day"})
    with pytest.raises(UsageError, match="taken' cannot be made: File exists"):
        simulate(scenario, tmp_path / "taken")


@pytest.mark.anyio
async def test_inside_of_an_event_loop_it_says_what_to_do() -> None:
    """And that works."""
    scenario = read_scenario({"start": "2027-03-01 09:00", "for": "1 day", "events": ASKED})
    with pytest.raises(UsageError, match=r"asyncio\.to_thread"):
        simulate(scenario)
    assert (await asyncio.to_thread(simulate, scenario)).follow_ups


def test_a_graph_of_ones_own_can_be_simulated() -> None:
    """Its policy is tried on its own words; a failure of it is told as one."""

    def speak(state: MessagesState) -> dict[str, Any]:
        words = [m.text for m in state["messages"]]
        if words[-1] == "Fail!":
            raise ValueError("no such thing")
        return {"messages": [AIMessage(f"Is {len(words)} right?")]}

    graph = StateGraph(MessagesState)
    graph.add_node("speak", speak)
    graph.add_edge(START, "speak")
    values = {
        "start": "2027-03-01 09:00",
        "for": "1 day",
        "agents": [{"graph": graph, **once()[0]}],
        "events": [{"at": "+0s", "say": "Hello"}, {"at": "+12h", "say": "Fail!"}],
    }
    report = simulate(read_scenario(values))
    assert [e.what for e in report.of(EntryKind.REPLY, EntryKind.FOLLOW_UP)] == [
        "Is 1 right?",
        "Is 3 right?",
    ]
    [failed] = report.of(EntryKind.FAILED)
    assert f"{failed.at:%H:%M}" == "21:00"
    assert failed.why


def entry(kind: EntryKind, at: datetime, **more: Any) -> TimelineEntry:
    return TimelineEntry(at=at, kind=kind, who="x", what="y", **more)


def test_a_report_adds_up() -> None:
    """Counts by trigger, by gate, by reason and by the user's day; answers by agent."""
    day = datetime(2027, 3, 1, 23, tzinfo=UTC)
    report = SimulationReport(
        "",
        0,
        "mia",
        day,
        day + timedelta(hours=9),
        (
            entry(EntryKind.USER_MESSAGE, day, agent="a"),
            entry(EntryKind.FOLLOW_UP, day, agent="a", trigger="check_in"),
            entry(EntryKind.FOLLOW_UP, day, agent="a", trigger="check_in"),
            entry(EntryKind.USER_MESSAGE, day, agent="b"),
            entry(EntryKind.USER_MESSAGE, day + timedelta(hours=2), agent="a"),
            entry(EntryKind.POSTPONED, day, agent="a", gate="typing"),
            entry(EntryKind.NOT_SENT, day, agent="a", gate="muted"),
            entry(EntryKind.NOT_PLANNED, day, agent="a", why="Enough."),
        ),
        run(**{"for": "1m"}).usage,
    )
    totals = report.as_json()["totals"]
    assert totals["user_messages"] == 3
    assert (totals["sent"], totals["sent_by_trigger"]) == (2, {"check_in": 2})
    assert (totals["sent_at_night"], totals["share_at_night"]) == (2, 1.0)
    assert totals["answered"] == 1
    assert totals["postponed_by_gate"] == {"typing": 1}
    assert totals["not_sent_by_gate"] == {"muted": 1}
    assert totals["not_planned_by_reason"] == {"Enough.": 1}
    assert totals["by_day"] == {
        "2027-03-01": {"user_message": 2, "reply": 0, "follow_up": 2},
        "2027-03-02": {"user_message": 1, "reply": 0, "follow_up": 0},
    }
    assert totals["longest_silence"]["seconds"] == 7 * 3600
    assert totals["longest_silence"]["since"] == "2027-03-02T01:00:00Z"


def test_follow_ups_in_the_users_night_are_counted() -> None:
    """From 22:00 until just before 08:00, on the clock of the user and not of the server."""
    zone = ZoneInfo("Asia/Tokyo")
    times = ("21:59", "22:00", "03:00", "07:59", "08:00")
    sent = [datetime.fromisoformat(f"2027-03-01 {each}").replace(tzinfo=zone) for each in times]
    entries = tuple(entry(EntryKind.FOLLOW_UP, at, trigger="check_in") for at in sent)
    report = SimulationReport("", 0, "mia", sent[0], sent[-1], entries, Usage())
    assert (report.sent_at_night, report.share_at_night) == (3, 0.6)
    silent = SimulationReport("", 0, "mia", sent[0], sent[-1], (), Usage())
    assert (silent.sent_at_night, silent.share_at_night) == (0, 0.0)


def test_a_silence_over_a_clock_change_is_as_long_as_it_was() -> None:
    """Berlin's clock jumps an hour; the user waited an hour less than it shows."""
    report = run(
        user={"time_zone": "Europe/Berlin", "mute": True},
        **{"start": "2027-03-27 20:00", "for": None, "end": "2027-03-28 20:00"},
    )
    assert report.longest_silence.span == timedelta(hours=23)


@pytest.mark.anyio
async def test_a_virtual_clock_says_what_it_will_wake_for() -> None:
    """Nothing at first, and then the earliest moment that somebody waits for."""
    clock = VirtualClock(datetime(2027, 3, 1, tzinfo=UTC))
    assert clock.next_at is None
    hour = timedelta(hours=1)

    async def sleep(span: timedelta) -> None:
        with clock.working():
            await clock.wait(clock.now() + span, asyncio.Event())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleep(2 * hour))
        tasks.create_task(sleep(hour))
        await asyncio.sleep(0)
        assert clock.next_at == clock.now() + hour
        await clock.advance(hour)
        assert clock.next_at == clock.now() + hour
        await clock.advance(hour)
    assert clock.next_at is None


def test_reminders_and_requests_are_part_of_a_story() -> None:
    """They come in the simulation as they would, a reminder by its rule."""
    agent = {"id": "coach", "autonomy": {"decider": "none", "policy": {"cooldown": 0}}}
    daily = {"text": "Stretch.", "every": "FREQ=DAILY;BYHOUR=9;BYMINUTE=0"}
    events = [
        {"at": "+1m", "remind": daily},
        {"at": "+2h", "news": "race.open"},
        {"at": "+4h", "follow_up": "Ask me about my shoes."},
    ]
    values = {"start": "2027-03-01T10:00:00+00:00", "for": "2 days"}
    report = simulate(read_scenario({**values, "agents": [agent], "events": events}))
    wrote = [(entry.at.day, entry.at.hour, entry.trigger) for entry in report.follow_ups]
    assert wrote == [(1, 12, "event"), (1, 14, "check_in"), (2, 9, "reminder"), (3, 9, "reminder")]
