"""The operators' view of conversations, as JSON, for the server's routes and the command line.

Read-only. Times and ids are text.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, messages_to_dict

from segue.core.batch import Batch
from segue.core.calls import calls_of, is_of_type
from segue.core.context import Context, build_context, with_last_part
from segue.core.media import MEDIA
from segue.core.memory import memory_query
from segue.core.messages import origin_of, spoken_text
from segue.core.metadata import MessageMetadata, is_synthetic, strip_metadata
from segue.core.snowflake import to_text
from segue.core.text import exact_json, one_line
from segue.core.tokens import estimate_text, estimate_tokens
from segue.errors import NotFoundError, UsageError
from segue.insight.why import why
from segue.journal.journal import Journal
from segue.journal.records import (
    MAX_DEPTH,
    StateValue,
    Thread,
    Timer,
    TimerKind,
    TimerState,
    Turn,
    TurnState,
    nested_id,
)
from segue.runtime.clock import Clock
from segue.runtime.gatekeeper import Gatekeeper
from segue.runtime.run import clock_of, read_window
from segue.runtime.thread_service import ThreadService
from segue.settings.agents import AgentConfig

# Longer texts are data, such as pictures; of those, the beginning is shown.
_LONGEST: Final = 100_000
_SHOWN: Final = 100
# Characters of a value in a graph's state.
_STATE_SHOWN: Final = 500
# Of batches without a turn, such as imported ones, the newest are listed, up to this size.
_WINDOW_TOKENS: Final = 100_000
_WAITING: Final = frozenset({TimerState.PENDING, TimerState.POSTPONED})
_ENDS: Final = {
    TurnState.QUEUED: "under way",
    TurnState.RUNNING: "under way",
    TurnState.FAILED: "failed",
    TurnState.VOID: "stopped",
}
Json = dict[str, Any]


def _role_of(message: BaseMessage) -> str:
    """The author of a message; a synthetic user message is a trigger."""
    if isinstance(message, HumanMessage):
        return "trigger" if is_synthetic(message) else "user"
    return "agent" if isinstance(message, AIMessage) else message.type


def _without_data(value: Any) -> Any:
    """JSON in which long texts are cut, such as the bytes of a picture."""
    if isinstance(value, dict):
        return {name: _without_data(each) for name, each in value.items()}
    if isinstance(value, list):
        return [*map(_without_data, value)]
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_SHOWN]}… ({len(value)} characters)"
    return value


def _summary(message: BaseMessage) -> str:
    """Its text in one line, with marks for pictures and files, and the tools it calls."""
    calls = ", ".join(call.name for call in calls_of(message))
    text = with_media(message.text, message.content)
    return one_line(f"{text} [calls {calls}]" if calls else text, 10_000)


def with_media(text: str, content: str | list[Any]) -> str:
    """The text of a message, and a mark for each picture, recording or file in it."""
    blocks = [] if isinstance(content, str) else content
    marks = [f"[{MEDIA[block['type']]}]" for block in blocks if is_of_type(block, MEDIA)]
    return " ".join([text, *marks] if text else marks)


async def next_context(
    journal: Journal, thread: Thread, config: AgentConfig, now: datetime, zone: str
) -> Context:
    """The context of a thread's next reply, without the next message.

    Memories are not in it: they depend on that message. An agent's own graph adds its own system
    prompt. `zone` is that of users who have not set theirs.
    """
    window = await read_window(journal, thread.id, max_tokens=config.context_tokens)
    room, summary = config.context_tokens, window.told(config.context_tokens)
    room -= config.memory.max_tokens if config.keeps_memories else 0
    if config.graph is not None:
        return build_context(window.batches, None, room, summary=summary)
    clock = clock_of(window, config.autonomy, now, zone).text
    context = build_context(
        window.batches,
        None,
        room,
        system=config.system_prompt,
        summary=summary,
        extra_tokens=estimate_text(clock),
    )
    return replace(context, messages=with_last_part(context.messages, clock))


def context_json(context: Context) -> Json:
    """Its messages as a model gets them, without the bytes of files, and as one line each."""
    return {
        "messages": _without_data(messages_to_dict(strip_metadata(context.messages))),
        "lines": [
            {"role": _role_of(m), "text": _summary(m), "tokens": estimate_tokens(m)}
            for m in context.messages
        ],
        "batches": [to_text(batch) for batch in context.batches],
        "dropped": exact_json(context.dropped),
        "shortened": exact_json(context.shortened),
        "tokens": context.tokens,
        "reserved": context.reserved,
        "is_cut": context.cut,
        "over_budget": context.over_budget,
    }


@dataclass(frozen=True, slots=True)
class Inspector:
    """Reads conversations of all users. `zone` is that of users who have not set theirs."""

    journal: Journal
    agents: Sequence[AgentConfig]
    clock: Clock
    zone: str

    async def list_threads(self, user_id: str | None, *, limit: int) -> list[Json]:
        """A user's threads, or those of all users; the one written to last first."""
        if user_id is None:
            return [*map(_json, await self.journal.threads.list_newest(limit=limit))]
        return [*map(_json, await ThreadService(self.journal).list_threads(user_id, limit=limit))]

    async def list_history(self, thread_id: str, *, limit: int) -> list[Json]:
        """The messages that the user sees in a thread, without metadata; oldest first."""
        thread = await self.journal.threads.get(thread_id)
        named = {agent.id: agent.name for agent in self.agents if agent.name}
        names = {"user": thread.user_id, "agent": named.get(thread.agent_id, thread.agent_id)}
        threads, found, before = ThreadService(self.journal), list[Json](), None
        # Of each page, which may be full of pictures, only the texts are kept.
        while len(found) < limit:
            page = await threads.history(thread.id, limit=limit - len(found), before=before)
            found = [*(_visible(message, names) for message in page.messages), *found]
            before = page.before
            if before is None:
                break
        return found

    async def list_batches(self, thread_id: str, *, limit: int, depth: int = 0) -> list[Json]:
        """Newest first; what agents asked each other is inside the batch that asked."""
        turns = await self.journal.turns.list_of(thread_id, limit=limit)
        found = [batch async for batch in _newest_batches(self.journal, thread_id, turns, limit)]
        nested: list[Json] = []
        for agent in self.agents if depth < MAX_DEPTH else ():
            with suppress(NotFoundError):
                name = nested_id(thread_id, agent.id)
                nested += await self.list_batches(name, limit=limit, depth=depth + 1)
        return [
            batch
            | {
                "thread_id": thread_id,
                "turns": [_json(turn) for turn in turns if to_text(turn.batch) == batch["id"]],
                "nested": [each for each in nested if each["parent"] == batch["id"]],
            }
            for batch in found
        ]

    async def get_context(self, thread: Thread, config: AgentConfig) -> Json:
        """What the model would get now, what is left out, and the state of an agent's own graph."""
        context = await next_context(self.journal, thread, config, self.clock.now(), self.zone)
        stored = await self.journal.states.load(thread.id)
        state = [_channel(name, value) for name, value in stored.items()]
        return context_json(context) | {"state": state, "memory_query": _query(context)}

    async def list_decisions(self, thread_id: str, *, limit: int) -> list[Json]:
        """The decisions of the decider and the gates, newest first."""
        return [*map(_json, await self.journal.decisions.list_of(thread_id, limit=limit))]

    async def list_timers(self, thread_id: str, *, limit: int) -> list[Json]:
        """A thread's timers, newest first, and whether a fired one was sent."""
        return [
            _timer(timer, await _turn(self.journal, timer))
            if timer.state is TimerState.FIRED
            else _timer(timer) | {"expected": await self._foresee(timer)}
            for timer in await self.journal.timers.list_of(thread_id, limit=limit)
        ]

    async def _foresee(self, timer: Timer) -> Json | None:
        """The gates' expected decision at the due time; None if they would allow it."""
        config = next((agent for agent in self.agents if agent.id == timer.agent_id), None)
        if timer.state not in _WAITING or config is None:
            return None
        moment = max(timer.due_at, self.clock.now())
        gatekeeper = Gatekeeper(self.journal, self.zone)
        checked = await gatekeeper.foresee(timer, config.autonomy, moment)
        decisive = checked.decision.decisive
        if decisive is None:
            return None
        verdict = {"outcome": checked.decision.outcome, "until": checked.decision.until}
        return _json(verdict | {"gate": decisive.gate, "reason": decisive.reason})

    async def list_pending_timers(self, *, limit: int) -> list[Json]:
        """The pending timers of all threads, soonest first."""
        return [*map(_timer, await self.journal.timers.list_pending(limit=limit))]

    async def count_pending_timers(self, *, limit: int) -> int:
        """How many timers are pending in all threads, counted up to the limit."""
        return await self.journal.timers.count(limit=limit)

    async def list_live_turns(self, *, limit: int) -> list[Json]:
        """The queue of all threads, next turn first, with its worker and when it can be taken."""
        found = await self.journal.turns.list_live(limit=limit)
        return [
            _json(each.turn) | _json({"owner": each.owner, "wake_at": each.wake_at})
            for each in found
        ]

    async def list_turns(self, thread_id: str, *, limit: int) -> list[Json]:
        """A thread's turns, newest first."""
        return [*map(_json, await self.journal.turns.list_of(thread_id, limit=limit))]

    async def list_reasons(self, thread_id: str, *, limit: int) -> list[Json]:
        """Why the agent wrote, and why it did not; oldest first."""
        return [*map(_json, await why(self.journal, thread_id, limit=limit))]

    async def list_dead_letters(self, *, limit: int) -> list[Json]:
        """Webhooks and other effects that were given up."""
        return [*map(_json, await self.journal.effects.list_dead(limit=limit))]


