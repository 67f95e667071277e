"""Long conversations: what leaves the window is summed up, and nothing of it is lost."""

from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, SystemMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph

from segue.agent.scripted import Line, ScriptedChatModel
from segue.core.batch import Batch
from segue.core.context import build_context
from segue.core.stamp import stamp
from segue.core.tokens import estimate_text, estimate_tokens
from segue.errors import BackendError, UsageError
from segue.journal.records import EffectState, TurnState
from segue.simulate.scenario import read_scenario
from segue.simulate.world import Stage, World, plain_agent, with_graph
from segue.testing.providers import request_problems
from tests.histories import exchange, ticking_generator
from tests.runtime.compressing import (
    EXCHANGE,
    WINDOW,
    Speaker,
    effects,
    is_summary,
    small_agent,
    summaries,
    talk,
    words,
)
from tests.runtime.scenes import Held
from tests.stories.canaries import CANARY, PROMPTS
from tests.stories.scenes import PATIENCE, new_thread, passing

pytestmark = pytest.mark.anyio


def failing(name: str) -> Line:
    """A model that fails and, as providers do, quotes what it was asked."""

    def fail(messages: list[BaseMessage]) -> Any:
        return type(name, (Exception,), {})(f"cannot sum up {[m.text for m in messages]}")

    return fail


async def live(world: World, thread: str) -> list[int]:
    return await world.journal.messages.list_live_batches(thread, limit=10_000)


async def cost(world: World, thread: str) -> int:
    """What the window costs, with its summary."""
    window = await world.journal.messages.window(thread, max_tokens=100_000)
    told = estimate_text(window.summary.text) if window.summary else 0
    return told + sum(estimate_tokens(m) for batch in window.batches for m in batch.messages)


async def test_a_long_talk_is_summed_up_and_goes_on(stage: Stage) -> None:
    """The first fact is still known to the model, every request fits, and history has it all."""
    speaker = Speaker()
    model = speaker.model
    agent = small_agent(summary_tokens=WINDOW)
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        sizes = []
        for number in range(40):
            await talk(world, thread, 1, number)
            sizes.append(len(await live(world, thread)))
        heard = await world.heard(thread)
        answered = [r for r in model.seen if not is_summary(r)]
        assert heard[::2] == [words(n) for n in range(40)]
        assert max(sizes) < 14
        for request in answered:
            assert request_problems(request) == []
            assert sum(map(estimate_tokens, request)) <= WINDOW * 0.75
        assert speaker.asked
        first_summed_up = next(r for r in answered if "Summary of the conversation" in r[0].text)
        assert "Fact 0 is the number 0." in first_summed_up[0].text
        assert isinstance(first_summed_up[0], SystemMessage)


