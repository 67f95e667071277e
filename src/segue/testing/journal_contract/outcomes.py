"""What became of follow-ups, counted from what is stored of them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.journal.journal import Journal
from segue.journal.records import Decision, NewTimer, TimerKind, TimerState, TurnLease
from segue.journal.stats import ArmCount, FollowUpOutcome, OutcomeCount, OutcomeQuery, SearchCount
from segue.testing.journal_contract.chat import HOUR, Chat

DAY = timedelta(days=1)
WEEK = timedelta(days=7)

REPLIED, IGNORED = FollowUpOutcome.REPLIED, FollowUpOutcome.IGNORED
HELD_OUT = FollowUpOutcome.HELD_OUT
PENDING, STOPPED = FollowUpOutcome.PENDING, FollowUpOutcome.STOPPED


def gates(chat: Chat, kind: str = "gates", outcome: str = "allow", **facts: Any) -> Decision:
    """What the gates said, as the runtime records it."""
    known = {"trigger": "check_in", "consecutive": 0, **facts}
    return chat.decision(kind=kind, outcome=outcome, reasons=("so",), facts=known)


async def fire(chat: Chat, variant: str = "warm", **facts: Any) -> TurnLease:
    """A follow-up with a variant's prompt that a worker has begun."""
    lease = await chat.claimed_timer()
    said = replace(gates(chat, variant=variant, **facts), timer_id=lease.timer.id)
    assert await chat.fire(lease, decisions=[said]) is not None
    return await chat.take_turn()


async def speak(chat: Chat, variant: str = "warm", **facts: Any) -> TurnLease:
    """A follow-up that the user sees to its end."""
    lease = await fire(chat, variant, **facts)
    await chat.show(lease)
    await chat.finish(lease, AIMessage("Still there?"))
    return lease


async def hold_out(chat: Chat, **facts: Any) -> None:
    await close(chat, TimerState.SUPPRESSED, outcome="allow", held_out=True, **facts)


async def close(chat: Chat, state: TimerState, **given: Any) -> None:
    """A follow-up that ends before an agent begins to write it."""
    lease = await chat.claimed_timer()
    said = replace(gates(chat, **given), timer_id=lease.timer.id)
    await chat.close(lease, state, "so", decisions=[said])


def query(chat: Chat, after: timedelta = timedelta(0), **given: Any) -> OutcomeQuery:
    """All follow-ups, as they are counted this long after now."""
    now = chat.now + after
    given = {"since": now - 400 * DAY, "until": now + 400 * DAY} | given
    return OutcomeQuery(now=now, **given)


async def outcomes(
    chat: Chat, after: timedelta = timedelta(0), **given: Any
) -> list[tuple[FollowUpOutcome, int]]:
    found = await chat.journal.stats.count_outcomes(query(chat, after, **given))
    return [(each.outcome, each.count) for each in found]


async def test_nothing_sent_is_nothing_counted(journal: Journal, chat: Chat) -> None:
    """Answers and continuations are not follow-ups; a deleted thread takes its numbers along."""
    await chat.continue_batch(await chat.exchange())
    await chat.reply()
    other = await chat.another("second")
    await speak(other)
    asked = query(chat, WEEK)
    assert await journal.stats.count_unmarked(asked) == 0
    await journal.threads.delete(other.thread_id)
    assert await journal.stats.count_outcomes(asked) == []
    assert await journal.stats.count_arms(asked) == []
    assert await journal.stats.count_searches(asked) == []
    assert await journal.stats.count_unmarked(asked) == 0


async def test_a_follow_up_that_is_answered_has_a_latency(journal: Journal, chat: Chat) -> None:
    """From when the user saw it to the first word back; of several, the median."""
    latencies = []
    for hours in (1, 2, 4, 23):
        await speak(chat)
        chat.now += hours * HOUR
        await chat.exchange()
        [found] = await journal.stats.count_outcomes(query(chat, 2 * DAY))
        assert found.latency is not None
        latencies.append(found.latency / HOUR)
    assert latencies == [1, 1.5, 2, 3]
    known = OutcomeCount("guide", "check_in", "warm", REPLIED, 4, latency=3 * HOUR)
    assert replace(found, is_over=known.is_over) == known


async def test_a_follow_up_is_pending_until_its_window_is_over(chat: Chat) -> None:
    """The window can be chosen, and an answer after it is none."""
    await speak(chat)
    assert await outcomes(chat, DAY) == [(PENDING, 1)]
    assert await outcomes(chat, DAY + timedelta(microseconds=1)) == [(IGNORED, 1)]
    assert await outcomes(chat, 2 * HOUR, window=HOUR) == [(IGNORED, 1)]
    chat.now += DAY + timedelta(seconds=1)
    await chat.exchange()
    assert await outcomes(chat) == [(IGNORED, 1)]
    assert await outcomes(chat, window=2 * DAY) == [(REPLIED, 1)]


