"""`AfterTurn`: the consequences of a turn, and the last gate checks before a follow-up is shown.

The end of a turn may arm a follow-up or a continuation, and queue effects: a webhook,
notifications, a compression, a decision by a model.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from langchain_core.messages import AIMessage, ToolMessage

from segue.core.batch import Batch, BatchState
from segue.core.memory import QuerySource, text_of
from segue.core.messages import spoken_text, visible_messages, with_text
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.snowflake import parse, to_text
from segue.core.speech.guard import Machinery
from segue.core.speech.reminders import names_reminder, plain_reminder
from segue.core.speech.silence import promises_silence
from segue.core.speech.stops import UserRequest, Wish
from segue.core.text import storable
from segue.errors import ConflictError, NotFoundError
from segue.journal.effects import Effect
from segue.journal.records import (
    Decision,
    Ending,
    NewEffect,
    NewTimer,
    Timer,
    TimerKind,
    Turn,
    TurnKind,
)
from segue.runtime.compressor import compress_effects
from segue.runtime.deps import Deps, log_about, read_preferences
from segue.runtime.effects import push_effects, webhook_effects
from segue.runtime.gatekeeper import Gatekeeper
from segue.runtime.planning import (
    Decider,
    DeciderResult,
    Reply,
    plan_by_rules,
    record_plan,
    refusal,
)
from segue.runtime.reminders import keep_promise, reminder_text
from segue.runtime.requests import refused_by_user
from segue.runtime.run import SEARCHED, TurnOutput, visible_replies
from segue.runtime.wishes import PROMISED, Granted, grant
from segue.settings.agents import Autonomy

DECIDE: Final = "decide"
logger = logging.getLogger(__name__)

# Characters of a withheld follow-up that its record keeps.
_WITHHELD: Final = 500
# Tokens of earlier conversation that a decider gets.
_EARLIER_TOKENS: Final = 2_000
_CAME_AGAIN: Final = "The reminder was due again before this one was sent."
_NOT_NAMED: Final = "The model's message did not mention the reminder, so its text was added."
_SOURCES: Final = {
    QuerySource.CURRENT_MESSAGE: "Memories were searched with the message itself.",
    QuerySource.LAST_REAL_USER_MESSAGE: "Memories were searched with the user's last message.",
    QuerySource.CONVERSATION_SUMMARY: "Memories were searched with the summary.",
    "none": "There was no text of the user to search memories with.",
}


class AfterTurn:
    def __init__(
        self,
        deps: Deps,
        gatekeeper: Gatekeeper,
        decider_of: Callable[[str], Decider | None],
    ) -> None:
        self._deps = deps
        self._gatekeeper = gatekeeper
        self._decider_of = decider_of
        # The kinds that the guard found for each agent: each is a warning once.
        self._warned: set[tuple[str, str]] = set()

    async def refuse(self, turn: Turn, *, has_waited: bool = False) -> Ending | None:
        """None if the follow-up may continue; else how it ends.

        A postponed follow-up starts from the beginning at its new time, when another text may be
        better. One that `has_waited` in the queue is also checked for lateness.
        """
        timer, now = await self._find_timer(turn), self._deps.clock.now()
        if timer is None:
            came_again = self._deps.new_decision(turn, "reminder", "replaced", _CAME_AGAIN)
            return Ending(decisions=[came_again])
        if has_waited:  # a recurring reminder already has its next time
            asked = replace(timer, due_at=min(timer.due_at, turn.queued_at))
        else:  # the model's own time does not make a follow-up late
            asked = replace(timer, due_at=now, missed="run")
        autonomy = self._deps.autonomy_of(turn.agent_id)
        checked = await self._gatekeeper.check(asked, autonomy, now, turn)
        if checked.is_allowed:
            return None
        record = checked.record(self._deps.ids.next())
        return Ending(decisions=[record], postponed_until=checked.decision.until)

    def withhold(self, turn: Turn, machinery: Machinery, text: str) -> Ending:
        """The ending of a follow-up whose text is machinery; users read the kind, operators the
        text.
        """
        kind = machinery.kind.value
        is_known = (turn.agent_id, kind) in self._warned
        self._warned.add((turn.agent_id, kind))
        log_about(
            logger,
            turn,
            "follow_up_withheld",
            "A follow-up of agent {agent_id} in thread {thread_id} was withheld: its text is not a "
            "message to the user ({machinery}). `segue why` shows it; docs/agent.md has the rules.",
            level=logging.INFO if is_known else logging.WARNING,
            machinery=kind,
        )
        reason = f"The model wrote no message to the user ({kind}); none was sent."
        facts = {"machinery": kind, "words": storable(text[:_WITHHELD])}
        decision = self._deps.new_decision(turn, "guard", "withheld", reason, **facts)
        return Ending(decisions=[decision])

    async def build_ending(self, output: TurnOutput) -> Ending:
        """The ending of a turn; the stored text is added to a reminder that does not mention it."""
        named = await self._name_reminder(output)
        promised = await self._promised(output)
        turn, batch = output.turn, output.batch
        config = self._deps.agent_of(turn.agent_id).config
        if batch.state is BatchState.AWAITING_CONTINUATION:
            ending = Ending(timers=[_continuation(turn, batch, self._deps.clock.now())])
        else:
            ending = await self._plan(output, config.autonomy, promised)
            if turn.kind is TurnKind.REPLY and not output.questions:
                text = "\n".join(map(spoken_text, visible_replies(turn, batch)))
                kept = await keep_promise(self._deps, turn, batch, text, config.autonomy)
                timers = [*ending.timers, *kept.timers]
                decisions = [*ending.decisions, *kept.decisions]
                ending = replace(ending, timers=timers, decisions=decisions)
        effects = [*await self._announce(turn, batch), *compress_effects(output, config)]
        return replace(
            ending,
            effects=[*effects, *ending.effects],
            decisions=[
                *ending.decisions,
                *promised.decisions,
                *self._memory_decisions(output),
                *named,
            ],
            preferences=promised.preferences,
        )

    async def _promised(self, output: TurnOutput) -> Granted:
        """A reply that promises not to write any more opts the user out, as if they had asked."""
        turn, batch = output.turn, output.batch
        last = visible_messages(batch.messages)[-1:]
        is_reply = batch.type is BatchType.USER_REQUEST
        if not is_reply or not any(
            promises_silence(text_of(m)) for m in last if isinstance(m, AIMessage)
        ):
            return Granted()
        stop = UserRequest(Wish.STOP)
        return await grant(self._deps, turn.thread_id, stop, PROMISED, turn)

    async def remind_plainly(
        self, turn: Turn, batch: Batch, reason: str, decisions: Sequence[Decision]
    ) -> tuple[AIMessage, Ending]:
        """The reminder with its stored text, if the model failed, and how its turn ends."""
        if (timer := await self._find_timer(turn)) is None:
            raise NotFoundError(_CAME_AGAIN)
        text = plain_reminder(reminder_text(timer))
        message = AIMessage(text, id=f"reminder-{to_text(turn.id)}")
        effects = await self._announce(turn, Batch(batch.id, [*batch.messages, message]))
        record = self._deps.new_decision(turn, "reminder", "sent_plainly", reason)
        return message, Ending(effects=effects, decisions=[*decisions, record])

    async def _announce(self, turn: Turn, batch: Batch) -> list[NewEffect]:
        """The effects that notify a user who is not on the page."""
        config = self._deps.agent_of(turn.agent_id).config
        pushes = await push_effects(turn, batch, self._deps.journal.push)
        return [*webhook_effects(turn, batch, config), *pushes]

    async def _name_reminder(self, output: TurnOutput) -> list[Decision]:
        """Add the stored text to a reminder that does not mention it; returns the record."""
        turn, batch = output.turn, output.batch
        last = output.held_reply[-1] if output.held_reply else None
        if turn.kind is not TurnKind.REMINDER or not isinstance(last, AIMessage):
            return []
        if (timer := await self._find_timer(turn)) is None:
            return []
        text = reminder_text(timer)
        if names_reminder("\n".join(map(spoken_text, visible_replies(turn, batch))), text):
            return []
        output.held_reply[-1] = with_text(last, plain_reminder(text))
        output.batch = Batch(batch.id, [*batch.messages[:-1], output.held_reply[-1]])
        return [self._deps.new_decision(turn, "reminder", "sent_plainly", _NOT_NAMED)]

    async def _plan(self, output: TurnOutput, autonomy: Autonomy, promised: Granted) -> Ending:
        """The rules decide at once; a model or custom decider decides later, as an effect. For a
        user who wants no follow-ups, or was `promised` none, none is planned.
        """
        turn, questions, now = output.turn, output.questions, self._deps.clock.now()
        consecutive = await self._consecutive(turn)
        if self._decider_of(turn.agent_id) and refusal(consecutive, autonomy) is None:
            payload = {"turn": to_text(turn.id), "interrupted": bool(questions)}
            ending = Ending(effects=[NewEffect(DECIDE, payload, f"{DECIDE}:{to_text(turn.id)}")])
        else:
            history = output.run.history
            reply = Reply(turn, output.batch, history, bool(questions), consecutive, now)
            result = plan_by_rules(reply, autonomy)
            # The clock knows as of the turn's start, which saves reading; the gates look again.
            clock = output.run.clock
            is_wanted = clock and clock.may_write_first and not promised.preferences
            if result.plan and not is_wanted and (unwanted := await self._unwanted(turn, promised)):
                result = DeciderResult(None, unwanted)
            ending = record_plan(reply, result, autonomy, self._deps.ids, now)
        if questions:
            says = {"kind": "question", "questions": questions}
            ending = replace(ending, says=says, is_waiting=True)
        return ending

    async def _unwanted(self, turn: Turn, promised: Granted | None = None) -> str | None:
        """Why the user wants no follow-ups in this thread; None if the user allows them."""
        if promised and promised.preferences.get("opted_out"):
            return PROMISED
        thread = await self._deps.journal.threads.get(turn.thread_id)
        preferences = await read_preferences(self._deps.journal, thread, self._deps.zone)
        verdict = refused_by_user(preferences, self._deps.clock.now())
        return verdict.reason if verdict else None

    def _memory_decisions(self, output: TurnOutput) -> Iterator[Decision]:
        """The query of a follow-up's memory search; a reply uses the user's message."""
        turn, facts = output.turn, output.run.notes.get(SEARCHED)
        if not turn.kind.speaks_first or not isinstance(facts, dict):
            return
        source = str(facts["source"])
        yield self._deps.new_decision(turn, "memory_query", source, _SOURCES[source], **facts)

    async def decide(self, effect: Effect) -> str:
        """Ask the decider about a follow-up: the handler of `decide` effects."""
        deps, journal = self._deps, self._deps.journal
        turn = await journal.turns.get(parse(effect.payload["turn"]))
        autonomy = deps.autonomy_of(turn.agent_id)
        decider = self._decider_of(turn.agent_id)
        if decider is None or await self._is_void(turn):
            return (
                "The user wrote or cancelled follow-ups meanwhile, or there is no decider any more."
            )
        batch = await journal.messages.load_batch(turn.thread_id, turn.batch)
        tail = await journal.messages.tail(
            turn.thread_id, max_tokens=_EARLIER_TOKENS, current_batch=turn.batch
        )
        reply = Reply(
            turn,
            batch,
            [b for b in tail if b.id != batch.id],
            interrupted=bool(effect.payload.get("interrupted")),
            consecutive=await self._consecutive(turn),
            # Silence counts from the reply, not from this decision.
            answered_at=effect.created_at,
        )
        result = await self._ask(reply, decider, autonomy)
        plan = record_plan(reply, result, autonomy, deps.ids, deps.clock.now())
        await self._save(turn, plan)
        return plan.decisions[0].outcome

    async def _ask(self, reply: Reply, decider: Decider, autonomy: Autonomy) -> DeciderResult:
        # The policy may have changed since the reply, and a decider costs tokens.
        if refused := refusal(reply.consecutive, autonomy):
            return DeciderResult(None, refused.reason)
        if unwanted := await self._unwanted(reply.turn):
            return DeciderResult(None, unwanted)
        result = await decider.decide(
            reply.batch, reply.earlier, interrupted=reply.interrupted, consecutive=reply.consecutive
        )
        if await self._is_void(reply.turn):
            return DeciderResult(
                None, "The user wrote or cancelled follow-ups while this was decided.", result.words
            )
        return result

    async def _save(self, turn: Turn, plan: Ending) -> None:
        deps, now = self._deps, self._deps.clock.now()
        for timer in plan.timers:
            try:
                await deps.journal.timers.arm(timer, ids=deps.ids, now=now, epoch=turn.epoch)
            except ConflictError:  # the user wrote or cancelled follow-ups in the meantime
                return
            deps.wakeups.timers.at(timer.due_at)
        for decision in plan.decisions:
            await deps.journal.decisions.record(decision)

    async def _is_void(self, turn: Turn) -> bool:
        return (await self._deps.journal.threads.get(turn.thread_id)).epoch != turn.epoch

    async def _find_timer(self, turn: Turn) -> Timer | None:
        """The timer that queued a follow-up; of several events, the first. None for a recurring
        reminder that has come again since.
        """
        return next(iter(await self._deps.journal.timers.list_of_turn(turn.id)), None)

    async def _consecutive(self, turn: Turn) -> int:
        if turn.kind is TurnKind.REPLY:
            return 0  # the user just wrote
        counts = await self._deps.journal.timers.count_follow_ups(
            turn.thread_id, day_began=self._deps.clock.now()
        )
        return counts.consecutive


def _continuation(turn: Turn, batch: Batch, now: datetime) -> NewTimer:
    """The timer of the batch's last `continue_later` call, at the time that its result states."""
    wishes = [
        (exchange.call.args, metadata.created_at)
        for exchange in batch.pairing.exchanges
        if isinstance(exchange.result, ToolMessage)
        and (metadata := MessageMetadata.of(exchange.result)).continue_requested
    ]
    given, asked_at = wishes[-1] if wishes else (None, None)
    args = given if isinstance(given, dict) else {}
    reason = args.get("reason")
    try:  # like the tool, which takes a number as text, too
        delay = timedelta(seconds=float(args.get("after_seconds", 0)))
    except (TypeError, ValueError, OverflowError):
        delay = timedelta(0)
    return NewTimer(
        thread_id=turn.thread_id,
        due_at=max((asked_at or now) + delay, now),
        reason=reason if isinstance(reason, str) else None,
        kind=TimerKind.CONTINUATION,
        batch=batch.id,
    )
