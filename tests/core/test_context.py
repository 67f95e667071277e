"""Which messages the model gets."""

from collections.abc import Iterator

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from segue import (
    TRIGGER_PROMPTS,
    Batch,
    MessageMetadata,
    NotFoundError,
    SnowflakeGenerator,
    UsageError,
    build_context,
    group_batches,
    is_synthetic,
    settle,
    stamp,
    synthetic_message,
)
from segue.core.tokens import estimate_tokens
from segue.core.window import DropReason, has_exchange
from segue.testing.providers import request_problems
from tests.histories import calling, exchange, result, ticking_generator, tool_exchange


@pytest.fixture
def generator() -> SnowflakeGenerator:
    return ticking_generator()


def batch_id(messages: list[BaseMessage]) -> int:
    value: int = messages[0].additional_kwargs["batch"]
    return value


def contents(messages: list[BaseMessage]) -> list[object]:
    return [m.content for m in messages]


def long_history(batches: int, generator: SnowflakeGenerator) -> list[BaseMessage]:
    cycles = (exchange("q" * 100, "a" * 100) for _ in range(batches))
    return [message for cycle in cycles for message in stamp(cycle, generator)]


def test_all_complete_batches_are_in(generator: SnowflakeGenerator) -> None:
    """Without a budget every finished cycle reaches the model, oldest first."""
    history = [*stamp(exchange("a", "b"), generator), *stamp(tool_exchange("x"), generator)]
    context = build_context(history)
    assert context.messages == history
    assert context.dropped == []
    assert context.batches == [b.id for b in group_batches(history)]


def test_an_unfinished_batch_is_left_out_whole(generator: SnowflakeGenerator) -> None:
    """Nothing of a broken cycle reaches the model, and the report says why."""
    broken = stamp([HumanMessage("lost"), calling("a", "b"), result("a")], generator)
    good = stamp(exchange(), generator)
    context = build_context(broken + good)
    assert context.messages == good
    [dropped] = context.dropped
    assert (dropped.batch, dropped.reason) == (batch_id(broken), DropReason.INCOMPLETE)
    assert dropped.detail == "Call 'b' to 'look_up' has no result."


def test_a_batch_that_waits_for_its_continuation_is_in(generator: SnowflakeGenerator) -> None:
    """The exchange is known to later turns as it stands, and is as good as any last exchange."""
    wish = MessageMetadata(continue_requested=True).onto(result("a"))
    waiting = stamp([HumanMessage("go"), calling("a"), wish, AIMessage("Later.")], generator)
    running = stamp([HumanMessage("hi")], generator)
    context = build_context(waiting + running, current_batch=batch_id(running))
    assert context.messages == waiting + running
    assert context.dropped == []
    assert has_exchange(group_batches(waiting))
    assert request_problems(context.messages) == []


def test_the_current_batch_is_in_even_if_unfinished(generator: SnowflakeGenerator) -> None:
    """The running batch is never dropped from its own request."""
    old = stamp([HumanMessage("lost")], generator)
    running = stamp([HumanMessage("hi"), calling("a"), result("a")], generator)
    context = build_context(old + running, current_batch=batch_id(running))
    assert context.messages == running
    assert [d.batch for d in context.dropped] == [batch_id(old)]


def test_without_a_current_batch_only_complete_ones_are_in(generator: SnowflakeGenerator) -> None:
    """The unfinished newest batch is not taken for the current one."""
    done, running = stamp(exchange(), generator), stamp([HumanMessage("hi")], generator)
    assert build_context(done + running).messages == done


def test_open_calls_of_the_current_batch_are_answered(generator: SnowflakeGenerator) -> None:
    """A request made while a call is open is valid, and finished results stay."""
    running = stamp([HumanMessage("hi"), calling("a", "b"), result("b", "2")], generator)
    context = build_context(running, current_batch=batch_id(running))
    assert request_problems(context.messages) == []
    assert context.messages[-1].content == "2"
    assert is_synthetic(context.messages[-2])