async def test_the_last_follow_up_before_an_answer_gets_it(chat: Chat) -> None:
    """Those before it in the row were ignored, though all lie within the window."""
    for _ in range(3):
        await speak(chat)
        chat.now += HOUR
    await chat.exchange()
    assert await outcomes(chat) == [(IGNORED, 2), (REPLIED, 1)]


async def test_a_stop_is_no_success_of_a_follow_up(journal: Journal, chat: Chat) -> None:
    """Whatever the user writes after it; a wish to be written to later is an answer."""
    for wish in ("later", "stop"):
        await speak(chat)
        await chat.say(decisions=[chat.decision(kind="request", outcome=wish)])
        await chat.reply()
    await chat.exchange()
    found = await journal.stats.count_outcomes(query(chat, 2 * DAY))
    assert [(row.outcome, row.count, row.is_over) for row in found] == [
        *((REPLIED, 1, True), (STOPPED, 1, True))
    ]
    [arm] = await journal.stats.count_arms(query(chat, 2 * DAY))
    assert arm.wrote == 0.5


async def test_a_follow_up_that_nobody_saw_does_not_end_another(chat: Chat) -> None:
    """One that fails unseen between a follow-up and its answer takes nothing from it."""
    await speak(chat)
    failing = await fire(chat)
    await chat.fail(failing, "oops")
    await chat.exchange()
    assert await outcomes(chat) == [(FollowUpOutcome.FAILED, 1), (REPLIED, 1)]


async def test_the_answer_to_a_question_is_an_answer(journal: Journal, chat: Chat) -> None:
    """A user who answers the agent's question has replied, with a message or without."""
    lease = await fire(chat)
    await chat.show(lease)
    call = {"name": "book", "args": {}, "id": "call-1"}
    await chat.finish(lease, AIMessage("Shall I?", tool_calls=[call]), is_waiting=True)
    chat.now += HOUR
    await chat.answer(lease.turn.id, "Yes.")
    [found] = await journal.stats.count_outcomes(query(chat))
    assert (found.outcome, found.latency) == (REPLIED, HOUR)


async def test_what_is_being_written_is_pending(chat: Chat) -> None:
    """Also a day later: it may still be shown."""
    await fire(chat)
    assert await outcomes(chat, WEEK) == [(PENDING, 1)]


async def test_a_user_who_speaks_first_stops_it(chat: Chat) -> None:
    """As a plan, and while it is being written."""
    await chat.arm(HOUR)
    await chat.exchange()
    await fire(chat)
    await chat.say()
    assert await outcomes(chat, WEEK) == [(STOPPED, 1), (STOPPED, 1)]


async def test_of_one_that_is_replaced_only_the_newer_one_is_counted(chat: Chat) -> None:
    """A timer that was replaced has no outcome."""
    await chat.arm(HOUR)
    await speak(chat)
    assert await outcomes(chat, WEEK) == [(IGNORED, 1)]


async def test_one_that_failed_is_told_apart(chat: Chat) -> None:
    """Also if the user saw the beginning of it."""
    for is_shown in (False, True):
        lease = await fire(chat)
        if is_shown:
            await chat.show(lease)
        await chat.fail(lease, "oops")
    assert await outcomes(chat, WEEK) == [(FollowUpOutcome.FAILED, 2)]


async def test_a_gate_that_refused_is_named(journal: Journal, chat: Chat) -> None:
    """Whatever the timer's end is called; without a decision there is no gate to name."""
    for state in (TimerState.SUPPRESSED, TimerState.EXPIRED, TimerState.MISSED):
        await close(chat, state, outcome="suppress", gate="daily_cap")
    lease = await chat.claimed_timer()
    await chat.close(lease, TimerState.SUPPRESSED, "gone")
    refused = OutcomeCount("guide", "check_in", None, FollowUpOutcome.SUPPRESSED, 1)
    found = await journal.stats.count_outcomes(query(chat))
    found.sort(key=lambda each: each.count)
    assert found == [refused, replace(refused, count=3, gate="daily_cap")]


