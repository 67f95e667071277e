"""Gates: a due follow-up is sent, put off or refused, and the record says why."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.autonomy import gates
from segue.core.autonomy.gates import (
    FOR_CONTINUATIONS,
    FOR_EVENTS,
    FOR_FOLLOW_UPS,
    FOR_REMINDERS,
    Gate,
    GateDecision,
    GateOutcome,
    PolicyGates,
)
from segue.core.autonomy.local_time import LAST_MOMENT, QuietHours, local_day
from segue.core.autonomy.policy import Facts, Policy, next_delay
from segue.errors import UsageError

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NIGHT = QuietHours(time(22), time(8))
BERLIN = ZoneInfo("Europe/Berlin")

FACTS = Facts(checked_at=NOON, due_at=NOON, armed_epoch=4, thread_epoch=4, zone="UTC")
POLICY = Policy(quiet_hours=NIGHT, cooldown=HOUR, typing_hold=MINUTE, max_per_day=5)


def check(policy: Policy = POLICY, **facts: Any) -> GateDecision:
    return PolicyGates(policy, frozenset(Gate)).check(replace(FACTS, **facts))


def outcomes(decision: GateDecision) -> dict[Gate, GateOutcome]:
    return {verdict.gate: verdict.outcome for verdict in decision.verdicts}


def reason_of(gate: Gate, decision: GateDecision) -> str:
    [reason] = [verdict.reason for verdict in decision.verdicts if verdict.gate is gate]
    return reason


# What closes each gate and no other, what then happens, and what the journal calls it.
CLOSED: dict[Gate, tuple[dict[str, Any], datetime | None, str]] = {
    Gate.ENABLED: ({"policy": replace(POLICY, enabled=False)}, None, "suppressed"),
    Gate.OPTED_OUT: ({"opted_out": True}, None, "suppressed"),
    Gate.MUTED: ({"muted": True}, None, "suppressed"),
    Gate.SNOOZED: ({"snoozed_until": NOON + HOUR}, NOON + HOUR, "postponed"),
    Gate.SUPERSEDED: ({"thread_epoch": 5}, None, "cancelled"),
    Gate.STALE: ({"expires_at": NOON}, None, "expired"),
    Gate.MISSED: ({"due_at": NOON - HOUR, "missed": "skip"}, None, "missed"),
    Gate.CONSECUTIVE_CAP: ({"consecutive": 3}, None, "suppressed"),
    Gate.DAILY_CAP: (
        {"policy": replace(POLICY, quiet_hours=None), "sent_today": 5},
        datetime(2026, 6, 16, tzinfo=UTC),
        "postponed",
    ),
    Gate.COOLDOWN: ({"last_follow_up_at": NOON - MINUTE}, NOON + 59 * MINUTE, "postponed"),
    Gate.TYPING: ({"typing_at": NOON}, NOON + MINUTE, "postponed"),
    Gate.TALKING: ({"talked_at": NOON}, NOON + 2 * MINUTE, "postponed"),
    Gate.QUIET_HOURS: (
        {"checked_at": NOON + 12 * HOUR, "due_at": NOON + 12 * HOUR},
        NOON + 20 * HOUR,
        "postponed",
    ),
}


def test_a_due_follow_up_is_sent_when_nothing_speaks_against_it() -> None:
    """Every gate is open, says so, and the timer fires."""
    decision = check()
    assert (decision.outcome, decision.until, decision.timer_state) == (
        GateOutcome.ALLOW,
        None,
        "fired",
    )
    assert set(outcomes(decision).values()) == {GateOutcome.ALLOW}
    assert (decision.decisive, decision.reason) == (None, "All gates are open.")


@pytest.mark.parametrize("gate", Gate)
def test_each_gate_can_close(gate: Gate) -> None:
    """One reason not to write is enough, and the record names it alone."""
    facts, until, state = CLOSED[gate]
    decision = check(**facts)
    assert decision.outcome is (GateOutcome.POSTPONE if until else GateOutcome.SUPPRESS)
    assert (decision.until, decision.timer_state) == (until, state)
    assert [g for g, outcome in outcomes(decision).items() if outcome is not GateOutcome.ALLOW] == [
        gate
    ]
    assert decision.decisive is not None
    assert (decision.decisive.gate, decision.decisive.reason) == (gate, decision.reason)


@pytest.mark.parametrize("gate", Gate)
def test_no_gate_stands_in_for_another(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this gate the user would get the very message that it holds back."""
    others = {g: ask for g, ask in gates._GATES.items() if g is not gate}
    monkeypatch.setattr(gates, "_GATES", MappingProxyType(others))
    assert check(**CLOSED[gate][0]).outcome is GateOutcome.ALLOW


