"""`/mcp`: JSON-RPC over plain requests, MCP's streamable HTTP without sessions or streams.

A tool that fails reports it in its result, for the model to read; what is wrong with a request
itself is an error of JSON-RPC.
"""

from contextlib import AbstractAsyncContextManager, nullcontext
from importlib.metadata import version
from typing import Annotated, Any, Final

from fastapi import Header, Request, Response
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from segue.core.text import one_line, storable
from segue.errors import BackendError, SegueError
from segue.facade import Segue
from segue.server.access import CallerDep, SegueDep, slot_of
from segue.server.auth import Caller
from segue.server.mcp.tools import TOOLS, Tool
from segue.server.middleware import authenticated_router
from segue.server.problems import ApiError, Problem, describe_invalid, logged_problem

PATH: Final = "/mcp"
# The newest first; a client that asks for another one is offered it.
VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
_INVALID_REQUEST: Final = -32600
_NO_METHOD: Final = -32601
_INVALID_PARAMS: Final = -32602
_FAILED: Final = -32000
_INSTRUCTIONS: Final = (
    "Memories, reminders and conversations of one user with agents that may write first. "
    "`why` explains why an agent wrote, or did not."
)
Json = dict[str, Any]

router = authenticated_router(PATH, "mcp", in_schema=False)


class CallError(Exception):
    """A request that JSON-RPC answers with an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@router.post("")
async def call(
    request: Request,
    segue: SegueDep,
    caller: CallerDep,
    mcp_protocol_version: Annotated[str | None, Header()] = None,
) -> Response:
    """Answer one message of JSON-RPC; a notification is only accepted."""
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise ApiError(415, "content_type", "Send JSON, as Content-Type: application/json.")
    try:
        message = await request.json()
    except (ValueError, RecursionError):
        raise ApiError(400, "unreadable", "The body is not valid JSON.") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ApiError(400, "unreadable", "Expected one message of JSON-RPC 2.0.")
    if "id" not in message or "method" not in message:  # a notification, or a client's answer
        return Response(status_code=202)
    number, method = message["id"], message["method"]
    is_text = isinstance(number, str) and number == storable(number)
    if not (is_text or isinstance(number, int)) or not isinstance(method, str):
        raise ApiError(400, "unreadable", "`id` is a text or a number, and `method` a text.")
    try:
        _check_version(method, mcp_protocol_version)
        params = message.get("params") or {}
        if not isinstance(params, dict):
            raise CallError(_INVALID_PARAMS, "`params` must be a JSON object.")
        result = await _answer(request, segue, caller, method, params)
    except CallError as error:
        return _reply(number, error={"code": error.code, "message": str(error)})
    except BackendError as error:  # an HTTP error would end the session of the official client
        problem = logged_problem(error, f"{one_line(method)} by {PATH}")
        return _reply(number, error={"code": _FAILED, "message": problem.detail})
    return _reply(number, result=result)


def _check_version(method: str, given: str | None) -> None:
    if method != "initialize" and given is not None and given not in VERSIONS:
        offered = ", ".join(VERSIONS)
        detail = f"MCP-Protocol-Version {given!r:.60} is not supported; supported are: {offered}."
        raise ApiError(400, "version", detail)


async def _answer(
    request: Request, segue: Segue, caller: Caller, method: str, params: Json
) -> Json:
    match method:
        case "initialize":
            return _initialize(params)
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [tool.described() for tool in TOOLS.values() if _may(caller, tool)]}
        case "tools/call":
            return await _call_tool(request, segue, caller, params)
    raise CallError(_NO_METHOD, f"There is no method {method!r:.60}.")


def _initialize(params: Json) -> Json:
    wanted = params.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "segue", "title": "Segue", "version": version("segue")},
        "instructions": _INSTRUCTIONS,
    }


def _may(caller: Caller, tool: Tool) -> bool:
    return not tool.for_programs or caller.is_program or caller.is_operator


async def _call_tool(request: Request, segue: Segue, caller: Caller, params: Json) -> Json:
    tool = TOOLS.get(str(params.get("name")))
    if tool is None:
        raise CallError(_INVALID_PARAMS, f"There is no tool {params.get('name')!r:.60}.")
    slot: AbstractAsyncContextManager[None] = nullcontext()
    if tool.slot is not None:
        slot = slot_of(request, caller, *tool.slot)
    try:
        given = tool.given.model_validate(params.get("arguments") or {})
        async with slot:
            return _result(await tool.handle(segue, caller, given))
    except ValidationError as error:
        return _failure(describe_invalid(error, "The arguments"))
    except BackendError:
        raise
    except SegueError as error:
        return _failure(str(error))


def _result(found: BaseModel | list[Any]) -> Json:
    """What a tool found: as data, and as text for clients that take only that."""
    shown = {"items": found} if isinstance(found, list) else found
    content = [{"type": "text", "text": to_json(shown).decode()}]
    return {"content": content, "structuredContent": shown, "isError": False}


def _failure(text: str) -> Json:
    return {"content": [{"type": "text", "text": storable(text)}], "isError": True}


def _reply(number: str | int, **outcome: Json) -> Response:
    body = to_json({"jsonrpc": "2.0", "id": number, **outcome})
    return Response(body, media_type="application/json")


def error_body(problem: Problem) -> Json:
    """A request that was refused before its message was read."""
    code = _INVALID_REQUEST if problem.status < 500 else _FAILED
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": problem.detail}}