def test_a_running_batch_does_not_see_later_ones(generator: SnowflakeGenerator) -> None:
    """A batch that started after the current one is invisible to it, even if it is finished."""
    before = stamp(exchange("a", "b"), generator)
    running = stamp([HumanMessage("slow question")], generator)
    after = stamp(exchange("quick", "answer"), generator)
    context = build_context(before + running + after, current_batch=batch_id(running))
    assert context.messages == before + running
    assert [(d.batch, d.reason) for d in context.dropped] == [(batch_id(after), DropReason.LATER)]


def test_the_current_batch_may_be_given_as_itself(generator: SnowflakeGenerator) -> None:
    """Who has the batch at hand need not take its id out."""
    running = stamp([HumanMessage("hi")], generator)
    [batch] = group_batches(running)
    assert build_context(running, current_batch=batch).messages == running


def test_a_missing_current_batch_is_an_error(generator: SnowflakeGenerator) -> None:
    """A request is never built without the batch that it is for."""
    old, new = stamp(exchange(), generator), stamp(exchange(), generator)
    with pytest.raises(NotFoundError, match="not among the messages"):
        build_context(old, current_batch=batch_id(new))
    with pytest.raises(NotFoundError):
        build_context(new, current_batch=batch_id(old))
    with pytest.raises(NotFoundError):
        build_context([], current_batch=batch_id(old))


@pytest.mark.parametrize("current", [0, -5, True, "12", 2**63])
def test_a_current_batch_that_is_no_snowflake_is_refused(current: int) -> None:
    """A bad id gives an error that names it."""
    with pytest.raises(UsageError, match=r"current batch .* is not a snowflake"):
        build_context([], current_batch=current)


def test_nothing_gives_an_empty_context() -> None:
    """An empty thread has an empty context and costs nothing."""
    context = build_context([])
    assert (context.messages, context.dropped, context.tokens) == ([], [], 0)


def test_a_budget_keeps_the_newest_whole_batches(generator: SnowflakeGenerator) -> None:
    """What does not fit is left out from the oldest end, a whole batch at a time."""
    batches = [stamp(tool_exchange("a"), generator) for _ in range(5)]
    price = sum(map(estimate_tokens, batches[0]))
    history = [message for batch in batches for message in batch]
    context = build_context(history, max_tokens=price * 3 - 1, answer_tokens=0)
    assert context.batches == [batch_id(b) for b in batches[3:]]
    assert {d.reason for d in context.dropped} == {DropReason.OVER_BUDGET}
    assert [d.batch for d in context.dropped] == [batch_id(b) for b in reversed(batches[:3])]
    assert context.cut


def test_a_batch_too_big_for_the_budget_ends_the_window(generator: SnowflakeGenerator) -> None:
    """No older batch jumps over one that does not fit: history has no hole."""
    small = stamp(exchange("a", "b"), generator)
    big = stamp(exchange("x" * 4_000, "y"), generator)
    newest = stamp(exchange("c", "d"), generator)
    context = build_context(small + big + newest, max_tokens=200)
    assert context.batches == [batch_id(newest)]


def test_the_current_batch_is_in_even_over_budget(generator: SnowflakeGenerator) -> None:
    """A question larger than the window still reaches the model, alone."""
    old = stamp(exchange(), generator)
    huge = stamp([HumanMessage("x" * 10_000)], generator)
    context = build_context(old + huge, current_batch=batch_id(huge), max_tokens=100)
    assert context.messages == huge
    assert context.tokens > 100
    assert context.over_budget


def test_the_budget_leaves_room_for_the_answer(generator: SnowflakeGenerator) -> None:
    """The prompt and the reserved answer together fit the model's window."""
    history = long_history(50, generator)
    context = build_context(history, max_tokens=1_000, answer_tokens=400)
    assert context.reserved == 400
    assert 500 < context.tokens <= 600
    assert build_context(history, max_tokens=1_000).reserved == 250
    assert build_context(history, max_tokens=200_000).reserved == 4_096