@pytest.mark.parametrize("gate", [gate for gate in Gate if gate is not Gate.ENABLED])
def test_a_continuation_is_refused_only_by_who_wants_to_hear_nothing(gate: Gate) -> None:
    """It is work that the user asked for; no hour, cap or later message stands in its way."""
    facts = {name: fact for name, fact in CLOSED[gate][0].items() if name != "policy"}
    outcome = PolicyGates(POLICY, FOR_CONTINUATIONS).check(replace(FACTS, **facts)).outcome
    unwanted = gate in (Gate.OPTED_OUT, Gate.MUTED)
    assert (outcome is GateOutcome.SUPPRESS) is unwanted


@pytest.mark.parametrize("gate", [gate for gate in Gate if gate is not Gate.ENABLED])
def test_a_reminder_comes_when_the_user_asked_for_it(gate: Gate) -> None:
    """Only a user who wants nothing any more, or its own age, keeps it back."""
    facts = {name: fact for name, fact in CLOSED[gate][0].items() if name != "policy"}
    outcome = PolicyGates(POLICY, FOR_REMINDERS).check(replace(FACTS, **facts)).outcome
    refused = {Gate.OPTED_OUT, Gate.MUTED, Gate.STALE, Gate.MISSED}
    assert (outcome is not GateOutcome.ALLOW) is (gate in refused)


def test_news_waits_until_the_talk_rests_and_a_reply_does_not_end_it() -> None:
    """A follow-up ends with the user's next message; an event does not."""
    wrote = replace(FACTS, thread_epoch=5, talked_at=NOON)
    told = PolicyGates(POLICY, FOR_EVENTS).check(wrote)
    assert (told.outcome, told.until) == (GateOutcome.POSTPONE, NOON + 2 * MINUTE)
    follow_up = PolicyGates(POLICY, FOR_FOLLOW_UPS).check(wrote)
    assert (follow_up.outcome, follow_up.timer_state) == (GateOutcome.SUPPRESS, "cancelled")


def test_all_gates_are_recorded_whatever_the_first_says() -> None:
    """A user who asks why gets every reason at once, in one order."""
    decision = check(
        replace(POLICY, enabled=False),
        checked_at=NOON + 12 * HOUR,
        opted_out=True,
        muted=True,
        snoozed_until=NOON + 20 * HOUR,
        thread_epoch=5,
        expires_at=NOON,
        missed="skip",
        consecutive=3,
        sent_today=5,
        last_follow_up_at=NOON + 12 * HOUR,
        typing_at=NOON + 12 * HOUR,
        talked_at=NOON + 12 * HOUR,
    )
    assert [verdict.gate for verdict in decision.verdicts] == list(Gate)
    assert GateOutcome.ALLOW not in outcomes(decision).values()


@pytest.mark.parametrize("gate", Gate)
def test_reasons_are_sentences(gate: Gate) -> None:
    """What a person reads in the record is one plain sentence per gate."""
    decision = check(**CLOSED[gate][0])
    for reason in (verdict.reason for verdict in decision.verdicts):
        assert reason[0].isupper() or reason[0].isdigit()
        assert reason.endswith(".")
        assert "\n" not in reason


