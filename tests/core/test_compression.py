"""Which whole batches leave a window, by each strategy, and how much a batch matters."""

import json
from datetime import datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from segue import Batch, build_context, group_batches, is_synthetic, stamp, synthetic_message
from segue.core.compression import (
    CompressionTarget,
    Strategy,
    choose_batches,
    importances,
    write_transcript,
)
from segue.core.memory import text_of
from segue.core.snowflake import time_of
from segue.runtime.ids import SnowflakeGenerator
from segue.testing.providers import request_problems
from tests.histories import (
    broken_threads,
    calling,
    exchange,
    positions,
    result,
    threads,
    ticking_generator,
    tool_exchange,
)

OLDEST_FIRST = (Strategy.TRUNCATE, Strategy.SUMMARISE)
histories = st.one_of(threads(max_batches=6), broken_threads())
targets = st.builds(
    CompressionTarget,
    strategy=st.sampled_from(Strategy),
    max_tokens=st.integers(-5, 200),
    keep=st.integers(1, 3),
)


def later(messages: list[BaseMessage]) -> datetime:
    return time_of(max(positions(messages))) + timedelta(minutes=1)


def batches_of(*cycles: list[BaseMessage]) -> list[Batch]:
    generator = ticking_generator()
    return [Batch(positions(c)[0], c) for c in (stamp(cycle, generator) for cycle in cycles)]


def left(batches: list[Batch], target: CompressionTarget, current: int | None = None) -> list[int]:
    """The places of the batches that leave, among those given."""
    ids = [batch.id for batch in batches]
    now = max(batch.last_activity_at for batch in batches)
    chosen = choose_batches(batches, target, now=now, current=current)
    return [ids.index(batch.id) for batch in chosen.leaving]


def users_words(retold: str) -> list[str]:
    lines = json.loads(retold or "[]")
    return [line["text"] for line in lines if line["from"] == "user"]


# Every history.


@given(histories, targets, st.data())
def test_compression_never_splits_a_batch(
    messages: list[BaseMessage], target: CompressionTarget, data: st.DataObject
) -> None:
    """At any point of any history: what leaves are whole batches, what remains is untouched."""
    seen = messages[: data.draw(st.integers(1, len(messages)))]
    batches = group_batches(seen)
    choice = choose_batches(batches, target, now=later(seen))
    gone = {batch.id for batch in choice.leaving}
    assert all(batch in batches for batch in choice.leaving)
    rest = [m for m in seen if m.additional_kwargs["batch"] not in gone]
    assert group_batches(rest) == [batch for batch in batches if batch.id not in gone]
    assert [b for b in batches if b.is_complete] == sorted(
        [*choice.leaving, *choice.staying], key=lambda b: b.id
    )


@given(histories, targets, st.data())
def test_the_current_the_last_and_the_unfinished_stay(
    messages: list[BaseMessage], target: CompressionTarget, data: st.DataObject
) -> None:
    """However small the target is, and whichever batch is being answered."""
    batches = group_batches(messages)
    current = data.draw(st.sampled_from([None, *(b.id for b in batches)]))
    gone = choose_batches(batches, target, now=later(messages), current=current).leaving
    earlier = [b for b in batches if b.is_complete and (current is None or b.id < current)]
    assert all(batch.is_complete for batch in gone)
    assert not {b.id for b in gone} & {b.id for b in earlier[-target.keep :]}
    assert all(current is None or batch.id < current for batch in gone)


@given(histories, targets, st.data())
def test_what_remains_is_a_valid_request(
    messages: list[BaseMessage], target: CompressionTarget, data: st.DataObject
) -> None:
    """Every provider accepts it, with the summary in front and any batch being answered."""
    batches = group_batches(messages)
    current = data.draw(st.sampled_from([None, *(b.id for b in batches)]))
    gone = choose_batches(batches, target, now=later(messages), current=current).leaving
    rest = [b for b in reversed(batches) if b not in gone]
    context = build_context(rest, current, summary="They talked.")
    assert request_problems(context.messages) == []
    assert not {b.id for b in gone} & {*context.batches}


