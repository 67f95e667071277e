"""Results that tools give in odd ways: each answers its call, and none fails the turn."""

import logging
import threading
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.types import Command

from segue.agent.checkpoints.store import Checkpoints
from segue.agent.scripted import ScriptedChatModel
from segue.journal.journal import Journal
from tests.agent.session import Session, kinds

pytestmark = pytest.mark.anyio


async def result_of(given: BaseTool, journal: Journal, checkpoints: Checkpoints) -> ToolMessage:
    """What the journal keeps of one call; the turn has ended well."""
    calls = [ToolCall(name=given.name, args={}, id="c", type="tool_call")]
    model = ScriptedChatModel(script=[AIMessage("", tool_calls=calls), "Done."])
    session = await Session.begin(journal, checkpoints, model, tools=[given])
    await session.say("Go!")
    batch = await session.last_batch()
    assert batch.is_complete
    assert kinds(batch.messages) == ["human", "ai", "tool", "ai"]
    assert await session.history() == ["Go!", "Done."]
    result = batch.messages[2]
    assert isinstance(result, ToolMessage)
    assert result.tool_call_id == "c"
    return result


@pytest.mark.parametrize("artifact", [threading.Lock(), 1 << 70, {"deep": [lambda: None]}])
async def test_an_artifact_that_cannot_be_stored_is_dropped(
    journal: Journal, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture, artifact: Any
) -> None:
    """The model gets the words all the same, and the log says what is missing."""

    @tool(response_format="content_and_artifact")
    async def fetch() -> tuple[str, Any]:
        """Fetch it."""
        return "Fetched.", artifact

    result = await result_of(fetch, journal, checkpoints)
    assert (result.text, result.status, result.artifact) == ("Fetched.", "success", None)
    [warning] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "artifact of tool fetch" in warning


async def test_an_artifact_is_kept(journal: Journal, checkpoints: Checkpoints) -> None:
    """What can be stored comes back as it was."""

    @tool(response_format="content_and_artifact")
    async def fetch() -> tuple[str, Any]:
        """Fetch it."""
        return "Fetched.", {"rows": [1, 2]}

    assert (await result_of(fetch, journal, checkpoints)).artifact == {"rows": [1, 2]}


async def test_content_that_cannot_be_stored_is_an_error_result(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """Without its words there is no result, and the model is told so."""

    @tool
    async def fetch(tool_call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
        """Fetch it."""
        block = {"type": "text", "text": "Fetched.", "lock": threading.Lock()}
        return ToolMessage.model_construct(content=[block], tool_call_id=tool_call_id)

    result = await result_of(fetch, journal, checkpoints)
    assert result.status == "error"
    assert "cannot be stored" in result.text


async def test_a_result_with_a_foreign_id_answers_its_call(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """A tool that makes up the id is corrected: it was called once, and this is the answer."""

    @tool
    async def fetch() -> ToolMessage:
        """Fetch it."""
        return ToolMessage("Fetched.", tool_call_id="made-up")

    result = await result_of(fetch, journal, checkpoints)
    assert (result.text, result.status) == ("Fetched.", "success")


async def test_a_command_that_answers_no_call_is_an_error_result(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """It is not known which of a command's messages was meant, so the model gets an error."""

    @tool
    async def fetch() -> Command[Any]:
        """Fetch it."""
        return Command(update={"messages": [ToolMessage("Fetched.", tool_call_id="made-up")]})

    result = await result_of(fetch, journal, checkpoints)
    assert result.status == "error"


async def test_a_tool_may_give_several_results(journal: Journal, checkpoints: Checkpoints) -> None:
    """A list with one answer among its parts is taken as it is, but for what cannot be stored."""

    @tool
    async def fetch(tool_call_id: Annotated[str, InjectedToolCallId]) -> list[Any]:
        """Fetch it."""
        answer = ToolMessage("Fetched.", tool_call_id=tool_call_id, artifact=threading.Lock())
        return [answer, Command(update={})]

    result = await result_of(fetch, journal, checkpoints)
    assert (result.text, result.artifact) == ("Fetched.", None)