async def test_one_that_is_withdrawn_at_the_last_moment_is_told_apart(chat: Chat) -> None:
    """By a gate, which is named, or by the guard; with the variant, whose words were there."""
    for agent, kind, outcome, became in (
        ("guide", "gates_before_showing", "suppress", FollowUpOutcome.SUPPRESSED),
        ("clerk", "guard", "withheld", FollowUpOutcome.WITHHELD),
    ):
        one = await chat.another(agent, agent_id=agent)
        lease = await fire(one)
        gate = "muted" if outcome == "suppress" else None
        found = replace(gates(one, kind, outcome, gate=gate), turn_id=lease.turn.id)
        await one.withdraw(lease, "muted", decisions=[found])
        counted = await chat.journal.stats.count_outcomes(query(one, agent_id=agent))
        assert counted == [OutcomeCount(agent, "check_in", "warm", became, 1, gate=gate)]


async def test_one_that_is_put_off_is_counted_once(journal: Journal, chat: Chat) -> None:
    """When it ends; not each time that a gate lets it wait, as a timer or at the last moment."""
    lease = await fire(chat)
    later = NewTimer(chat.thread_id, chat.now + HOUR, "check_in")
    second = gates(chat, "gates_before_showing", "postpone", gate="typing")
    await chat.withdraw(
        lease, "typing", timers=[later], decisions=[replace(second, turn_id=lease.turn.id)]
    )
    chat.now += HOUR
    timer = await chat.take_timer()
    waits = replace(gates(chat, outcome="postpone"), timer_id=timer.timer.id)
    await chat.postpone(timer, chat.now + HOUR, "quiet", decisions=[waits])
    assert await outcomes(chat) == []
    assert await journal.stats.count_arms(query(chat, WEEK)) == []
    chat.now += HOUR
    last = await chat.take_timer()
    said = replace(gates(chat, outcome="suppress", gate="muted"), timer_id=last.timer.id)
    await chat.close(last, TimerState.SUPPRESSED, "so", decisions=[said])
    assert await outcomes(chat) == [(FollowUpOutcome.SUPPRESSED, 1)]


async def test_of_one_held_out_it_is_counted_whether_the_user_wrote(chat: Chat) -> None:
    """In the same window as for one that was sent."""
    stats = chat.journal.stats
    for name, writes_after, wrote in (("1", HOUR, 1.0), ("2", 2 * DAY, 0.0), ("3", None, 0.0)):
        one = await chat.another(name, agent_id=f"guide {name}")
        await hold_out(one)
        asked = query(one, WEEK, agent_id=f"guide {name}")
        if writes_after is not None:
            one.now += writes_after
            await one.exchange()
        held_out = OutcomeCount(f"guide {name}", "check_in", None, HELD_OUT, 1)
        assert await stats.count_outcomes(asked) == [held_out]
        arm = ArmCount(f"guide {name}", "check_in", None, 1, wrote)
        assert await stats.count_arms(asked) == [arm]


@pytest.mark.parametrize(("asked_after", "is_over"), [(3 * HOUR, False), (WEEK, True)], ids=str)
async def test_of_one_that_was_shown_it_is_told_whether_its_window_is_over(
    journal: Journal, chat: Chat, asked_after: timedelta, is_over: bool
) -> None:
    """A rate has to wait for the silent users, too."""
    await speak(chat)
    asked = query(chat, asked_after)
    chat.now += HOUR
    await chat.exchange()
    [found] = await journal.stats.count_outcomes(asked)
    assert (found.outcome, found.is_over) == (REPLIED, is_over)


async def test_agents_triggers_and_times_are_told_apart(journal: Journal, chat: Chat) -> None:
    """Each has its own count, and one can ask for one alone."""
    await speak(chat)
    await close(chat, TimerState.SUPPRESSED, outcome="suppress", gate="muted")
    other = await chat.another("lesson", agent_id="tutor")
    await speak(other, "brief")
    await other.arm(trigger_type="task_incomplete")
    await other.exchange()
    found = await journal.stats.count_outcomes(query(chat, WEEK))
    assert [(c.agent_id, c.trigger_type, c.variant) for c in found] == [
        ("guide", "check_in", "warm"),
        ("guide", "check_in", None),
        ("tutor", "check_in", "brief"),
        ("tutor", "task_incomplete", None),
    ]
    of_tutor = await journal.stats.count_outcomes(query(chat, WEEK, agent_id="tutor"))
    assert of_tutor == found[2:]
    of_task = await journal.stats.count_outcomes(query(chat, WEEK, trigger_type="task_incomplete"))
    assert of_task == found[3:]
    assert await journal.stats.count_outcomes(query(chat, until=chat.now)) == []
    later = chat.now + timedelta(microseconds=1)
    assert await journal.stats.count_outcomes(query(chat, since=later)) == []
    assert await journal.stats.count_outcomes(query(chat, since=chat.now, until=later)) != []


