"""Conversations of clients that choose the ids themselves, as most chat protocols do.

A chat is named by its client; here it is a thread of the caller. Two callers, or two agents, may
use the same name for separate threads, so a name reveals nothing about others.
"""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage
from pydantic_core import to_json
from starlette.requests import HTTPConnection

from segue.core.messages import user_message
from segue.core.metadata import MessageMetadata
from segue.core.text import check_name, plain_json
from segue.errors import ConflictError, NotFoundError
from segue.events import (
    Event,
    ListenerLagged,
    MessageRetracted,
    MessageStored,
    Payload,
    TurnEnded,
    cursor_at,
)
from segue.facade import Segue
from segue.journal.records import Thread, Turn
from segue.server.access import get_own_thread
from segue.server.auth import Caller
from segue.server.connections import LiveConnection, own_events
from segue.server.problems import ApiError
from segue.server.requests import MessageIn
from segue.server.routes.messages import check_content

# OpenAI's client repeats a failed request, whose message is already stored.
NO_RETRY: Final = {"X-Should-Retry": "false"}


async def open_chat(segue: Segue, caller: Caller, agent_id: str, name: str | None) -> Thread:
    """The caller's thread with an agent that a client calls `name`, which may be the thread's id;
    it is created if it is new. Without a name, a new thread.

    `NotFoundError` if there is no such agent, `ConflictError` if the thread is with another one.
    """
    agent = segue.get_agent(agent_id).id
    if name is None:
        return await segue.create_thread(caller.user_id, agent)
    check_name(name, "The name of a conversation")
    try:
        thread = await get_own_thread(segue, caller, name)
    except NotFoundError:
        digest = hashlib.sha256("\0".join((caller.user_id, agent, name)).encode()).hexdigest()
        return await segue.create_thread(caller.user_id, agent, thread_id=f"chat-{digest[:32]}")
    if thread.agent_id != agent:
        raise ConflictError(
            f"Thread {name!r:.60} is with agent {thread.agent_id!r}, not {agent!r}."
        )
    return thread


def check_new_message(
    connection: HTTPConnection, content: Any, message_id: Any, name: str = "The id of a message"
) -> None:
    """Raises if this cannot be a user's message with an id of the client's choice, if any; before a
    thread is created for it. `name` is what the client calls the id.
    """
    if message_id is not None:
        check_name(message_id, name)
    user_message(content)
    check_content(connection, content)


def message_in(content: Any, message_id: str | None) -> MessageIn:
    """A message that was checked, by the id that its client chose."""
    return MessageIn.model_construct(content=content, client_message_id=message_id)


async def find_question(segue: Segue, thread: Thread) -> Turn | None:
    """The turn of a thread that waits for an answer, if there is one."""
    return next(iter(await segue.list_turns(thread, limit=1, only_waiting=True)), None)


def question_text(question: Any) -> str:
    """A question of an agent in words: its text, or all of it as JSON."""
    return question if isinstance(question, str) else to_json(plain_json(question)).decode()


async def hear_reply(
    segue: Segue, turn: Turn, live: LiveConnection
) -> AsyncGenerator[Event | None]:
    """The events of a turn, up to its `TurnEnded`; None after each interval of silence. From the
    beginning of its batch: a message that was sent before has been answered already.

    `ApiError` if the server stops first.
    """
    own = partial(_is_of_turn, turn)
    async with aclosing(own_events(segue, turn, cursor_at(turn.batch), live, own)) as heard:
        async for event in heard:
            yield event
            if event is not None and isinstance(event.payload, TurnEnded):
                return
    raise ApiError(
        503, "stopping", "The server stops; the reply will be in the conversation.", NO_RETRY
    )


def _is_of_turn(turn: Turn, payload: Payload) -> bool:
    """Whether something that happened in a thread belongs to a turn."""
    match payload:
        case MessageStored(message):
            return _is_reply(message, turn)
        case MessageRetracted() | ListenerLagged():  # perhaps
            return True
    return getattr(payload, "turn_id", None) == turn.id


def _is_reply(message: BaseMessage, turn: Turn) -> bool:
    metadata = MessageMetadata.of(message)
    # Positions before the turn's id belong to earlier turns of its batch.
    is_after = (metadata.position or 0) >= turn.id
    return isinstance(message, AIMessage) and metadata.batch == turn.batch and is_after