def test_the_first_refusal_is_the_reason() -> None:
    """Of several refusals the timer's row shows the first in the order of the gates."""
    decision = check(thread_epoch=5, expires_at=NOON, consecutive=9)
    assert decision.timer_state == "cancelled"
    assert "epoch" in decision.reason


def test_a_refusal_beats_a_wait() -> None:
    """A muted thread is not tried again when the snooze is over."""
    decision = check(muted=True, snoozed_until=NOON + HOUR)
    assert (decision.outcome, decision.until) == (GateOutcome.SUPPRESS, None)
    assert outcomes(decision)[Gate.SNOOZED] is GateOutcome.POSTPONE


def test_the_longest_wait_counts() -> None:
    """The follow-up comes when the last of its obstacles is gone."""
    decision = check(typing_at=NOON, last_follow_up_at=NOON, snoozed_until=NOON + 10 * MINUTE)
    assert decision.until == NOON + HOUR
    assert decision.decisive is not None
    assert decision.decisive.gate is Gate.COOLDOWN


def test_a_snooze_that_ends_at_night_lasts_until_morning() -> None:
    """The end of one wait is checked like the present, and the record shows both gates."""
    decision = check(snoozed_until=NOON + 11 * HOUR)
    assert decision.until == NOON + 20 * HOUR
    assert outcomes(decision)[Gate.QUIET_HOURS] is GateOutcome.POSTPONE
    assert outcomes(decision)[Gate.SNOOZED] is GateOutcome.POSTPONE
    assert "2026-06-15 23:00" in decision.reason


def test_what_is_over_the_daily_cap_waits_for_the_next_morning() -> None:
    """The user's next day begins at midnight, but nobody is written to before eight."""
    decision = check(sent_today=5)
    assert decision.until == NOON + 20 * HOUR
    assert outcomes(decision)[Gate.DAILY_CAP] is GateOutcome.POSTPONE
    assert outcomes(decision)[Gate.QUIET_HOURS] is GateOutcome.POSTPONE


def test_the_daily_cap_goes_by_the_users_day() -> None:
    """At ten in the evening in London the next day has begun in Auckland, not in Lima."""
    policy = replace(POLICY, quiet_hours=None)
    late = NOON + 10 * HOUR
    lima = check(policy, checked_at=late, due_at=late, sent_today=5, zone="America/Lima")
    assert lima.until == datetime(2026, 6, 16, 5, tzinfo=UTC)
    auckland = check(policy, checked_at=late, due_at=late, sent_today=5, zone="Pacific/Auckland")
    assert auckland.until == datetime(2026, 6, 16, 12, tzinfo=UTC)


def test_a_cap_of_none_a_day_refuses() -> None:
    """Where no follow-up is allowed on any day, none waits for a day that never comes."""
    decision = check(replace(POLICY, max_per_day=0))
    assert (decision.outcome, decision.timer_state) == (GateOutcome.SUPPRESS, "suppressed")


def test_a_follow_up_that_would_wait_past_its_expiry_is_expired() -> None:
    """Nobody gets "is the table for tonight all right?" the next morning."""
    decision = check(snoozed_until=NOON + 11 * HOUR, expires_at=NOON + 12 * HOUR)
    assert (decision.outcome, decision.until) == (GateOutcome.SUPPRESS, None)
    assert decision.timer_state == "expired"
    assert "cannot be sent before 2026-06-16 08:00" in decision.reason


def test_a_follow_up_is_sent_until_just_before_its_expiry() -> None:
    """The expiry itself is too late, the moment before it is not."""
    assert check(expires_at=NOON + timedelta(microseconds=1)).outcome is GateOutcome.ALLOW
    assert check(expires_at=NOON).timer_state == "expired"


