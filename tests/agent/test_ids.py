"""What messages are called, also where a provider gives the same id to every one."""

import re

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import tool

from segue.agent.checkpoints.store import Checkpoints
from segue.agent.ids import id_in_thread, unused_id
from segue.agent.scripted import ScriptedChatModel
from segue.events import MessageDelta
from segue.journal.journal import Journal
from segue.runtime.run import MessageFinished, Token
from segue.simulate.world import Stage
from tests.agent.session import LEASE, THREAD, Session, kinds
from tests.stories.scenes import listening

pytestmark = pytest.mark.anyio


@tool
async def double(number: int) -> str:
    """Double a number."""
    return str(2 * number)


def calling(number: int) -> AIMessage:
    call = ToolCall(name="double", args={"number": number}, id=f"c{number}", type="tool_call")
    return AIMessage("I count.", id="same", tool_calls=[call])


async def test_a_constant_id_loses_nothing_within_a_turn(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """Calls, results and reply are all stored, in this turn and in the next."""
    turn = [calling(1), calling(2), AIMessage("Done.", id="same")]
    session = await Session.begin(
        journal, checkpoints, ScriptedChatModel(script=turn * 2), tools=[double]
    )
    for _ in range(2):
        await session.say("Go!")
        batch = await session.last_batch()
        assert batch.is_complete
        assert kinds(batch.messages) == ["human", "ai", "tool", "ai", "tool", "ai"]
        assert [m.text for m in batch.messages if isinstance(m, ToolMessage)] == ["2", "4"]
    ids = [m.id for batch in await session.batches() for m in batch.messages]
    assert len(set(ids)) == len(ids)


async def test_pieces_bear_the_id_of_their_message(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """Listeners can tell whose pieces they are, and find the message in the history."""
    turn = [calling(1), AIMessage("It is two.", id="same")]
    session = await Session.begin(
        journal, checkpoints, ScriptedChatModel(script=turn * 2), tools=[double]
    )
    for _ in range(2):
        events = await session.say("Go!")
        said = {e.message.id: e.message.text for e in events if isinstance(e, MessageFinished)}
        pieces = dict.fromkeys((e.message_id for e in events if isinstance(e, Token)), "")
        for event in events:
            if isinstance(event, Token):
                pieces[event.message_id] += event.text
        assert list(pieces.values()) == ["I count.", "It is two."]
        assert pieces.items() <= said.items()
        stored = {m.id for m in (await session.last_batch()).messages}
        assert pieces.keys() <= stored


async def test_a_constant_id_loses_nothing_that_goes_on_from_the_journal(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """The journal has other names than the graph had; a new message is told apart from them."""
    model = ScriptedChatModel(script=[AIMessage("It is two.", id="same")])
    session = await Session.begin(journal, checkpoints, model, tools=[double])
    now = session.tick()
    await journal.inbox.accept(THREAD, HumanMessage("Go!"), ids=session.ids, now=now)
    lease = await session.claim()
    stored = calling(1).model_copy(update={"id": id_in_thread("same", lease.turn.batch)})
    result = ToolMessage("2", tool_call_id="c1", id="result")
    await journal.messages.append(lease, [stored, result], ids=session.ids, now=session.tick())
    session.now += 2 * LEASE
    await session.work()
    batch = await session.last_batch()
    assert batch.is_complete
    assert [m.text for m in batch.messages] == ["Go!", "I count.", "2", "It is two."]


async def test_messages_of_an_agent_have_ids_of_ours(stage: Stage) -> None:
    """Made of the batch, neither a provider's nor LangChain's; pieces and history agree on it."""
    models = {"guide": ScriptedChatModel(script=lambda _: AIMessage("Fine."))}
    async with stage.world(models=models) as world:
        thread = (await world.segue.create_thread("ann")).id
        async with listening(world, thread) as listener:
            await world.say(thread, "How are you?")
            await world.say(thread, "And now?")
        page = await world.segue.history(thread)
        replies = [m for m in page.messages if isinstance(m, AIMessage)]
        written = {e.message_id for e in listener.events if isinstance(e, MessageDelta)}
    for reply in replies:
        assert re.fullmatch(rf"{reply.additional_kwargs['batch']}-[0-9a-f]{{12}}", reply.id or "")
    assert {reply.id for reply in replies} == written
    assert len(replies) == 2


def test_a_new_id_is_the_first_that_is_free() -> None:
    """The same ids give the same result."""
    assert unused_id("a", {"b"}, 7) == "a"
    assert unused_id("a", {"a", "a-2"}, 7) == "a-3"
    assert unused_id("a", {id_in_thread("a", 7), "a-2"}, 7) == "a-3"
    assert unused_id("a", {"a"}, None) == "a-2"
