"""OpenAI's chat completions: agents are models, and the last message of the user is sent.

The server keeps the history, so only the last message of a request is read. A header names the
conversation; without one, each request starts a new one. Unsupported parameters that change the
response are refused; sampling parameters are ignored, because the agent's settings decide.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Any, Final

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from segue.core.messages import spoken_text, user_message
from segue.core.snowflake import time_of, to_text
from segue.errors import BackendError, ConflictError, NotFoundError, UsageError
from segue.events import (
    Event,
    MessageDelta,
    MessageStored,
    Payload,
    QuestionAsked,
    TurnFailed,
)
from segue.facade import Segue
from segue.journal.records import Thread, Turn
from segue.server.access import CallerDep, SegueDep
from segue.server.chats import (
    NO_RETRY,
    check_new_message,
    find_question,
    hear_reply,
    message_in,
    open_chat,
    question_text,
)
from segue.server.connections import STILL_HERE, EventStream, StreamDep, data_line
from segue.server.middleware import authenticated_router
from segue.server.problems import ApiError, Problem, logged_problem
from segue.server.routes.messages import accept_message

PREFIX: Final = "/v1"
THREAD_HEADER: Final = "Segue-Thread"
_KEY_HEADER: Final = "Idempotency-Key"
# Sent by Open WebUI, if it forwards the headers of its users.
_OPEN_WEBUI: Final = "X-OpenWebUI-Chat-Id"
# Marks requests of the client itself, such as for a title.
_TASK_HEADER: Final = "Segue-Task"
_DONE: Final = b"data: [DONE]\n\n"

# The agent's settings decide these, or they are notes for OpenAI itself.
_IGNORED: Final = frozenset(
    {
        *("frequency_penalty", "presence_penalty", "temperature", "top_p", "seed", "verbosity"),
        *("max_completion_tokens", "max_tokens", "reasoning_effort", "parallel_tool_calls"),
        *("metadata", "prediction", "prompt_cache_key", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "store", "user"),
    }
)
# What asks for something else than the agent's words, besides null, and the values that do not.
_REFUSED: Final[Mapping[str, tuple[Any, ...]]] = {
    "audio": (),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "n": (1,),
    "response_format": ({"type": "text"},),
    "stop": ([],),
    "tool_choice": ("auto", "none"),
    "tools": ([],),
    "top_logprobs": (0,),
    "web_search_options": (),
}
_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

router = authenticated_router(PREFIX, "openai", in_schema=False)


class StreamOptions(BaseModel):
    """How to stream; other options are ignored."""

    include_usage: bool | None = None


class ChatMessage(BaseModel):
    """A message of the request; only the last one is read further."""

    role: str
    content: Any = None


def _check_some(messages: list[ChatMessage]) -> list[ChatMessage]:
    if not messages:
        raise PydanticCustomError("expected", "expected at least one message")
    return messages


class ChatIn(BaseModel):
    """A request for a completion; `model_extra` has the parameters that are ignored or refused."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(max_length=200)
    messages: Annotated[list[ChatMessage], AfterValidator(_check_some)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    def check_parameters(self) -> None:
        """`ApiError` for unsupported parameters."""
        for name, value in (self.model_extra or {}).items():
            if value is None or name in _IGNORED:
                continue
            if name not in _REFUSED:
                detail = f"Unknown parameter {name!r:.60}."
                raise ApiError(422, "unknown_parameter", detail)
            if value not in _REFUSED[name]:
                detail = f"An agent cannot honour {name}={value!r:.60}; leave it out."
                raise ApiError(422, "unsupported_parameter", detail)

    @property
    def content(self) -> Any:
        """The user's message; `UsageError` if the last message is not the user's."""
        last = self.messages[-1]
        if last.role != "user":
            raise UsageError(
                f"The last message is of role {last.role!r:.60}; an agent answers a user's message."
            )
        return last.content

    @property
    def has_history(self) -> bool:
        return any(message.role == "assistant" for message in self.messages)


@router.get("/models")
async def list_models(segue: SegueDep, _: CallerDep) -> JSONResponse:
    """The agents."""
    return JSONResponse({"object": "list", "data": [_model(each.id) for each in segue.agents]})


@router.get("/models/{model:path}")
async def get_model(segue: SegueDep, _: CallerDep, model: str) -> JSONResponse:
    """One agent."""
    return JSONResponse(_model(_find_agent(segue, model)))


@router.post("/chat/completions")
async def create_chat_completion(
    request: Request,
    segue: SegueDep,
    caller: CallerDep,
    wanted: ChatIn,
    live: StreamDep,
) -> Response:
    """Send the last message to an agent; the reply is the completion."""
    wanted.check_parameters()
    agent, content = _find_agent(segue, wanted.model), wanted.content
    headers = request.headers
    if task := headers.get(_TASK_HEADER):
        raise UsageError(f"This is a task of the client ({task!r:.60}); agents answer people.")
    name = headers.get(THREAD_HEADER) or headers.get(_OPEN_WEBUI)
    if name is None and wanted.has_history:
        raise UsageError(
            "The request has earlier messages but names no conversation. The server keeps the "
            f"history: name the conversation in the header {THREAD_HEADER}."
        )
    check_new_message(request, content, headers.get(_KEY_HEADER), _KEY_HEADER)
    thread = await open_chat(segue, caller, agent, name or _name_by_key(headers))
    turn = await _send(request, segue, thread, content)
    usage = wanted.stream_options and wanted.stream_options.include_usage
    completion = Completion(segue, turn, include_usage=bool(usage))
    heard = hear_reply(segue, turn, live)
    named = {THREAD_HEADER: thread.id}
    if wanted.stream:
        return EventStream(completion.stream(heard), named, _error_line)
    try:
        return JSONResponse(await completion.whole(heard), headers=named)
    except BackendError as error:
        problem = logged_problem(error, f"Reading the reply of turn {turn.id}")
        raise ApiError(problem.status, problem.code, problem.detail, NO_RETRY) from error


def _name_by_key(headers: Mapping[str, str]) -> str | None:
    """The name of a chat without one, from its key: a repeated request begins no second chat."""
    key = headers.get(_KEY_HEADER)
    return f"key-{sha256(key.encode()).hexdigest()}" if key else None


async def _send(request: Request, segue: Segue, thread: Thread, content: Any) -> Turn:
    """Store the message, or answer the question that the agent asked in words; the turn replies."""
    key = request.headers.get(_KEY_HEADER)
    if key and (sent := await segue.find_sent(thread, key)):
        return sent  # a repeated request neither answers nor says anything
    words = _words_of(content)
    question = await find_question(segue, thread) if words else None
    if question is not None and len((question.ending or {}).get("questions", ())) == 1:
        try:
            return await segue.answer(question, words, client_message_id=key)
        except ConflictError:
            if key and (sent := await segue.find_sent(thread, key)):
                return sent  # repeated at the same moment
            raise
    new = message_in(content, key)
    return (await accept_message(request, thread, new)).turn


def _words_of(content: Any) -> str:
    """What a message says that is text alone, which some clients send in parts; else nothing."""
    message = user_message(content)
    blocks = message.content if isinstance(message.content, list) else []
    has_media = any(isinstance(block, dict) and block["type"] != "text" for block in blocks)
    return "" if has_media else message.text


@dataclass
class Completion:
    """The reply of a turn as OpenAI writes it. Several messages become paragraphs."""

    segue: Segue
    turn: Turn
    include_usage: bool = False
    # Characters that were sent of each message.
    _sent: dict[str, int] = field(default_factory=dict)

    async def stream(self, heard: AsyncGenerator[Event | None]) -> AsyncGenerator[bytes]:
        """The pieces as they are written."""
        yield self._chunk({"role": "assistant", "content": ""})
        async with aclosing(self._pieces(heard)) as pieces:
            async for piece in pieces:
                yield STILL_HERE if piece is None else self._chunk({"content": piece})
        yield self._chunk({}, "stop")
        if self.include_usage:
            usage = await self._usage()
            yield data_line({**self._head("chat.completion.chunk"), "choices": [], "usage": usage})
        yield _DONE

    async def whole(self, heard: AsyncGenerator[Event | None]) -> dict[str, Any]:
        async with aclosing(self._pieces(heard)) as pieces:
            text = "".join([piece async for piece in pieces if piece is not None])
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        usage = await self._usage()
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage}

    async def _pieces(self, heard: AsyncGenerator[Event | None]) -> AsyncGenerator[str | None]:
        """The text of the turn, None after each interval of silence; `ApiError` if it fails."""
        async with aclosing(heard) as events:
            async for event in events:
                if event is None:
                    yield None
                elif piece := self._piece(event.payload):
                    yield piece

    def _piece(self, payload: Payload) -> str:
        match payload:
            case MessageDelta(message_id, offset, text):
                return self._new_part(message_id, offset, text)
            case MessageStored(message):
                return self._new_part(message.id or "", 0, spoken_text(message))
            case QuestionAsked(_, questions):
                texts = map(question_text, questions.values())
                return self._new_part("question", 0, "\n\n".join(texts))
            case TurnFailed(code, reason):
                raise ApiError(502, code, reason, NO_RETRY)
        return ""

    def _new_part(self, message_id: str, offset: int, text: str) -> str:
        sent = self._sent.get(message_id, 0)
        part = text[max(sent - offset, 0) :]
        if not part:
            return ""
        space = "\n\n" if self._sent and message_id not in self._sent else ""
        self._sent[message_id] = offset + len(text)
        return space + part

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return data_line({**self._head("chat.completion.chunk"), "choices": [choice]})

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{to_text(self.turn.id)}",
            "object": kind,
            "created": int(time_of(self.turn.id).timestamp()),
            "model": self.turn.agent_id,
        }

    async def _usage(self) -> dict[str, int]:
        used = await self.segue.token_usage(self.turn)
        return {
            "prompt_tokens": used["input_tokens"],
            "completion_tokens": used["output_tokens"],
            "total_tokens": used["total_tokens"],
        }


def error_body(problem: Problem) -> dict[str, Any]:
    """An error as OpenAI writes it."""
    kind = "server_error" if problem.status >= 500 else "invalid_request_error"
    kind = _TYPES.get(problem.status, kind)
    error = {"message": problem.detail, "type": kind, "param": None, "code": problem.code}
    return {"error": error}


def _error_line(problem: Problem) -> bytes:
    return data_line(error_body(problem))


def _model(agent_id: str) -> dict[str, Any]:
    return {"id": agent_id, "object": "model", "created": 0, "owned_by": "segue"}


def _find_agent(segue: Segue, model: str) -> str:
    if model not in {agent.id for agent in segue.agents}:
        raise NotFoundError(f"There is no agent {model!r:.60}; GET {PREFIX}/models lists them.")
    return model