async def test_each_thread_counts_once_in_its_arm(journal: Journal, chat: Chat) -> None:
    """One who was followed up often says no more than one who was followed up once."""
    for answers in (True, True, False, False):
        await speak(chat)
        chat.now += HOUR
        if answers:
            await chat.exchange()
        chat.now += 2 * DAY
    quick = await chat.another("quick")
    await speak(quick)
    await quick.exchange()
    silent = await chat.another("silent")
    await hold_out(silent)
    await speak(await chat.another("short"), "brief")
    found = await journal.stats.count_arms(query(chat, WEEK))
    assert found == [
        ArmCount("guide", "check_in", "brief", 1, 0.0),
        ArmCount("guide", "check_in", "warm", 2, 1.5),
        ArmCount("guide", "check_in", None, 1, 0.0),
    ]


async def test_only_the_first_moment_in_a_row_is_compared(journal: Journal, chat: Chat) -> None:
    """A thread that is held out has no second one, so a second one is compared with nothing."""
    await speak(chat)
    await speak(chat, consecutive=1)
    await hold_out(chat, consecutive=2)
    chat.now += 2 * DAY
    await speak(chat)
    await chat.exchange()
    [arm] = await journal.stats.count_arms(query(chat, WEEK))
    assert (arm.variant, arm.wrote) == ("warm", 0.5)


@pytest.mark.parametrize("kind", [TimerKind.FOLLOW_UP, TimerKind.EVENT])
async def test_what_was_requested_is_compared_with_nothing(
    journal: Journal, chat: Chat, kind: TimerKind
) -> None:
    """It is never held out, also where the thread is."""
    await hold_out(chat)
    lease = await chat.claimed_timer(kind=kind, key="program:a")
    said = replace(gates(chat, variant="default"), timer_id=lease.timer.id)
    await chat.fired(lease, decisions=[said])
    turn = await chat.take_turn()
    await chat.show(turn)
    await chat.finish(turn, AIMessage("Still there?"))
    assert await journal.stats.count_arms(query(chat, WEEK)) == [
        ArmCount("guide", "check_in", None, 1, 0.0)
    ]


async def test_moments_are_compared_when_their_window_is_over(journal: Journal, chat: Chat) -> None:
    """Else those who write at once would count, and those who stay silent not yet."""
    await speak(chat)
    await chat.exchange()
    await hold_out(await chat.another("silent"))
    assert await journal.stats.count_arms(query(chat, DAY)) == []
    assert len(await journal.stats.count_arms(query(chat, DAY + HOUR))) == 2


async def test_whatever_became_of_a_moment_it_is_compared(journal: Journal, chat: Chat) -> None:
    """A user who wrote while the words were found would have written without them too."""
    await fire(chat)
    await chat.exchange()
    failing = await chat.another("failing")
    lease = await fire(failing)
    await chat.fail(lease, "oops")
    [found] = await journal.stats.count_arms(query(chat, WEEK))
    assert (found.threads, found.wrote) == (2, 1.0)


async def test_whose_words_a_search_used_is_counted(journal: Journal, chat: Chat) -> None:
    """By source, with those that failed."""
    for source, failed in (("conversation_summary", True), ("conversation_summary", False)):
        lease = await fire(chat)
        made = gates(chat, "memory_query", source, failed=failed)
        await chat.finish(
            lease, AIMessage("Still there?"), decisions=[replace(made, turn_id=lease.turn.id)]
        )
    assert await journal.stats.count_searches(query(chat)) == [
        SearchCount("conversation_summary", 2, 1)
    ]
    assert await journal.stats.count_searches(query(chat, trigger_type="task_incomplete")) == []


async def test_reminders_are_counted_apart(chat: Chat, journal: Journal) -> None:
    """Those that were shown, and those of them that came in plain words."""
    for n, outcome in enumerate((None, "sent_plainly")):
        turn = await chat.fired(
            await chat.claimed_timer(key=f"{n}", kind=TimerKind.REMINDER, trigger_type="reminder")
        )
        lease = await chat.take_turn()
        counts = await journal.stats.count_reminders(query(chat))
        assert (counts.sent, counts.plainly) == (n, 0)
        await chat.show(lease)
        said = [replace(gates(chat, "reminder", outcome), turn_id=turn.id)] if outcome else []
        await chat.finish(lease, AIMessage("Your mum!"), decisions=said)
    counts = await journal.stats.count_reminders(query(chat))
    assert (counts.sent, counts.plainly) == (2, 1)
    for asked in (query(chat, agent_id="other"), query(chat, trigger_type="check_in")):
        assert (await journal.stats.count_reminders(asked)).sent == 0