@pytest.mark.parametrize("epoch", [3, 5, 900])
def test_another_epoch_is_another_talk(epoch: int) -> None:
    """A follow-up of any other epoch is void, even after a backup brought an older one back."""
    assert check(thread_epoch=epoch).timer_state == "cancelled"


@pytest.mark.parametrize(
    ("missed", "late", "state"),
    [
        ("run", 90 * DAY, "fired"),
        ("skip", 5 * MINUTE, "fired"),
        ("skip", 5 * MINUTE + timedelta(seconds=1), "missed"),
        ("run_if_within:3600", HOUR, "fired"),
        ("run_if_within:3600", HOUR + timedelta(seconds=1), "missed"),
        ("run_if_within:0.5", timedelta(seconds=1), "missed"),
        ("run_if_within:0.5", -HOUR, "fired"),
        (f"run_if_within:{'9' * 400}", 90 * DAY, "fired"),
        ("skip", -HOUR, "fired"),
    ],
)
def test_a_timer_missed_while_down_follows_its_own_rule(
    missed: str, late: timedelta, state: str
) -> None:
    """After an outage each timer runs, runs if not too late, or is recorded as missed."""
    assert check(missed=missed, due_at=NOON - late).timer_state == state


def test_times_are_told_as_people_write_them() -> None:
    """Whatever the rule, in the words that settings take; however long it is."""
    late = check(missed="run_if_within:5400", due_at=NOON - timedelta(hours=2, seconds=5))
    assert reason_of(Gate.MISSED, late) == (
        "Found 2h 5s late, after it was missed; it may be 1h 30m late."
    )
    moment = check(missed="run", due_at=NOON - timedelta(milliseconds=2))
    assert "Found 0s late" in reason_of(Gate.MISSED, moment)
    assert check(missed=f"run_if_within:{'9' * 400}").timer_state == "fired"
    cooled = check(Policy(cooldown=timedelta(minutes=10)))
    assert reason_of(Gate.COOLDOWN, cooled) == "No follow-up was sent within 10m."


@pytest.mark.parametrize("missed", ["", "RUN", "run_if_within:", "run_if_within:-5", "within:5"])
def test_a_rule_that_cannot_be_read_never_speaks_late(missed: str) -> None:
    """In doubt the agent keeps quiet about what is over, and says that it was in doubt."""
    on_time, late = check(missed=missed), check(missed=missed, due_at=NOON - HOUR)
    assert (on_time.timer_state, late.timer_state) == ("fired", "missed")
    assert "cannot be read" in reason_of(Gate.MISSED, late)


def test_lateness_does_not_grow_while_a_timer_waits() -> None:
    """A timer found in time is not missed because it has to wait for the morning."""
    decision = check(missed="run_if_within:60", snoozed_until=NOON + 11 * HOUR)
    assert decision.timer_state == "postponed"


def test_the_last_allowed_follow_up_is_sent() -> None:
    """A cap of two means two: the second goes out, the third does not."""
    assert check(consecutive=1, sent_today=4).outcome is GateOutcome.ALLOW
    assert check(consecutive=2).outcome is GateOutcome.SUPPRESS


def test_waits_end_on_time() -> None:
    """At the end of a snooze, a cooldown or a typing hold the follow-up is free to go."""
    decision = check(snoozed_until=NOON, last_follow_up_at=NOON - HOUR, typing_at=NOON - MINUTE)
    assert decision.outcome is GateOutcome.ALLOW


def test_another_machines_fast_clock_makes_no_wait_longer() -> None:
    """A time ahead of ours counts as now, so that a wrong clock cannot silence an agent."""
    decision = check(typing_at=NOON + 300 * DAY, last_follow_up_at=NOON + 300 * DAY)
    assert decision.until == NOON + HOUR