def test_the_budget_counts_everything_that_is_sent(generator: SnowflakeGenerator) -> None:
    """System text, summary, memories, pictures, calls and the caller's extras all take room."""
    plain = stamp(exchange(), generator)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    base = build_context(plain).tokens
    assert build_context(plain, system="x" * 400).tokens >= base + 100
    assert build_context(plain, summary="x" * 400).tokens >= base + 100
    assert build_context(plain, memories=["x" * 400]).tokens >= base + 100
    assert build_context(plain, extra_tokens=77).tokens == base + 77
    seen = stamp([HumanMessage([picture]), AIMessage("Nice.")], generator)
    assert build_context(seen).tokens > 1_000
    called = stamp(tool_exchange("a"), generator)
    silent = [m for m in called if not isinstance(m, AIMessage) or not m.tool_calls]
    assert build_context(called).tokens > sum(map(estimate_tokens, silent))


def test_system_text_can_crowd_out_history(generator: SnowflakeGenerator) -> None:
    """A long prompt leaves less room for old batches."""
    history = long_history(2, generator)
    assert len(build_context(history, max_tokens=200).batches) == 2
    assert len(build_context(history, max_tokens=200, system="x" * 200).batches) == 1


def test_a_models_own_counter_can_be_used(generator: SnowflakeGenerator) -> None:
    """Any function from a message to a number of tokens decides what fits."""
    history = [*stamp(exchange(), generator), *stamp(exchange(), generator)]
    context = build_context(history, max_tokens=30, answer_tokens=0, count_tokens=lambda _: 10)
    assert context.tokens == 20
    assert len(context.batches) == 1


def test_what_is_no_text_is_refused() -> None:
    """Letters of a single text are not taken for a list of memories."""
    with pytest.raises(UsageError, match="memories is a list of texts"):
        build_context([], memories="Likes tea")
    with pytest.raises(UsageError, match="system is SystemMessage; expected text"):
        build_context([], system=SystemMessage("hi"))  # type: ignore[arg-type]  # wanted
    with pytest.raises(UsageError, match="max_tokens is '8000'"):
        build_context([], max_tokens="8000")  # type: ignore[arg-type]  # wanted


def test_blank_instructions_are_not_sent(generator: SnowflakeGenerator) -> None:
    """An empty prompt, summary or memory makes no empty system message."""
    history = stamp(exchange(), generator)
    assert build_context(history, system=" ", summary="", memories=[""]).messages == history
    broken = build_context(history, system="half \ud83d").messages[0]
    assert broken.content == "half \ufffd"


@pytest.mark.parametrize(
    ("max_tokens", "answer_tokens"), [(0, None), (-1, None), (100, 100), (100, -1)]
)
def test_an_impossible_budget_is_refused(max_tokens: int, answer_tokens: int | None) -> None:
    """A window without room for a prompt is an error, not an empty context."""
    with pytest.raises(UsageError, match="expected"):
        build_context([], max_tokens=max_tokens, answer_tokens=answer_tokens)


def test_there_is_one_system_message(generator: SnowflakeGenerator) -> None:
    """Prompt, summary, memories and stored system text stand together at the front."""
    history = stamp([SystemMessage("We close at six."), *exchange()], generator)
    context = build_context(history, system="Be kind.", summary="They met.", memories=["Likes tea"])
    assert request_problems(context.messages) == []
    first = str(context.messages[0].content)
    order = [first.index(t) for t in ("Be kind.", "They met.", "Likes tea", "We close at six.")]
    assert order == sorted(order)
    assert [m.type for m in context.messages] == ["system", "human", "ai"]


def test_a_greeting_gets_a_human_message_in_front(generator: SnowflakeGenerator) -> None:
    """A thread that the agent began is valid for providers that want a human first."""
    greeting = stamp([AIMessage("Welcome!")], generator)
    context = build_context(greeting + stamp(exchange(), generator))
    assert request_problems(context.messages) == []
    assert context.messages[0].content == TRIGGER_PROMPTS["check_in"]
    assert is_synthetic(context.messages[0])


