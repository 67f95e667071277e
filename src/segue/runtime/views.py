"""What operators see of conversations, as JSON: the server's routes and the command line alike.

Reads alone. Times and ids are text, as everywhere in JSON.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from langchain_core.messages import BaseMessage, HumanMessage

from segue.agent.config import AgentConfig
from segue.core.batch import Batch
from segue.core.errors import NotFoundError
from segue.core.messages import origin_of, spoken_text
from segue.core.metadata import MessageMetadata
from segue.core.plain import exact_json
from segue.core.snowflake import to_text
from segue.journal.ports import Journal
from segue.journal.records import Thread, Timer, TimerState, Turn, TurnState, nested_id
from segue.runtime.thread_service import ThreadService
from segue.runtime.why import why
from segue.runtime.wording import in_words, role_of, with_media

# Of batches without a turn, such as imported ones, those that a large window would hold.
_WINDOW_TOKENS: Final = 100_000
# Of each timer there are a few: the plan, the gates, and what was found before it spoke.
_DECISIONS: Final = 10
_ENDS: Final = {
    TurnState.QUEUED: "under way",
    TurnState.RUNNING: "under way",
    TurnState.FAILED: "failed",
    TurnState.VOID: "stopped",
}
Json = dict[str, Any]


async def list_threads(journal: Journal, user_id: str | None, *, limit: int) -> list[Json]:
    """A user's conversations, or those of all users; the one written to last first."""
    if user_id is None:
        return [*map(_json, await journal.list_newest_threads(limit=limit))]
    return [*map(_json, await ThreadService(journal).list_threads(user_id, limit=limit))]


async def list_history(
    journal: Journal, thread: Thread, agents: Sequence[AgentConfig], *, limit: int
) -> list[Json]:
    """What a person sees of a conversation, without metadata; oldest first."""
    page = await ThreadService(journal).history(thread.id, limit=limit)
    named = {agent.id: agent.name for agent in agents if agent.name}
    names = {"user": thread.user_id, "agent": named.get(thread.agent_id, thread.agent_id)}
    return [_visible(message, names) for message in page.messages]


async def list_batches(
    journal: Journal, thread_id: str, agents: Sequence[AgentConfig], *, limit: int, depth: int = 0
) -> list[Json]:
    """The newest batches of a thread, newest first; what agents asked each other stands inside of
    the batch that asked.
    """
    from segue.runtime.asking import MAX_DEPTH  # noqa: PLC0415 - loads LangGraph

    turns = await journal.list_turns(thread_id, limit=limit)
    found = await _newest_batches(journal, thread_id, turns, limit)
    nested: list[Json] = []
    for agent in agents if depth < MAX_DEPTH else ():
        try:
            name = nested_id(thread_id, agent.id)
            nested += await list_batches(journal, name, agents, limit=limit, depth=depth + 1)
        except NotFoundError:
            continue
    return [
        _batch(batch)
        | {
            "thread_id": thread_id,
            "turns": [_json(turn) for turn in turns if turn.batch == batch.id],
            "nested": [each for each in nested if each["parent"] == to_text(batch.id)],
        }
        for batch in found
    ]


async def _newest_batches(
    journal: Journal, thread_id: str, turns: Sequence[Turn], limit: int
) -> list[Batch]:
    """Those of the turns, and those without a turn; retention may have removed a turn's batch."""
    await journal.get_thread(thread_id)  # raises if there is none
    tail = await journal.tail(thread_id, max_tokens=_WINDOW_TOKENS)
    known = {batch.id: batch for batch in tail}
    found = []
    for number in sorted({turn.batch for turn in turns} | known.keys(), reverse=True)[:limit]:
        with suppress(NotFoundError):
            found.append(known.get(number) or await journal.load_batch(thread_id, number))
    return found


async def list_timers(journal: Journal, thread_id: str, *, limit: int) -> list[Json]:
    """A thread's timers, newest first, and whether what fired was sent."""
    timers = await journal.list_timers(thread_id, limit=limit)
    decisions = await journal.list_decisions(thread_id, limit=limit * _DECISIONS)
    # The gates' decision knows which turn a timer led to.
    led_to = {d.timer_id: d.turn_id for d in decisions if d.timer_id and d.turn_id}
    return [
        _timer(timer, await _turn(journal, led_to.get(timer.id)))
        if timer.state is TimerState.FIRED
        else _timer(timer)
        for timer in timers
    ]


async def list_pending_timers(journal: Journal, *, limit: int) -> list[Json]:
    """The timers of all threads that are still to come, soonest first."""
    return [*map(_timer, await journal.list_pending_timers(limit=limit))]


async def list_reasons(journal: Journal, thread_id: str, *, limit: int) -> list[Json]:
    """Why the agent wrote, and why it did not; oldest first."""
    return [*map(_json, await why(journal, thread_id, limit=limit))]


def _visible(message: BaseMessage, names: dict[str, str]) -> Json:
    created_at = MessageMetadata.of(message).created_at
    role = "user" if isinstance(message, HumanMessage) else "agent"
    text = spoken_text(message)
    return {
        "id": message.id,
        "role": role,
        "name": names[role],
        "text": text,
        "shown": with_media(text, message.content),
        "created_at": created_at.isoformat() if created_at else None,
        "origin": origin_of(message),
    }


def _batch(batch: Batch) -> Json:
    return {
        "id": to_text(batch.id),
        "type": batch.type.value,
        "state": batch.state.value,
        "reasons": batch.reasons,
        "parent": None if batch.parent is None else to_text(batch.parent),
        "began_at": batch.started_at.isoformat(),
        "messages": [_message(message) for message in batch.messages],
    }


def _message(message: BaseMessage) -> Json:
    known = {"id": message.id, "role": role_of(message), "text": in_words(message)}
    raw = {"type": message.type, "content": message.content, "metadata": message.additional_kwargs}
    return known | _json(raw)


def _timer(timer: Timer, turn: Turn | None = None) -> Json:
    became = None
    if turn is not None:
        said = "sent" if turn.shown_at is not None else "nothing said"
        became = _ENDS.get(turn.state, said)
    ended = None if turn is None else turn.error
    return _json(timer) | {
        "became": became,
        "why": ended or timer.state_reason or timer.reason or "",
    }


async def _turn(journal: Journal, turn_id: int | None) -> Turn | None:
    try:
        return None if turn_id is None else await journal.get_turn(turn_id)
    except NotFoundError:
        return None


def _json(value: Any) -> Json:
    found: Json = exact_json(value)
    return found
