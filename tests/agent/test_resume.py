"""A turn that was cut off where the journal knows more than the checkpoint."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.types import interrupt

from segue.agent.checkpoints.store import Checkpoints
from segue.agent.scripted import ScriptedChatModel
from segue.journal.journal import Journal
from segue.journal.records import TurnLease
from segue.runtime.run import MessageFinished, Question
from segue.testing.providers import request_problems
from tests.agent.session import LEASE, THREAD, Session, kinds, streamed

pytestmark = pytest.mark.anyio


def call(id: str) -> ToolCall:
    return ToolCall(name=f"tool_{id}", args={}, id=id, type="tool_call")


CALLING = AIMessage("Let me see.", id="calling", tool_calls=[call("a"), call("b")])
AGAIN = AIMessage("", id="again", tool_calls=[call("c")])


def result(id: str) -> ToolMessage:
    return ToolMessage(f"{id} before", tool_call_id=id, name=f"tool_{id}", id=f"result-{id}")


class Bench:
    """A session whose tools count how often they ran."""

    def __init__(self, session: Session, model: ScriptedChatModel, ran: Counter[str]) -> None:
        self.session = session
        self.model = model
        self.ran = ran

    @classmethod
    async def begin(cls, journal: Journal, checkpoints: Checkpoints) -> "Bench":
        ran: Counter[str] = Counter()
        model = ScriptedChatModel(script=answer)
        tools = [counting(name, ran) for name in "abc"]
        session = await Session.begin(journal, checkpoints, model, tools=tools)
        return cls(session, model, ran)

    async def ask(self) -> TurnLease:
        await self.session.journal.inbox.accept(
            THREAD, HumanMessage("Go!"), ids=self.session.ids, now=self.session.tick()
        )
        return await self.session.claim()

    async def run_until(self, text: str, lease: TurnLease) -> None:
        """Let the graph work until it says something, store nothing of it, and stop it there."""
        batch = await self.session.journal.messages.load_batch(THREAD, lease.turn.batch)
        events: Any = self.session.agent.run(self.session.run_of(batch))
        async with aclosing(events) as heard:
            await first_of(heard, text)
        self.ran.clear()

    async def store(self, lease: TurnLease, *messages: BaseMessage) -> None:
        """What the journal got before the process died."""
        now = self.session.tick()
        await self.session.journal.messages.append(lease, messages, ids=self.session.ids, now=now)

    async def go_on(self) -> None:
        """The next attempt, after the lease ran out."""
        self.session.now += 2 * LEASE
        await self.session.work()
        batch = await self.session.last_batch()
        assert batch.is_complete, batch.reasons
        assert all("Interrupted" not in message.text for message in batch.messages)
        for request in self.model.seen:
            assert request_problems(request) == []


async def first_of(events: AsyncIterator[Any], text: str) -> None:
    async for event in events:
        if isinstance(event, MessageFinished) and event.message.text == text:
            return


def counting(id: str, ran: Counter[str]) -> BaseTool:
    async def work() -> str:
        ran[id] += 1
        return f"{id} now"

    return tool(f"tool_{id}", description=f"Do {id}.")(work)


def answer(messages: list[BaseMessage]) -> AIMessage:
    results = [m for m in messages if isinstance(m, ToolMessage)]
    if not results:
        return CALLING.model_copy()
    return AIMessage("; ".join(sorted(m.text for m in results)))


async def test_a_lost_checkpoint_costs_no_tool(journal: Journal, checkpoints: Checkpoints) -> None:
    """With call and one result in the journal alone, only the open call runs."""
    bench = await Bench.begin(journal, checkpoints)
    lease = await bench.ask()
    await bench.store(lease, CALLING, result("a"))
    await bench.go_on()
    assert bench.ran == {"b": 1}
    assert (await bench.session.history())[-1] == "a before; b now"
    assert len(bench.model.seen) == 1


async def test_with_all_results_stored_only_the_model_is_asked(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """Nothing runs again, and the reply knows every result."""
    bench = await Bench.begin(journal, checkpoints)
    lease = await bench.ask()
    await bench.store(lease, CALLING, result("b"), result("a"))
    await bench.go_on()
    assert bench.ran == {}
    assert (await bench.session.history())[-1] == "a before; b before"


async def test_a_call_that_only_the_journal_has_is_not_made_again(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """The checkpoint still waits for the model; the journal has what the model said."""
    bench = await Bench.begin(journal, checkpoints)
    bench.model.script = [ValueError("dies here"), answer]
    lease = await bench.ask()
    with pytest.raises(ValueError, match="dies here"):
        await bench.run_until("never", lease)
    await bench.store(lease, CALLING, result("b"))
    await bench.go_on()
    assert bench.ran == {"a": 1}
    batch = await bench.session.last_batch()
    assert kinds(batch.messages) == ["human", "ai", "tool", "tool", "ai"]
    assert batch.messages[-1].text == "a now; b before"


async def test_a_second_call_that_only_the_journal_has_is_not_made_again(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """A checkpoint that is two steps behind is caught up."""
    bench = await Bench.begin(journal, checkpoints)
    lease = await bench.ask()
    await bench.run_until(CALLING.text, lease)
    await bench.store(lease, CALLING, result("a"), result("b"), AGAIN)
    await bench.go_on()
    assert bench.ran == {"c": 1}
    assert (await bench.session.history())[-1] == "a before; b before; c now"


async def test_a_result_that_only_the_journal_has_is_used(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """The checkpoint has the call and no result: the tool whose result is stored stays still."""
    bench = await Bench.begin(journal, checkpoints)
    lease = await bench.ask()
    await bench.run_until(CALLING.text, lease)
    await bench.store(lease, CALLING, result("a"))
    await bench.go_on()
    assert bench.ran == {"b": 1}
    batch = await bench.session.last_batch()
    assert [m.text for m in batch.messages if isinstance(m, ToolMessage)] == ["a before", "b now"]


async def test_a_stored_result_answers_its_own_call_only(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """A later message that uses the call's id again gets a result of its own."""
    bench = await Bench.begin(journal, checkpoints)
    later = AIMessage("", id="later", tool_calls=[call("a")])
    bench.model.script = [later, "Done."]
    lease = await bench.ask()
    await bench.store(lease, CALLING, result("a"), result("b"))
    await bench.go_on()
    assert bench.ran == {"a": 1}
    texts = [m.text for m in (await bench.session.last_batch()).messages]
    assert texts == ["Go!", "Let me see.", "a before", "b before", "", "a now", "Done."]