def test_a_system_initiated_batch_is_answered_in_place(generator: SnowflakeGenerator) -> None:
    """A reply to a system message keeps its place between the exchanges around it."""
    before = stamp(exchange("a", "b"), generator)
    system = stamp(
        [SystemMessage("The parcel arrived."), AIMessage("Your parcel is here!")], generator
    )
    context = build_context(before + system)
    assert request_problems(context.messages) == []
    assert [m.type for m in context.messages] == ["system", "human", "ai", "human", "ai"]


def test_old_triggers_stay_in_front_of_their_replies(generator: SnowflakeGenerator) -> None:
    """A finished follow-up is in context with its trigger as natural text."""
    talk = stamp(exchange(), generator)
    nudge = stamp([synthetic_message("check_in"), AIMessage("Still there?")], generator)
    context = build_context(talk + nudge)
    assert contents(context.messages[2:]) == [TRIGGER_PROMPTS["check_in"], "Still there?"]


def test_words_before_a_call_join_the_call(generator: SnowflakeGenerator) -> None:
    """Two assistant messages in a row of which the second calls are sent as one."""
    spoken = [HumanMessage("hi"), AIMessage("Let me ask."), calling("a"), result("a")]
    context = build_context(stamp([*spoken, AIMessage("Done.")], generator))
    assert request_problems(context.messages) == []
    assert [m.type for m in context.messages] == ["human", "ai", "tool", "ai"]
    assert context.messages[1].text == "Let me ask."


def test_reused_call_ids_are_told_apart(generator: SnowflakeGenerator) -> None:
    """Two batches whose calls share an id give unique ids, each with its own result."""
    cycles = [
        [HumanMessage("hi"), calling("a"), result("a", answer), AIMessage("Done.")]
        for answer in ("first", "second")
    ]
    context = build_context([m for cycle in cycles for m in stamp(cycle, generator)])
    assert request_problems(context.messages) == []
    calls = [m for m in context.messages if isinstance(m, AIMessage) and m.tool_calls]
    results = [m for m in context.messages if isinstance(m, ToolMessage)]
    assert [m.tool_calls[0]["id"] for m in calls] == [m.tool_call_id for m in results]
    assert len({m.tool_call_id for m in results}) == 2
    assert contents(list(results)) == ["first", "second"]


def test_growing_history_keeps_the_prefix(generator: SnowflakeGenerator) -> None:
    """What was sent before is sent again byte for byte, so that prompt caches hit."""
    history: list[BaseMessage] = []
    before: list[str] = []
    for _ in range(6):
        history += stamp(tool_exchange("a", "a"), generator)
        now = [m.model_dump_json() for m in build_context(history, system="Be kind.").messages]
        assert now[: len(before)] == before
        before = now


def test_batches_can_be_given_newest_first_and_are_read_lazily(
    generator: SnowflakeGenerator,
) -> None:
    """Only as many batches are read as the budget holds, however long the history is."""
    history = long_history(200, generator)
    read: list[int] = []

    def newest_first() -> Iterator[Batch]:
        for batch in reversed(group_batches(history)):
            read.append(batch.id)
            yield batch

    lazily = build_context(newest_first(), max_tokens=1_000)
    eagerly = build_context(history, max_tokens=1_000)
    assert lazily.messages == eagerly.messages
    assert lazily.tokens == eagerly.tokens
    assert len(read) == len(lazily.batches) + 1
    assert lazily.cut


def test_batches_in_the_wrong_order_are_refused(generator: SnowflakeGenerator) -> None:
    """Oldest-first batches would give the wrong window, so they are an error."""
    history = [*stamp(exchange(), generator), *stamp(exchange(), generator)]
    with pytest.raises(UsageError, match="newest first"):
        build_context(group_batches(history))


def followed_up(*cycles: list[BaseMessage], generator: SnowflakeGenerator) -> list[BaseMessage]:
    """Cycles, and the trigger of a follow-up behind them."""
    nudge: list[BaseMessage] = [synthetic_message("check_in")]
    return [message for cycle in [*cycles, nudge] for message in stamp(cycle, generator)]