async def test_a_summary_is_made_of_the_one_before_and_cites_its_batches(stage: Stage) -> None:
    """Each stands for batches of its own, and the chain of them can be taken back link by link."""
    speaker = Speaker("They spoke of facts.", "They spoke of more facts.")
    async with stage.world(small_agent(), models={"guide": speaker.model}) as world:
        thread = await new_thread(world)
        everything: list[Batch] = []
        while len(speaker.asked) < 2:
            await talk(world, thread, 1, len(everything))
            everything = [*everything, (await world.journal.messages.tail(thread, max_tokens=1))[0]]
        remaining = await live(world, thread)
        assert [asked["summary"] for asked in speaker.asked] == ["", "They spoke of facts."]
        second, first = await summaries(world, thread)
        ids = [batch.id for batch in everything]
        assert [*first.batches, *second.batches, *remaining] == ids
        assert (first.first_batch, second.last_batch) == (ids[0], second.batches[-1])
        assert (first.previous_id, second.previous_id) == (None, first.id)
        told = [line["text"] for asked in speaker.asked for line in asked["conversation"]]
        assert told[::2] == [words(n) for n in range(len(told) // 2)]
        assert await live(world, thread) == ids


async def test_an_undone_summary_leaves_all_as_it_was(stage: Stage) -> None:
    """The window is the same as before, and the next turn sums it up anew."""
    speaker = Speaker("Bad.", "Better.")
    async with stage.world(small_agent(), models={"guide": speaker.model}) as world:
        thread = await new_thread(world)
        count = 0
        while not speaker.asked:
            await talk(world, thread, 1, count)
            count += 1
        heard = await world.heard(thread)
        [bad] = await summaries(world, thread)
        assert (bad.text, len(await live(world, thread))) == ("Bad.", count)
        assert await world.heard(thread) == heard
        await talk(world, thread, 1, count)
        better = await world.journal.summaries.find(thread)
        assert better is not None
        assert (better.text, better.previous_id) == ("Better.", None)
        assert better.batches[: len(bad.batches)] == bad.batches


@pytest.mark.parametrize(
    "line",
    [failing("RateLimitError"), failing("APITimeoutError"), "", "  \n"],
    ids=["rate", "time", "empty", "blank"],
)
async def test_a_summary_that_fails_for_a_moment_is_tried_again(stage: Stage, line: Line) -> None:
    """Until then everything is as it was, and nothing of the talk is in the record of it."""
    speaker = Speaker(line, "They spoke of facts.")
    async with stage.world(small_agent(), models={"guide": speaker.model}) as world:
        thread = await new_thread(world)
        count = 0
        while not speaker.asked:
            await talk(world, thread, 1, count)
            count += 1
        assert await world.journal.summaries.find(thread) is None
        assert len(await live(world, thread)) == count
        [effect] = await effects(world, thread)
        assert effect.state is EffectState.PENDING
        assert "Fact" not in (effect.error or "")
        await world.pass_time(minutes=1)
        [summary] = await summaries(world, thread)
        assert summary.text == "They spoke of facts."
        assert speaker.asked[0] == speaker.asked[1]


async def test_a_summary_that_cannot_be_had_is_asked_for_after_the_next_turn(stage: Stage) -> None:
    """No dead letter is left of it, and the talk goes on within its window."""
    speaker = Speaker(failing("AuthenticationError"), "They spoke of facts.")
    async with stage.world(small_agent(), models={"guide": speaker.model}) as world:
        thread = await new_thread(world)
        count = 0
        while not speaker.asked:
            await talk(world, thread, 1, count)
            count += 1
        await world.pass_time(hours=5)
        assert (await world.journal.summaries.find(thread), len(speaker.asked)) == (None, 1)
        assert await world.journal.effects.list_dead() == []
        [effect] = await effects(world, thread)
        assert "authentication" in (effect.evidence or "")
        assert "Fact" not in (effect.evidence or "")
        await talk(world, thread, 1, count)
        summary = await world.journal.summaries.find(thread)
        assert summary is not None
        assert summary.text == "They spoke of facts."


async def test_while_a_summary_fails_one_wish_for_it_waits(stage: Stage) -> None:
    """However many turns end meanwhile: the later one takes over, and the old summary stays."""
    never = [failing("RateLimitError")] * 100
    speaker = Speaker("They spoke of facts.", *never)
    async with stage.world(small_agent(), models={"guide": speaker.model}) as world:
        thread = await new_thread(world)
        await talk(world, thread, 30)
        await world.pass_time(seconds=10)
        wishes = await effects(world, thread)
        assert len(wishes) > 3
        assert [w.state for w in wishes if w.state is not EffectState.DONE] == [EffectState.PENDING]
        summary = await world.journal.summaries.find(thread)
        assert summary is not None
        assert (summary.text, summary.previous_id) == ("They spoke of facts.", None)


async def test_a_summary_that_is_too_long_ends_with_a_sentence(stage: Stage) -> None:
    """Within its tokens, and so does the next one, which is made of it."""
    speaker = Speaker("It was said. " * 900, "It was said again. " * 900)
    agent = small_agent(summary_tokens=40)
    async with stage.world(agent, models={"guide": speaker.model}) as world:
        thread = await new_thread(world)
        count = 0
        while len(speaker.asked) < 2:
            await talk(world, thread, 1, count)
            count += 1
        second, first = await summaries(world, thread)
        for summary in (first, second):
            assert 30 < estimate_text(summary.text) <= 40
            assert summary.text.endswith(("said.", "again."))
        assert speaker.asked[1]["summary"] == first.text


async def test_a_summary_of_a_larger_window_leaves_room_in_a_smaller_one(stage: Stage) -> None:
    """Who gives an agent a smaller window goes on talking; the model is told the beginning."""
    async with stage.world(small_agent()) as world:
        thread = await new_thread(world)
        await talk(world, thread, 2)
        parts = world.system.deps
        [first, _] = await live(world, thread)
        await world.journal.summaries.save(
            thread, "It was said. " * 900, [first], ids=parts.ids, now=world.clock.now()
        )
    model = Speaker().model
    async with stage.world(small_agent(), models={"guide": model}) as world:
        await world.say(thread, "Are you there?")
        [told, *_] = model.seen[-1]
        assert "It was said." in told.text
        assert estimate_text(told.text) < WINDOW / 2
        [turn, *_] = await world.journal.turns.list_of(thread)
        assert turn.state is TurnState.DONE


async def test_a_process_that_ends_during_a_summary_leaves_it_to_the_next(stage: Stage) -> None:
    """Nothing is archived without its summary, and in the end there is one."""
    held = Held("Never to be stored.")
    speaker = Speaker(held, "They spoke of facts.")
    agent, models = small_agent(), {"guide": speaker.model}
    async with stage.world(agent, models=models, patience=timedelta(0)) as world:
        thread = await new_thread(world)
        count = 0
        while not held.asked.is_set():
            reply = await world.segue.reply(thread, words(count))
            assert reply == "I see."
            count += 1
            if await effects(world, thread):
                await held.asked.wait()
    async with stage.world(agent, models=models) as world:
        assert await world.journal.summaries.find(thread) is None
        assert len(await live(world, thread)) == count
        await world.pass_time(minutes=5)
        [summary] = await summaries(world, thread)
        assert summary.text == "They spoke of facts."
        assert len(await live(world, thread)) == count


async def test_a_database_that_fails_at_the_end_of_a_summary_has_stored_none_of_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The summary is made again, and stored once, with its batches."""
    speaker = Speaker()
    async with stage.world(small_agent(), models={"guide": speaker.model}) as world:
        thread = await new_thread(world)
        save = world.journal.summaries.save

        async def fail(*args: Any, **kwargs: Any) -> Any:
            del args, kwargs
            monkeypatch.setattr(world.journal.summaries, "save", save)
            raise BackendError("The database is away.")

        monkeypatch.setattr(world.journal.summaries, "save", fail)
        count = 0
        while not speaker.asked:
            await talk(world, thread, 1, count)
            count += 1
        assert await world.journal.summaries.find(thread) is None
        assert len(await live(world, thread)) == count
        await world.pass_time(minutes=1)
        assert len(speaker.asked) == 2
        remaining = await live(world, thread)
        [summary] = await summaries(world, thread)
        assert [*summary.batches, *remaining] == await live(world, thread)


async def test_somebody_who_compresses_at_the_same_time_is_not_overwritten(stage: Stage) -> None:
    """The summary that was made from the old one is thrown away, and made anew from theirs."""
    held = Held("Made from nothing.")
    speaker = Speaker(held, "Theirs and ours.")
    async with stage.world(small_agent(), models={"guide": speaker.model}) as world:
        thread = await new_thread(world)
        parts = world.system.deps
        async with passing(world, timedelta(minutes=1)):
            count = 0
            while not await effects(world, thread):
                await world.segue.reply(thread, words(count))
                count += 1
            await held.asked.wait()
            oldest = (await live(world, thread))[0]
            theirs = await world.journal.summaries.save(
                thread, "Theirs.", [oldest], ids=parts.ids, now=parts.clock.now()
            )
            held.go.set()
        await world.pass_time(minutes=1)
        assert await world.journal.summaries.find(thread) == theirs
        await talk(world, thread, 2, count)
        assert [asked["summary"] for asked in speaker.asked] == ["", "Theirs."]
        newest = await world.journal.summaries.find(thread)
        assert newest is not None
        assert (newest.text, newest.previous_id) == ("Theirs and ours.", theirs.id)
        assert oldest not in newest.batches


async def test_no_trigger_is_summed_up(stage: Stage) -> None:
    """Follow-ups are told as the agent's; their triggers are not told, however faithful a model."""
    speaker = Speaker()
    delays = {trigger.value: PATIENCE.total_seconds() for trigger in PROMPTS}
    policy = {"cooldown": 0, "max_consecutive": 2, "max_per_day": 10_000, "backoff": 1}
    prompts = {
        trigger.value: [{"name": f"p{n}", "text": text} for n, text in enumerate(texts)]
        for trigger, texts in PROMPTS.items()
    }
    agent = plain_agent(
        context_tokens=WINDOW,
        autonomy={"delays": delays, "policy": policy, "prompts": prompts},
        compression={"keep": 1, "summary_tokens": WINDOW},
    )
    model = speaker.model
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        for number in range(20):
            await talk(world, thread, 1, number)
            await world.pass_time(PATIENCE * 3)
        assert any(CANARY in m.text for request in model.seen for m in request)
        assert len(speaker.asked) > 1
        assert CANARY not in str(speaker.asked)
        for asked in speaker.asked:
            own = [line["text"] for line in asked["conversation"] if line["from"] == "user"]
            assert all(text.startswith("Fact ") for text in own)
            assert len(own) < len([x for x in asked["conversation"] if x["from"] == "agent"])
        for summary in await summaries(world, thread):
            assert CANARY not in summary.text


@pytest.mark.parametrize("strategy", ["truncate", "importance", "time_decay"])
async def test_only_summaries_ask_a_model(stage: Stage, strategy: str) -> None:
    """Other strategies archive and leave the summary as it is: here there is none."""
    speaker = Speaker()
    agent = small_agent(strategy=strategy)
    async with stage.world(agent, models={"guide": speaker.model}) as world:
        thread = await new_thread(world)
        await talk(world, thread, 20)
        assert speaker.asked == []
        assert len(await world.heard(thread)) == 40
        remaining = len(await live(world, thread))
        done = await summaries(world, thread)
        assert {summary.text for summary in done} == {""}
        assert sum(len(s.batches) for s in done) + remaining == 20
        assert remaining < 12


async def test_a_summary_stays_when_the_strategy_changes(stage: Stage) -> None:
    """What was summed up once is not lost by who only leaves out."""
    speaker = Speaker("They spoke of facts.")
    async with stage.world(small_agent(), models={"guide": speaker.model}) as world:
        thread = await new_thread(world)
        count = 0
        while not speaker.asked:
            await talk(world, thread, 1, count)
            count += 1
    agent = small_agent(strategy="truncate")
    async with stage.world(agent, models={"guide": speaker.model}) as world:
        await talk(world, thread, 20, count)
        newest = await world.journal.summaries.find(thread)
        assert newest is not None
        assert (newest.text, len(speaker.asked)) == ("They spoke of facts.", 1)
        assert newest.previous_id is not None


@pytest.mark.parametrize("strategy", ["truncate", "summarise", "importance"])
async def test_a_backlog_leaves_before_what_the_model_still_sees(
    stage: Stage, strategy: str
) -> None:
    """An old conversation that was never compressed: the window does not reach back into it."""
    speaker, generator = Speaker(), ticking_generator()
    agent, models = small_agent(strategy=strategy), {"guide": speaker.model}
    async with stage.world(agent, models=models) as world:
        thread = await new_thread(world)
        for number in range(90):
            said = stamp(exchange(words(number)), generator)
            await world.journal.messages.import_messages(thread, said)
        everything = await live(world, thread)
        for number in range(90, 96):
            await talk(world, thread, 1, number)
            window = await world.journal.messages.window(thread, max_tokens=WINDOW)
            context = build_context(window.batches, None, WINDOW)
            if window.summary is not None and strategy != "importance":
                assert min(context.batches) > window.summary.last_batch
        remaining = await live(world, thread)
        assert len(remaining) < 14
        assert not {*remaining} & {*everything[:80]}
        told = [line["text"] for asked in speaker.asked for line in asked["conversation"]]
        facts = [text for text in told if text.startswith("Fact ")]
        assert facts == ([words(n) for n in range(len(facts))] if facts else [])
        assert bool(facts) is (strategy == "summarise")


async def test_a_graph_of_ones_own_needs_a_model_for_summaries(stage: Stage) -> None:
    """A strategy that needs one is refused without it; what only leaves out works."""

    def answer(state: MessagesState) -> dict[str, Any]:
        del state
        return {"messages": [("ai", "I see.")]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(BEGIN, "answer")
    graph = builder.compile()
    with pytest.raises(UsageError, match=r"set compression\.model"):
        async with stage.world(with_graph(small_agent(strategy="summarise"), graph)):
            pass
    async with stage.world(with_graph(small_agent(strategy="truncate"), graph)) as world:
        thread = await new_thread(world)
        await talk(world, thread, 15)
        assert await effects(world, thread)
        assert await world.journal.summaries.find(thread) is not None


# Settings.


async def first_compressed(stage: Stage, **compression: Any) -> tuple[int, int]:
    """What the window cost before it was compressed for the first time, and afterwards."""
    agent = small_agent(**{"strategy": "truncate", **compression})
    async with stage.world(agent, models={"guide": Speaker().model}) as world:
        thread = await new_thread(world)
        before = 0
        for number in range(40):
            await talk(world, thread, 1, number)
            if await world.journal.summaries.find(thread) is not None:
                break
            before = await cost(world, thread)
        return before, await cost(world, thread)


@pytest.mark.parametrize("share", [0.35, 0.7])
async def test_compression_begins_at_its_share_of_the_window(
    sqlite_stage: Stage, share: float
) -> None:
    """At the end of the first turn that makes it more, and not before."""
    before, after = await first_compressed(sqlite_stage, trigger_share=share)
    assert share * WINDOW - EXCHANGE < before <= share * WINDOW
    assert after < before


@pytest.mark.parametrize("share", [0.2, 0.5])
async def test_compression_ends_at_its_share_of_the_window(
    sqlite_stage: Stage, share: float
) -> None:
    """As much stays as may stay."""
    _, after = await first_compressed(sqlite_stage, target_share=share)
    assert share * WINDOW - EXCHANGE < after <= share * WINDOW


async def test_room_for_the_answer_is_never_filled(sqlite_stage: Stage) -> None:
    """Whatever share is set: a quarter of the window is the answer's."""
    before, _ = await first_compressed(sqlite_stage, trigger_share=1)
    assert WINDOW * 0.75 - EXCHANGE < before <= WINDOW * 0.75


@pytest.mark.parametrize("keep", [1, 6])
async def test_as_many_of_the_last_batches_stay_as_it_is_set(
    sqlite_stage: Stage, keep: int
) -> None:
    """Even if they are more than the target."""
    agent = small_agent(strategy="truncate", target_share=0.01, keep=keep)
    async with sqlite_stage.world(agent, models={"guide": Speaker().model}) as world:
        thread = await new_thread(world)
        count = 0
        while await world.journal.summaries.find(thread) is None:
            await talk(world, thread, 1, count)
            count += 1
        assert len(await live(world, thread)) == keep


@pytest.mark.parametrize(("half_life", "stays"), [("1h", False), ("1000d", True)])
async def test_importance_fades_as_fast_as_it_is_set(
    sqlite_stage: Stage, half_life: str, stays: bool
) -> None:
    """An order of long ago, and small talk of today."""
    agent = small_agent(strategy="time_decay", half_life=half_life)
    order = "Please book the blue room for Friday, will you? It is for my grandmother Ada."
    async with sqlite_stage.world(agent, models={"guide": Speaker().model}) as world:
        thread = await new_thread(world)
        await world.say(thread, order)
        [first] = await live(world, thread)
        await world.pass_time(days=3)
        while await world.journal.summaries.find(thread) is None:
            await world.say(thread, "Well. " * 135)
        assert (first in await live(world, thread)) is stays


async def test_a_model_of_its_own_sums_up(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name; the agent's own is not asked then. One that is not there shows at the start."""
    own, other = Speaker(), Speaker("By another model.")

    def load(name: str, settings: Any) -> ScriptedChatModel:
        assert (name, settings) == ("some:model", {})
        return other.model

    with pytest.raises(UsageError, match=r"compression\.model.*nobody"):
        async with sqlite_stage.world(small_agent(model="nobody:model")):
            pass
    monkeypatch.setattr("segue.agent.summariser.load_model", load)
    agent = small_agent(model="some:model")
    async with sqlite_stage.world(agent, models={"guide": own.model}) as world:
        thread = await new_thread(world)
        await talk(world, thread, 13)
        newest = await world.journal.summaries.find(thread)
        assert newest is not None
        assert (newest.text, own.asked) == ("By another model.", [])


async def test_compression_can_be_switched_off(sqlite_stage: Stage) -> None:
    """Nothing is queued then; and what was queued before does nothing any more."""
    held = Held()
    speaker = Speaker(held)
    models = {"guide": speaker.model}
    async with sqlite_stage.world(small_agent(), models=models, patience=timedelta(0)) as world:
        thread = await new_thread(world)
        count = 0
        while not await effects(world, thread):
            await world.segue.reply(thread, words(count))
            count += 1
        await held.asked.wait()
    async with sqlite_stage.world(small_agent(enabled=False), models=models) as world:
        await world.pass_time(minutes=5)
        await talk(world, thread, 10, count)
        [effect] = await effects(world, thread)
        assert (effect.state, effect.evidence) == (
            EffectState.DONE,
            "Compression is switched off.",
        )
        assert await world.journal.summaries.find(thread) is None


def test_a_target_above_the_trigger_is_refused() -> None:
    """Each turn would be compressed, and nothing would come of it."""
    with pytest.raises(UsageError, match=r"compression: target_share is 0\.6; expected less"):
        small_agent(target_share=0.6)


def test_a_simulation_sums_up_only_if_it_is_told_to() -> None:
    """A summary would be taken from the replies that the scenario has for its users."""
    week = {"start": "2027-03-22 09:00", "for": "1 week"}
    for given, enabled in (({}, False), ({"compression": {"keep": 1}}, True)):
        [agent] = read_scenario({**week, "agents": [{"id": "ada", **given}]}).agents
        assert agent.compression.enabled is enabled