@pytest.mark.parametrize("zone", ["Mars/Base", "", None, "../../etc/passwd", "x" * 9_999])
def test_an_unknown_zone_is_taken_for_utc_and_named(zone: str | None) -> None:
    """A wrong setting neither stops the agent nor stays unseen."""
    night = NOON + 11 * HOUR
    decision = check(checked_at=night, due_at=night, zone=zone)
    assert decision.until == NOON + 20 * HOUR
    told = reason_of(Gate.QUIET_HOURS, decision)
    assert "in UTC, since" in told
    assert ("no time zone is known" in told) if not zone else (zone[:9] in told)
    assert len(told) < 250
    assert "in UTC, since" in reason_of(Gate.DAILY_CAP, decision)


def test_a_known_zone_is_named() -> None:
    """The record shows the user's own time."""
    decision = check(checked_at=NOON + 9 * HOUR, due_at=NOON + 9 * HOUR, zone="Europe/Berlin")
    assert "2026-06-15 23:00 in Europe/Berlin is quiet" in decision.reason
    assert decision.until == datetime(2026, 6, 16, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    "name",
    [
        "checked_at",
        "due_at",
        "snoozed_until",
        "expires_at",
        "last_follow_up_at",
        "typing_at",
    ],
)
def test_a_moment_without_a_zone_is_refused(name: str) -> None:
    """A time that could be anyone's is the caller's mistake, not a reason to write at night."""
    naive = datetime(2026, 6, 15, 12)  # noqa: DTZ001 - what is refused
    with pytest.raises(UsageError, match="no time zone"):
        replace(FACTS, **{name: naive})  # type: ignore[arg-type]  # each is a moment


def test_moments_are_compared_as_moments() -> None:
    """In the hour that comes twice, a snooze until the second half past two is not over at the
    first quarter to three.
    """
    first = datetime(2026, 10, 25, 2, 45, tzinfo=BERLIN)
    second = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)
    decision = check(
        replace(POLICY, quiet_hours=None), checked_at=first, due_at=first, snoozed_until=second
    )
    assert decision.until == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


def test_a_snooze_for_ever_has_an_answer() -> None:
    """The last date there is puts a follow-up off for good and breaks nothing."""
    decision = check(snoozed_until=datetime.max.replace(tzinfo=UTC))
    assert decision.outcome is GateOutcome.POSTPONE
    assert decision.until is not None
    assert decision.until >= LAST_MOMENT


moments = st.one_of(
    st.integers(-5_000, 5_000).map(lambda n: NOON + n * MINUTE),
    st.sampled_from([datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC), LAST_MOMENT]),
)
perhaps = st.one_of(st.none(), moments)
zones = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "Pacific/Apia", "nowhere", ""])
near = st.integers(-400_000, 400_000).map(lambda n: NOON + n * MINUTE)
facts_of_all_kinds = st.builds(
    Facts,
    checked_at=near,
    due_at=moments,
    armed_epoch=st.integers(3, 4),
    thread_epoch=st.integers(4, 5),
    zone=zones,
    opted_out=st.booleans(),
    muted=st.booleans(),
    snoozed_until=perhaps,
    expires_at=perhaps,
    missed=st.sampled_from(["run", "skip", "run_if_within:600", "what?"]),
    consecutive=st.integers(-1, 4),
    sent_today=st.integers(-1, 7),
    last_follow_up_at=perhaps,
    typing_at=perhaps,
)
durations = st.sampled_from([timedelta(), MINUTE, HOUR, 3 * DAY, timedelta.max])
times = st.times().map(lambda t: t.replace(second=0, microsecond=0))
hours = st.tuples(times, times).filter(lambda ends: ends[0] != ends[1])
policies = st.builds(
    Policy,
    enabled=st.sampled_from([True, True, True, False]),
    max_consecutive=st.integers(0, 4),
    max_per_day=st.integers(0, 6),
    cooldown=durations,
    quiet_hours=st.one_of(st.none(), hours.map(lambda ends: QuietHours(*ends))),
    typing_hold=durations,
    late_after=durations,
)