async def test_calls_that_share_an_id_run_again(journal: Journal, checkpoints: Checkpoints) -> None:
    """Of two calls with one id it is not known which one the stored result belongs to."""
    bench = await Bench.begin(journal, checkpoints)
    first, second = (ToolCall(**{**call(name), "id": "same"}) for name in "ab")
    calling = AIMessage("Both.", id="calling", tool_calls=[first, second])
    bench.model.script = [calling, "Done."]
    lease = await bench.ask()
    await bench.run_until("Both.", lease)
    await bench.store(lease, calling, ToolMessage("?", tool_call_id="same"))
    await bench.go_on()
    assert bench.ran == {"a": 1, "b": 1}


async def test_a_renamed_message_is_known_again(journal: Journal, checkpoints: Checkpoints) -> None:
    """An id that an older turn had, too, is stored under another name; its results are found."""
    bench = await Bench.begin(journal, checkpoints)
    await bench.store(await bench.ask(), AIMessage("Old.", id="calling"))
    bench.session.now += 2 * LEASE
    await bench.session.work()
    lease = await bench.ask()
    await bench.run_until(CALLING.text, lease)
    await bench.store(lease, CALLING, result("a"))
    await bench.go_on()
    assert bench.ran == {"b": 1}
    batch = await bench.session.last_batch()
    assert kinds(batch.messages) == ["human", "ai", "tool", "tool", "ai"]


async def test_a_reply_that_is_stored_is_not_given_again(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """With the whole batch in the journal and no checkpoint, the turn just ends."""
    bench = await Bench.begin(journal, checkpoints)
    lease = await bench.ask()
    await bench.store(lease, AIMessage("Yes.", id="reply"))
    await bench.go_on()
    assert bench.model.seen == []
    assert await bench.session.history() == ["Go!", "Yes."]


async def test_a_question_is_asked_again_without_its_checkpoint(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """An answer without a checkpoint leads to the question again, and then to the end."""

    @tool
    async def order() -> str:
        """Order it."""
        return f"ordered: {interrupt('Really?')}"

    calling = AIMessage("", tool_calls=[ToolCall(name="order", args={}, id="o", type="tool_call")])
    model = ScriptedChatModel(script=[calling, "Done."])
    session = await Session.begin(journal, checkpoints, model, tools=[order])
    await session.say("Order it.")
    batch = await session.last_batch()
    await session.agent.forget(batch.id)
    answered = session.run_of(batch, answer="yes")
    [question] = [event async for event in session.agent.run(answered)]
    assert isinstance(question, Question)
    assert streamed([event async for event in session.agent.run(answered)]) == "Done."
    assert len(model.seen) == 2


async def test_a_question_of_a_renamed_message_is_answered(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """A model that gives every message one id does not make the agent forget what it asked."""
    asked: list[str] = []

    @tool
    async def order() -> str:
        """Order it."""
        asked.append("begun")
        return f"ordered: {interrupt('Really?')}"

    calls = [ToolCall(name="order", args={}, id="o", type="tool_call")]
    calling = AIMessage("", id="x", tool_calls=calls)
    model = ScriptedChatModel(script=[AIMessage("Hi.", id="x"), calling, "Done."])
    session = await Session.begin(journal, checkpoints, model, tools=[order])
    await session.say("Hello.")
    await session.say("Order it.")
    answered = session.run_of(await session.last_batch(), answer="yes")
    assert streamed([event async for event in session.agent.run(answered)]) == "Done."
    assert asked == ["begun"] * 2
