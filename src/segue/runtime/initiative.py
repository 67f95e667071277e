"""The initiative of an agent around a turn: what follows from its end, and a last look at the
gates before a follow-up is seen.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from langchain_core.messages import AIMessage, ToolMessage

from segue.agent.config import AgentConfig, Autonomy
from segue.agent.decider import Verdict
from segue.agent.run import SEARCHED
from segue.core.batch import Batch, BatchState
from segue.core.errors import ConflictError
from segue.core.gates import Outcome
from segue.core.messages import visible_messages
from segue.core.metadata import BatchType, MessageMetadata, is_synthetic
from segue.core.query import QuerySource
from segue.core.snowflake import parse, to_text
from segue.journal.records import (
    Decision,
    Effect,
    Ending,
    NewEffect,
    NewTimer,
    Timer,
    TimerState,
    Turn,
    TurnKind,
)
from segue.runtime.compressor import later_compression
from segue.runtime.deciding import Decider
from segue.runtime.follow_up import Planned, Reply, later_decision, plan_by_rules, refusal
from segue.runtime.gatekeeper import Gatekeeper, Proposal
from segue.runtime.parts import Parts
from segue.runtime.processor import Conversed

WEBHOOK: Final = "webhook"
# What a model that decides is told of the conversation.
_EARLIER_TOKENS: Final = 2_000
_SOURCES: Final = {
    QuerySource.CURRENT_MESSAGE: "Memories were searched with the message itself.",
    QuerySource.LAST_REAL_USER_MESSAGE: "Memories were searched with the user's last words.",
    QuerySource.CONVERSATION_SUMMARY: "Memories were searched with the summary.",
    "none": "There were no words of the user's to search memories with.",
}


class Initiative:
    """Plans what comes after a turn, and asks the gates before a follow-up is shown."""

    def __init__(
        self,
        parts: Parts,
        gatekeeper: Gatekeeper,
        decider_of: Callable[[str], Decider | None],
    ) -> None:
        self._parts = parts
        self._gatekeeper = gatekeeper
        self._decider_of = decider_of

    async def may_begin(self, turn: Turn, batch: Batch) -> Ending | None:
        """As `may_show`, for a turn that waited after its timer fired: it may be too late now."""
        timer = await self._timer_of(turn)
        asked = Proposal.of_turn(turn, _trigger_of(batch)[0], timer)
        if timer is not None:
            asked = replace(asked, due_at=timer.due_at, missed=timer.missed)
        return await self._withdrawal(asked, turn, batch, timer)

    async def may_show(self, turn: Turn, batch: Batch) -> Ending | None:
        """None if the user may see it; else what is recorded of its withdrawal.

        What only has to wait is tried again at its time, from the beginning: by then there may be
        other things to say.
        """
        timer = await self._timer_of(turn)
        asked = Proposal.of_turn(turn, _trigger_of(batch)[0], timer)
        return await self._withdrawal(asked, turn, batch, timer)

    async def _withdrawal(
        self, asked: Proposal, turn: Turn, batch: Batch, timer: Timer | None
    ) -> Ending | None:
        policy = self._parts.agent_of(turn.agent_id).config.autonomy.policy
        checked = await self._gatekeeper.check(asked, policy, self._parts.clock.now())
        if checked.is_allowed:
            return None
        timers = []
        until = checked.decision.until
        if checked.decision.outcome is Outcome.POSTPONE and until is not None:
            trigger, reason = _trigger_of(batch)
            timers = [NewTimer(turn.thread_id, until, trigger, reason, **_rules_of(timer))]
        return Ending(timers=timers, decisions=[self._gatekeeper.record(checked)])

    async def ending(self, turn: Turn, said: Conversed) -> Ending:
        """What is stored with the end of a turn: a plan, a continuation, effects."""
        ending = await self._ending(turn, said)
        return replace(ending, decisions=[*ending.decisions, *self._searched(turn, said)])

    async def _ending(self, turn: Turn, said: Conversed) -> Ending:
        config = self._parts.agent_of(turn.agent_id).config
        batch = said.batch
        effects = [*_webhooks(turn, said, config), *later_compression(turn, said, config)]
        if batch.state is BatchState.AWAITING_CONTINUATION:
            timer = _continuation(turn, batch, self._parts.clock.now())
            return Ending(timers=[timer], effects=effects)
        says = {"kind": "question", "questions": said.questions} if said.questions else None
        reply = Reply(
            turn,
            batch,
            said.run.history,
            interrupted=bool(said.questions),
            consecutive=await self._consecutive(turn),
        )
        waits = bool(said.questions)
        decides_later = self._decider_of(turn.agent_id) is not None
        if decides_later and refusal(reply.consecutive, config.autonomy) is None:
            effects.append(later_decision(turn, interrupted=waits))
            return Ending(effects=effects, says=says, is_waiting=waits)
        planned = plan_by_rules(reply, config.autonomy, self._parts.ids, self._parts.clock.now())
        return Ending(
            effects=effects,
            timers=[planned.timer] if planned.timer else [],
            decisions=[planned.decision],
            says=says,
            is_waiting=waits,
        )

    def _searched(self, turn: Turn, said: Conversed) -> Iterator[Decision]:
        """Whose words a follow-up searched memories with; a real message has its own."""
        facts = said.run.notes.get(SEARCHED)
        if turn.kind is not TurnKind.FOLLOW_UP or not isinstance(facts, dict):
            return
        source = str(facts["source"])
        yield Decision(
            id=self._parts.ids.next(),
            thread_id=turn.thread_id,
            kind="memory_query",
            outcome=source,
            reasons=(_SOURCES[source],),
            facts=facts,
            timer_id=None,
            turn_id=turn.id,
            decided_at=self._parts.clock.now(),
        )

    async def decide(self, effect: Effect) -> str:
        """Let somebody decide about a follow-up: the handler of `decide` effects."""
        parts, journal = self._parts, self._parts.journal
        turn = await journal.get_turn(parse(effect.payload["turn"]))
        autonomy = parts.agent_of(turn.agent_id).config.autonomy
        decider = self._decider_of(turn.agent_id)
        if decider is None or await self._is_past(turn):
            return "The user wrote or dropped follow-ups meanwhile, or nothing decides any more."
        batch = await journal.load_batch(turn.thread_id, turn.batch)
        tail = await journal.tail(
            turn.thread_id, max_tokens=_EARLIER_TOKENS, current_batch=turn.batch
        )
        reply = Reply(
            turn,
            batch,
            [b for b in tail if b.id != batch.id],
            interrupted=bool(effect.payload.get("interrupted")),
            consecutive=await self._consecutive(turn),
            # Silence counts from the answer, not from when somebody came to decide.
            answered_at=effect.created_at,
        )
        verdict = await self._verdict(reply, decider, autonomy)
        planned = Planned.of(reply, verdict, autonomy, parts.ids, parts.clock.now())
        await self._keep(turn, planned)
        return planned.decision.outcome

    async def _verdict(self, reply: Reply, decider: Decider, autonomy: Autonomy) -> Verdict:
        # What was set since the reply counts, and asking costs.
        if reason := refusal(reply.consecutive, autonomy):
            return Verdict(None, reason)
        verdict = await decider.decide(
            reply.batch, reply.earlier, interrupted=reply.interrupted, consecutive=reply.consecutive
        )
        if await self._is_past(reply.turn):
            return Verdict(
                None, "The user wrote or dropped follow-ups while this was decided.", verdict.words
            )
        return verdict

    async def _keep(self, turn: Turn, planned: Planned) -> None:
        parts = self._parts
        if planned.timer is not None:
            try:
                await parts.journal.arm_timer(
                    planned.timer, ids=parts.ids, now=parts.clock.now(), epoch=turn.epoch
                )
            except ConflictError:  # the user wrote or dropped follow-ups in this very moment
                return
            parts.agendas.timers.at(planned.timer.due_at)
        await parts.journal.record_decision(planned.decision)

    async def _is_past(self, turn: Turn) -> bool:
        """Whether the user wrote or dropped follow-ups after the turn: nothing is planned then."""
        return (await self._parts.journal.get_thread(turn.thread_id)).epoch != turn.epoch

    async def _timer_of(self, turn: Turn) -> Timer | None:
        """What a follow-up comes of: the last one of its thread that fired."""
        timers = await self._parts.journal.list_timers(turn.thread_id)
        fired = (t for t in timers if t.state is TimerState.FIRED and t.kind is turn.kind)
        return next(fired, None)

    async def _consecutive(self, turn: Turn) -> int:
        if turn.kind is TurnKind.REPLY:
            return 0  # the user just wrote
        counts = await self._parts.journal.count_follow_ups(
            turn.thread_id, day_began=self._parts.clock.now()
        )
        return counts.consecutive


def _rules_of(timer: Timer | None) -> dict[str, Any]:
    """What holds for a follow-up that is put off: what held for the timer that it comes from."""
    if timer is None:
        return {}
    return {
        "expires_at": timer.expires_at,
        "missed": timer.missed,
        "payload": dict(timer.payload),
    }


def _trigger_of(batch: Batch) -> tuple[str | None, str | None]:
    for message in reversed(batch.messages):
        metadata = MessageMetadata.of(message)
        if is_synthetic(message) and metadata.trigger_type is not None:
            return metadata.trigger_type.value, metadata.trigger_reason
    return None, None


def _continuation(turn: Turn, batch: Batch, now: Any) -> NewTimer:
    """The timer that lets the agent go on, as its tool asked: by the arguments of the call."""
    wishes = [
        exchange.call.args
        for exchange in batch.pairing.exchanges
        if isinstance(exchange.result, ToolMessage)
        and MessageMetadata.of(exchange.result).continue_requested
    ]
    args = wishes[-1] if wishes and isinstance(wishes[-1], dict) else {}
    seconds = args.get("after_seconds", 0)
    delay = timedelta(seconds=seconds) if isinstance(seconds, int | float) else timedelta(0)
    reason = args.get("reason")
    return NewTimer(
        thread_id=turn.thread_id,
        due_at=now + max(delay, timedelta(0)),
        reason=reason if isinstance(reason, str) else None,
        kind=TurnKind.CONTINUATION,
        batch=batch.id,
    )


def _webhooks(turn: Turn, said: Conversed, config: AgentConfig) -> list[NewEffect]:
    """A message that has to reach the user outside; of a follow-up, or of all by setting."""
    if config.webhook is None:
        return []
    # What a follow-up says later, after it went on by itself, is the follow-up's too.
    spoke_first = said.batch.type is BatchType.SYSTEM_TRIGGER
    is_follow_up = spoke_first and turn.kind is not TurnKind.REPLY
    if not is_follow_up and not config.webhook.all_replies:
        return []
    replies = said_in(turn, said.batch)
    if not replies or said.batch.type is BatchType.AGENT_TO_AGENT:
        return []
    payload = {
        "event": "follow_up" if is_follow_up else "reply",
        "agent_id": turn.agent_id,
        "user_id": turn.user_id,
        "thread_id": turn.thread_id,
        "turn_id": to_text(turn.id),
        "messages": [{"id": reply.id, "text": reply.text} for reply in replies],
    }
    return [NewEffect(WEBHOOK, payload, f"{WEBHOOK}:{to_text(turn.id)}")]


def said_in(turn: Turn, batch: Batch) -> list[AIMessage]:
    """What the user sees of a turn, also of what it said before it was cut off and taken again."""
    seen = (m for m in visible_messages(batch.messages) if isinstance(m, AIMessage))
    # A turn's id has its place among positions; the last message has none yet.
    return [m for m in seen if (MessageMetadata.of(m).position or turn.id) >= turn.id]
