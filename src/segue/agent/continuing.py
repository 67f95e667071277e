"""`continue_later`: the tool with which an agent goes on by itself, later, in the same batch."""

from typing import Annotated

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool

from segue.agent.run import Run, current_run
from segue.core.metadata import BatchType, MessageMetadata

_LONGEST_SECONDS = 7 * 24 * 3600


def continue_tool(most: int) -> BaseTool:
    """The tool, for an agent that may go on so many times in one batch."""

    @tool
    async def continue_later(
        after_seconds: float, reason: str, tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> ToolMessage:
        """Go on with this work by yourself after some time, for example to look again at
        something that takes a while. Say in the reason what is left to do.
        """
        if reason_against := _refusal(current_run(), most):
            return _answer(tool_call_id, reason_against, "error")
        if not 0 <= after_seconds <= _LONGEST_SECONDS:
            return _answer(
                tool_call_id, f"after_seconds must be from 0 to {_LONGEST_SECONDS}.", "error"
            )
        del reason  # kept with the call
        noted = _answer(tool_call_id, f"You will go on in {after_seconds:g} s.", "success")
        return MessageMetadata(continue_requested=True).onto(noted)

    return continue_later


def _refusal(run: Run | None, most: int) -> str | None:
    if run is None:
        return None
    if run.batch.type is BatchType.SYSTEM_TRIGGER:
        # It would speak unasked once more, past all gates.
        return "You spoke first here; say all of it now, and wait for the user."
    if continuations_of(run) >= most:
        return f"You went on {most} times already; come to an end now."
    return None


def continuations_of(run: Run) -> int:
    """How often the batch was gone on with."""
    return sum(
        isinstance(message, HumanMessage)
        and MessageMetadata.of(message).batch_type is BatchType.CONTINUATION
        for message in run.batch.messages
    )


def _answer(call_id: str, text: str, status: str) -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id, name="continue_later", status=status)