def _query(context: Context) -> Json | None:
    """The query with which a follow-up would search memories now, and its source."""
    query = memory_query(context.messages)
    return None if query is None else {"text": query.text, "source": query.source.value}


def _channel(name: str, stored: StateValue) -> Json:
    """A channel of a graph's state; its value as text, unless it has types of the graph's own."""
    # Imported here: only this needs LangGraph, which loads slowly.
    from segue.agent.checkpoints.store import StrictSerializer  # noqa: PLC0415

    try:
        value = repr(StrictSerializer().loads_typed((stored.form, stored.value)))
    except (UsageError, ValueError):
        value = "(a value of the graph's own type)"
    return {"channel": name, "bytes": len(stored.value), "value": one_line(value, _STATE_SHOWN)}


async def _newest_batches(
    journal: Journal, thread_id: str, turns: Sequence[Turn], limit: int
) -> AsyncIterator[Json]:
    """Those of the turns and those without one; long data is cut as soon as a batch is read."""
    await journal.threads.get(thread_id)  # raises if there is none
    tail = await journal.messages.tail(thread_id, max_tokens=_WINDOW_TOKENS)
    known = {batch.id: _batch(batch) for batch in tail}
    for number in sorted({turn.batch for turn in turns} | known.keys(), reverse=True)[:limit]:
        with suppress(NotFoundError):
            yield known.get(number) or _batch(await journal.messages.load_batch(thread_id, number))


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
    known: Json = {"id": message.id, "role": _role_of(message), "text": _summary(message)}
    known["tool_calls"] = [{"id": call.id, "name": call.name} for call in calls_of(message)]
    known["tool_call_id"] = getattr(message, "tool_call_id", None)
    raw = {"type": message.type, "content": message.content, "metadata": message.additional_kwargs}
    return known | _json(_without_data(raw))


def _timer(timer: Timer, turn: Turn | None = None) -> Json:
    became = error = None
    if turn is not None:
        became = _ENDS.get(turn.state, "sent" if turn.shown_at else "nothing said")
        error = turn.error
    return _json(timer) | {
        "became": became,
        "why": error or timer.state_reason or timer.reason or "",
    }


async def _turn(journal: Journal, timer: Timer) -> Turn | None:
    """The turn that a fired timer queued last; a continuation is no message of its own."""
    if timer.turn_id is None or timer.kind is TimerKind.CONTINUATION:
        return None
    with suppress(NotFoundError):
        return await journal.turns.get(timer.turn_id)
    return None


def _json(value: Any) -> Json:
    found: Json = exact_json(value)
    return found