@given(histories, targets)
def test_batches_leave_until_the_aim_is_reached_and_no_longer(
    messages: list[BaseMessage], target: CompressionTarget
) -> None:
    """Or until nothing more may leave; unfinished batches stand in nobody's way."""
    complete = [b for b in group_batches(messages) if b.is_complete]
    choice = choose_batches(group_batches(messages), target, now=later(messages))
    assert choice.tokens == sum(b.tokens for b in choice.staying)
    assert choice.tokens <= target.max_tokens or len(choice.staying) == min(
        len(complete), target.keep
    )
    if choice.leaving:
        assert choice.tokens + max(b.tokens for b in choice.leaving) > target.max_tokens


@given(histories, targets, st.randoms())
def test_the_order_in_which_batches_come_does_not_matter(
    messages: list[BaseMessage], target: CompressionTarget, random: Random
) -> None:
    """Newest first, as the journal gives them, or in any other order."""
    batches = group_batches(messages)
    chosen = choose_batches(batches, target, now=later(messages))
    shuffled = list(batches)
    random.shuffle(shuffled)
    for order in (batches[::-1], shuffled):
        assert choose_batches(order, target, now=later(messages)) == chosen
    if target.strategy in OLDEST_FIRST and chosen.leaving:
        free = [b for b in chosen.staying if b.id < chosen.leaving[-1].id]
        assert free == []


@given(histories, targets)
def test_no_word_of_the_user_is_lost_and_none_is_put_into_their_mouth(
    messages: list[BaseMessage], target: CompressionTarget
) -> None:
    """What leaves is told in the user's own words, in their order, and in no trigger's."""
    gone = choose_batches(group_batches(messages), target, now=later(messages)).leaving
    own = [
        text_of(message)
        for batch in gone
        for message in batch.messages
        if isinstance(message, HumanMessage) and not is_synthetic(message)
    ]
    assert users_words(write_transcript(gone, 100_000)) == own


# Single cases.


@pytest.mark.parametrize("strategy", OLDEST_FIRST)
def test_the_oldest_leave_first(strategy: Strategy) -> None:
    """As many as it takes."""
    batches = batches_of(*(exchange() for _ in range(5)))
    cost = batches[0].tokens
    assert left(batches, CompressionTarget(strategy, 3 * cost, keep=1)) == [0, 1]
    assert left(batches, CompressionTarget(strategy, 5 * cost, keep=1)) == []
    assert left(batches, CompressionTarget(strategy, 0, keep=2)) == [0, 1, 2]


def test_a_batch_bigger_than_the_whole_budget_leaves_or_stays_whole() -> None:
    """An old one leaves at once; one of the last stays, and all that may leave does."""
    huge = exchange("x" * 10_000)
    small = [exchange() for _ in range(4)]
    target = CompressionTarget(Strategy.SUMMARISE, 100, keep=1)
    assert left(batches_of(huge, *small), target) == [0]
    assert left(batches_of(*small, huge), target) == [0, 1, 2, 3]


@pytest.mark.parametrize("strategy", Strategy)
def test_a_thread_of_follow_ups_alone_is_compressed(strategy: Strategy) -> None:
    """There is no human message in it at all."""
    cycles = [[synthetic_message("check_in"), AIMessage(f"How is day {n}?")] for n in range(5)]
    gone = left(batches_of(*cycles), CompressionTarget(strategy, 0, keep=1))
    assert gone == [0, 1, 2, 3]


def test_an_unfinished_batch_does_not_hold_up_those_after_it() -> None:
    """The oldest batch waits for a result that never came."""
    orphan = [HumanMessage("Look it up."), calling("call_1")]
    batches = batches_of(orphan, exchange(), exchange(), exchange())
    assert left(batches, CompressionTarget(Strategy.SUMMARISE, 0, keep=1)) == [1, 2]


def test_what_runs_is_not_touched_nor_what_came_after_it() -> None:
    """With the last batches before it."""
    batches = batches_of(*(exchange() for _ in range(6)))
    assert left(
        batches, CompressionTarget(Strategy.TRUNCATE, 0, keep=2), current=batches[4].id
    ) == [0, 1]


def test_what_matters_least_leaves_first() -> None:
    """A greeting of the agent's own before the user's order, though it is newer."""
    order = [HumanMessage("Book the blue room for Friday?"), AIMessage("The room is booked.")]
    greeting = [synthetic_message("check_in"), AIMessage("Hi there.")]
    batches = batches_of(order, greeting, exchange(), exchange())
    for strategy in (Strategy.IMPORTANCE, Strategy.TIME_DECAY):
        target = CompressionTarget(strategy, sum(b.tokens for b in batches) - 1, keep=1)
        assert left(batches, target) == [1]