def test_a_follow_up_has_a_long_message_in_part(generator: SnowflakeGenerator) -> None:
    """A message that fills the room is cut where it is too long, and the report says so."""
    long = "Dear Ada, " + "word " * 4_000 + "yours, Bob."
    history = followed_up(exchange(long, "Thank you, Bob."), generator=generator)
    context = build_context(history, batch_id(history[-1:]), 6_000)
    told = context.messages[0].text
    assert (told[:9], told[-11:]) == ("Dear Ada,", "yours, Bob.")
    assert " [… 3,637 characters left out …] " in told
    assert contents(context.messages[1:]) == ["Thank you, Bob.", TRIGGER_PROMPTS["check_in"]]
    assert not context.over_budget
    assert context.tokens <= 6_000 - context.reserved
    [shortened] = context.shortened
    assert shortened.batch == batch_id(history)
    assert shortened.detail == (
        "Needs about 5018 tokens, 4487 were left. Texts are cut to 16,384 characters."
    )
    assert history[0].text == long


def test_the_next_user_turn_has_a_long_message_in_part(generator: SnowflakeGenerator) -> None:
    """Who sends a long text and then asks about it is understood."""
    long = stamp(exchange("word " * 4_900, "Got it."), generator)
    asking = stamp([HumanMessage("What did I just send?")], generator)
    context = build_context(long + asking, batch_id(asking), 8_000)
    assert context.batches == [batch_id(long), batch_id(asking)]
    assert context.messages[0].text.startswith("word word")
    assert request_problems(context.messages) == []


def test_the_last_exchange_is_reached_over_follow_ups(generator: SnowflakeGenerator) -> None:
    """Long follow-ups in between do not push out what they follow up on."""
    nudge = [synthetic_message("check_in"), AIMessage("Still there? " * 300)]
    talk = exchange("I lost my key.", "Where did you see it last? " * 300)
    history = followed_up(exchange("old", "older"), talk, nudge, nudge, generator=generator)
    context = build_context(history, batch_id(history[-1:]), 2_000)
    assert context.messages[0].text == "I lost my key."
    assert "Where did you see it last?" in context.messages[1].text
    assert len(context.shortened) == 3
    assert [d.batch for d in context.dropped] == [batch_id(history)]


def test_what_was_said_before_a_failed_turn_is_in(generator: SnowflakeGenerator) -> None:
    """A settled batch has no reply, so the exchange before it is told as well."""
    talk = stamp(exchange("I lost my key.", "Where did you see it last?"), generator)
    [lost] = group_batches(stamp([HumanMessage("word " * 10_000)], generator))
    asking = stamp([HumanMessage("And now?")], generator)
    context = build_context([*talk, *settle(lost).messages, *asking], batch_id(asking), 1_000)
    assert contents(context.messages[:2]) == contents(talk)
    assert "characters left out" in context.messages[2].text
    assert [s.batch for s in context.shortened] == [lost.id]


def test_a_follow_up_without_room_for_what_it_follows_is_over_budget(
    generator: SnowflakeGenerator,
) -> None:
    """A trigger is not sent alone: its caller hears that the window is too small."""
    history = followed_up(exchange("q" * 500, "a" * 500), generator=generator)
    context = build_context(history, batch_id(history[-1:]), 80)
    assert context.over_budget
    assert len(context.messages) == 3
    asked = stamp([HumanMessage("x" * 200)], generator)
    alone = build_context(history[:2] + asked, batch_id(asked), 80)
    assert (alone.messages, alone.over_budget) == (asked, False)
    assert [d.reason for d in alone.dropped] == [DropReason.OVER_BUDGET]


def test_a_growing_turn_sends_the_same_cut_texts(generator: SnowflakeGenerator) -> None:
    """A few more tokens in the turn do not change what was sent before, so that caches hit."""
    history = followed_up(exchange("q" * 30_000, "a"), generator=generator)
    first, then = (
        build_context(history, batch_id(history[-1:]), 8_000, extra_tokens=extra).messages[0]
        for extra in (0, 50)
    )
    assert first.text == then.text
