"""What a tool gave back, made fit for the graph: it answers its call, and it can be stored.

Which tools run, and for how long, is `segue.agent.middleware`'s.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

from langchain.agents.middleware import ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command

from segue.agent.faults import describe_fault
from segue.agent.ids import is_same
from segue.agent.run import current_run
from segue.core.calls import Exchange, pair
from segue.core.metadata import is_settled

logger = logging.getLogger(__name__)

# The third time the same thing is called in the same way, the answer will not change.
_SAME_RESULTS: Final = 2
# As the savers do it.
_SERIALIZER: Final = JsonPlusSerializer()

ToolResult = ToolMessage | Command[Any]


def known_result(request: ToolCallRequest) -> ToolMessage | None:
    """The answer to a call that need not run: it was stored before a crash, or is no news."""
    return _stored(request) or _refused(request)


def fitting(request: ToolCallRequest, result: Any) -> Any:
    """The result as the graph can take it. A tool may give several, messages and commands."""
    if isinstance(result, list):
        # LangGraph has made sure that exactly one of them answers the call.
        return [_kept(request, one) if isinstance(one, ToolMessage) else one for one in result]
    if not isinstance(result, ToolMessage):
        return result
    if result.tool_call_id != request.tool_call["id"]:
        result = result.model_copy(update={"tool_call_id": request.tool_call["id"] or ""})
    return _kept(request, result)


def failed(
    request: ToolCallRequest, reason: str, error: BaseException | None = None
) -> ToolMessage:
    """An error result that tells the model what went wrong; `error` is what the tool raised."""
    call = request.tool_call
    # The reason may quote what the user said.
    if error is None:
        logger.warning("Tool %s failed", call["name"])
    else:
        logger.warning("Tool %s failed: %s", call["name"], describe_fault(error))
    logger.debug("Tool %s failed: %s", call["name"], reason, exc_info=error)
    return ToolMessage(
        f"Error: {call['name']} failed. {reason}",
        tool_call_id=call["id"] or "",
        name=call["name"],
        status="error",
    )


def _kept(request: ToolCallRequest, result: ToolMessage) -> ToolMessage:
    """The result without what no checkpoint can hold."""
    if _can_be_stored(result):
        return result
    bare = result.model_copy(update={"artifact": None})
    if not _can_be_stored(bare):
        return failed(request, "Its result holds something that cannot be stored.")
    logger.warning(
        "The artifact of tool %s cannot be stored and is dropped: %s",
        request.tool_call["name"],
        type(result.artifact).__name__,
    )
    return bare


def _can_be_stored(result: ToolMessage) -> bool:
    try:
        _SERIALIZER.dumps_typed(result)
    except Exception:  # noqa: BLE001 - any object, any error
        return False
    return True


def _stored(request: ToolCallRequest) -> ToolMessage | None:
    """The result of this very call that an earlier run of the batch got as far as the journal."""
    run, calling = current_run(), _calling(request)
    if run is None or calling is None:
        return None
    stored = [e for e in run.batch.pairing.exchanges if is_same(e.message, calling, run.batch)]
    own = [e for e in stored if e.call.id == request.tool_call["id"]]
    # Of calls that share an id nobody can say whose result it is.
    return _real_result(own[0]) if len(own) == 1 else None


def _real_result(exchange: Exchange) -> ToolMessage | None:
    result = exchange.result
    return None if result is None or is_settled(result) else result


def _calling(request: ToolCallRequest) -> AIMessage | None:
    """The message that the call is part of."""
    said = [message for message in _messages(request) if isinstance(message, AIMessage)]
    return said[-1] if said else None


def _refused(request: ToolCallRequest) -> ToolMessage | None:
    """An answer for a call that gave the same result before, so that no model goes in circles."""
    results = _earlier_results(request)
    if len(results) < _SAME_RESULTS or len(set(results)) > 1:
        return None
    return failed(request, "It was called like this before, and the result does not change.")


def _earlier_results(request: ToolCallRequest) -> list[str]:
    """What the same call gave since somebody last spoke: whoever goes on later may look again."""
    call, messages = request.tool_call, _messages(request)
    spoken = [n for n, message in enumerate(messages) if isinstance(message, HumanMessage)]
    return [
        str(exchange.result.content)
        for exchange in pair(messages[max(spoken, default=-1) + 1 :]).exchanges
        if exchange.result is not None
        and (exchange.call.name, exchange.call.args) == (call["name"], call["args"])
    ]


def _messages(request: ToolCallRequest) -> Sequence[BaseMessage]:
    found: Sequence[BaseMessage] = (
        request.state["messages"] if isinstance(request.state, dict) else []
    )
    return found
