"""Tool results for the graph: each answers its call and can be stored.

Which tools run, and for how long, is up to `segue.agent.middleware`.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final, cast

from langchain.agents.middleware import ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command

from segue.agent.current import current_run
from segue.agent.ids import is_same_message
from segue.core.calls import pair
from segue.core.metadata import is_settled
from segue.runtime.model_failures import describe_fault

logger = logging.getLogger(__name__)

# Refuse the third identical call if the first two gave the same result.
_SAME_RESULTS: Final = 2
# The one that savers use.
_SERIALIZER: Final = JsonPlusSerializer()

ToolResult = ToolMessage | Command[Any]


def find_result(request: ToolCallRequest) -> ToolMessage | None:
    """The result of a call that must not run: it is stored already, or keeps giving the same."""
    return _stored_result(request) or _refusal(request)


def valid_result(request: ToolCallRequest, result: ToolResult) -> ToolResult:
    """The result with the right call id, and without what cannot be stored."""
    if isinstance(result, list):  # allowed, though LangChain's types do not say so
        # LangGraph has checked that exactly one of them answers the call.
        kept = [_storable(request, one) if isinstance(one, ToolMessage) else one for one in result]
        return cast("ToolResult", kept)
    if not isinstance(result, ToolMessage):
        return result
    if result.tool_call_id != request.tool_call["id"]:
        result = result.model_copy(update={"tool_call_id": request.tool_call["id"] or ""})
    return _storable(request, result)


def error_result(
    request: ToolCallRequest, reason: str, error: BaseException | None = None
) -> ToolMessage:
    """A result that tells the model what went wrong; `error` is what the tool raised."""
    call = request.tool_call
    fault = "" if error is None else f": {describe_fault(error)}"
    logger.warning("Tool %s failed%s", call["name"], fault)
    # Only at DEBUG: the reason may quote the user.
    logger.debug("Tool %s failed: %s", call["name"], reason, exc_info=error)
    return ToolMessage(
        f"Error: {call['name']} failed. {reason}",
        tool_call_id=call["id"] or "",
        name=call["name"],
        status="error",
    )


def _storable(request: ToolCallRequest, result: ToolMessage) -> ToolMessage:
    """The result without what a checkpoint cannot hold."""
    if _can_be_stored(result):
        return result
    bare = result.model_copy(update={"artifact": None})
    if not _can_be_stored(bare):
        return error_result(request, "Its result holds something that cannot be stored.")
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


def _stored_result(request: ToolCallRequest) -> ToolMessage | None:
    """The result of this call that an earlier attempt at the batch stored in the journal."""
    run = current_run()
    calling = [message for message in _messages(request) if isinstance(message, AIMessage)][-1:]
    if run is None or not calling:
        return None
    results = [
        exchange.result
        for exchange in run.batch.pairing.exchanges
        if exchange.call.id == request.tool_call["id"]
        and is_same_message(exchange.message, calling[0], run.batch)
    ]
    # If calls share an id, their results cannot be distinguished.
    result = results[0] if len(results) == 1 else None
    return None if result is None or is_settled(result) else result


def _refusal(request: ToolCallRequest) -> ToolMessage | None:
    """An error for a call that keeps giving the same result, so that the model does not loop."""
    results = _earlier_results(request)
    if len(results) < _SAME_RESULTS or len(set(results)) > 1:
        return None
    return error_result(request, "It was called like this before, and the result does not change.")


def _earlier_results(request: ToolCallRequest) -> list[str]:
    """The results of the same call since the last human message."""
    call, messages = request.tool_call, _messages(request)
    humans = [n for n, message in enumerate(messages) if isinstance(message, HumanMessage)]
    return [
        str(exchange.result.content)
        for exchange in pair(messages[max(humans, default=-1) + 1 :]).exchanges
        if exchange.result is not None
        and (exchange.call.name, exchange.call.args) == (call["name"], call["args"])
    ]


def _messages(request: ToolCallRequest) -> Sequence[BaseMessage]:
    state: Any = request.state
    return [*state["messages"]] if isinstance(state, dict) else []