def test_importance_fades_with_age() -> None:
    """After many half-lives even what mattered leaves before a new greeting."""
    minutes = iter(range(0, 100_000, 1_000))
    generator = SnowflakeGenerator(1, clock=lambda: 1_800_000_000_000 + next(minutes) * 60_000)
    cycles = [tool_exchange("call_1"), [synthetic_message("check_in"), AIMessage("Hi there.")]]
    cycles.append(exchange())
    batches = [Batch(positions(c)[0], c) for c in (stamp(cycle, generator) for cycle in cycles)]
    tokens = sum(b.tokens for b in batches) - 1
    slow = CompressionTarget(Strategy.TIME_DECAY, tokens, keep=1, half_life=timedelta(days=1_000))
    quick = CompressionTarget(Strategy.TIME_DECAY, tokens, keep=1, half_life=timedelta(hours=1))
    assert left(batches, slow) == [1]
    assert left(batches, quick) == [0]


def test_of_equals_the_oldest_leaves() -> None:
    """So that the same window gives the same choice."""
    batches = batches_of(*([HumanMessage("Ah."), result("x"), AIMessage("Oh.")] for _ in range(4)))
    target = CompressionTarget(Strategy.IMPORTANCE, sum(b.tokens for b in batches) - 1, keep=1)
    assert left(batches, target) == [0]


PLAIN = [HumanMessage("The sky is grey."), AIMessage("I see.")]


def weights(*cycles: list[BaseMessage]) -> list[float]:
    generator = ticking_generator()
    stamped = [stamp(cycle, generator) for cycle in cycles]
    found = importances([Batch(positions(cycle)[0], cycle) for cycle in stamped])
    return [found[positions(cycle)[0]] for cycle in stamped]


@pytest.mark.parametrize(
    "more",
    [
        [HumanMessage("Is the sky grey?"), AIMessage("I see.")],
        [HumanMessage("The sky is grey."), AIMessage("I booked it: the room is now reserved.")],
        [HumanMessage("The sky is grey."), AIMessage("Shall I order the umbrella?")],
        [HumanMessage("The sky is grey."), calling("c"), result("c", "rain"), AIMessage("I see.")],
        [HumanMessage("The sky is grey." + " So grey." * 40), AIMessage("I see.")],
    ],
    ids=["a question", "a report", "a proposal", "a tool's result", "length"],
)
def test_what_makes_a_batch_matter_more(more: list[BaseMessage]) -> None:
    """Each of these alone, beside a batch without it."""
    plain, better = weights(PLAIN, more)[0], weights(more)[0]
    assert better > weights(PLAIN)[0]
    assert plain >= weights(PLAIN)[0]


def test_the_users_own_words_count_most() -> None:
    """A follow-up that nobody answered matters less than anything the user said."""
    follow_up = [synthetic_message("check_in"), AIMessage("Shall I order the umbrella?")]
    said, alone = weights([HumanMessage("Yes."), AIMessage("Fine.")], follow_up)
    assert said > alone


def test_what_comes_up_again_matters_more() -> None:
    """By its words, in what was said later."""
    cited, forgotten = (weights(PLAIN, [HumanMessage(words)])[0] for words in ("Grey sky", "Oslo"))
    assert cited > forgotten


def test_a_triggers_words_count_for_nothing() -> None:
    """Neither as a question of the user's nor as words that come up again."""
    for prompt in ("Is the sky grey, is it grey?", "Say it."):
        asked = synthetic_message("check_in", prompt=prompt)
        assert weights(PLAIN, [asked, AIMessage("Hello.")]) == weights(
            PLAIN, [synthetic_message("check_in"), AIMessage("Hello.")]
        )


def test_the_same_batches_in_any_order_weigh_the_same() -> None:
    """The journal gives them newest first."""
    generator = ticking_generator()
    cycles = [stamp(list(PLAIN), generator) for _ in range(3)]
    batches = [Batch(positions(cycle)[0], cycle) for cycle in cycles]
    assert importances(batches[::-1]) == importances(batches)