@given(policies, facts_of_all_kinds)
def test_no_facts_break_the_gates(policy: Policy, facts: Facts) -> None:
    """Whatever is known of a thread, there is one verdict of each gate and one that follows."""
    decision = PolicyGates(policy).check(facts)
    said = set(outcomes(decision).values())
    asked = [gate for gate in Gate if gate is not Gate.TALKING]
    assert [verdict.gate for verdict in decision.verdicts] == asked
    assert (GateOutcome.SUPPRESS in said) is (decision.outcome is GateOutcome.SUPPRESS)
    assert (said == {GateOutcome.ALLOW}) is (decision.outcome is GateOutcome.ALLOW)
    assert (decision.until is not None) is (decision.outcome is GateOutcome.POSTPONE)
    assert (decision.timer_state == "fired") is (decision.outcome is GateOutcome.ALLOW)


@given(policies, facts_of_all_kinds)
def test_a_postponed_follow_up_is_sent_at_its_new_time(policy: Policy, facts: Facts) -> None:
    """A wait ends at a time when all gates are open, unless something new happens before."""
    until = PolicyGates(policy).check(facts).until
    if until is None or until >= LAST_MOMENT:
        return
    assert until > facts.checked_at
    is_same_day = local_day(until, facts.clock) == local_day(facts.checked_at, facts.clock)
    then = replace(
        facts,
        checked_at=until,
        due_at=until,
        sent_today=facts.sent_today if is_same_day else 0,
        last_follow_up_at=facts.last_follow_up_at
        and min(facts.last_follow_up_at, facts.checked_at),
        typing_at=facts.typing_at and min(facts.typing_at, facts.checked_at),
    )
    assert PolicyGates(policy).check(then).outcome is GateOutcome.ALLOW


@given(policies, facts_of_all_kinds)
def test_nothing_is_sent_in_quiet_hours(policy: Policy, facts: Facts) -> None:
    """Neither now nor at the time to which it is put off does a follow-up reach a sleeper."""
    decision = PolicyGates(policy).check(facts)
    when = decision.until or facts.checked_at
    if decision.outcome is not GateOutcome.SUPPRESS and policy.quiet_hours and when < LAST_MOMENT:
        assert not policy.quiet_hours.is_quiet(when, facts.clock)


def test_each_ignored_follow_up_doubles_the_silence() -> None:
    """Who does not answer is asked less and less often."""
    delays = [next_delay(Policy(), HOUR, consecutive) for consecutive in range(4)]
    assert delays == [HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR]


def test_delays_stay_within_their_bounds() -> None:
    """No decider and no count makes the agent write at once or never."""
    policy = Policy(min_delay=MINUTE, max_delay=DAY)
    assert next_delay(policy, timedelta(), 0) == MINUTE
    assert next_delay(policy, -DAY, 3) == MINUTE
    assert next_delay(policy, HOUR, 30) == DAY
    assert next_delay(policy, timedelta.max, 10**9) == DAY
    assert next_delay(policy, HOUR, -5) == HOUR


def test_a_backoff_of_one_keeps_the_delay() -> None:
    """An owner may have every follow-up after the same silence."""
    assert next_delay(Policy(backoff=1), HOUR, 10**9) == HOUR
    assert next_delay(Policy(backoff=1e300), HOUR, 5) == Policy().max_delay


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_consecutive": -1},
        {"max_per_day": -1},
        {"cooldown": -HOUR},
        {"typing_hold": -HOUR},
        {"late_after": -HOUR},
        {"min_delay": -HOUR},
        {"backoff": 0.5},
        {"backoff": float("nan")},
        {"backoff": float("inf")},
        {"min_delay": DAY, "max_delay": HOUR},
    ],
    ids=str,
)
def test_a_policy_that_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    """A slip in a config is told at once and names the value."""
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Policy(**wrong)
