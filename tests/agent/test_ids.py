"""Providers that give the same id to every message."""

import pytest
from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langchain_core.tools import tool

from segue.agent.checkpoints import Checkpoints
from segue.agent.ids import unused_id
from segue.agent.run import NewMessage, Token
from segue.agent.scripted import ScriptedChatModel
from segue.journal.ports import Journal
from tests.agent.session import Session, kinds

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
        said = {e.message.id: e.message.text for e in events if isinstance(e, NewMessage)}
        pieces = dict.fromkeys((e.message_id for e in events if isinstance(e, Token)), "")
        for event in events:
            if isinstance(event, Token):
                pieces[event.message_id] += event.text
        assert list(pieces.values()) == ["I count.", "It is two."]
        assert pieces.items() <= said.items()
        stored = {m.id for m in (await session.last_batch()).messages}
        assert pieces.keys() <= stored


def test_a_new_id_is_the_first_that_is_free() -> None:
    """Whoever asks with the same ids gets the same."""
    assert unused_id("a", {"b"}) == "a"
    assert unused_id("a", {"a", "a-2"}) == "a-3"
