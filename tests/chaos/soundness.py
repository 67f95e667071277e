"""What must be true when the storm is over, as questions that find what is not.

They go by the journal, by what the users know they sent, and by what the tools wrote down
themselves. Each rule gives one sentence for each breach.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.batch import CUT_OFF_REPLY, INTERRUPTED_RESULT, NOT_CONTINUED, Batch
from segue.core.calls import calls_of
from segue.core.context import build_context
from segue.core.messages import CONTINUATION_PROMPT, visible_messages
from segue.core.metadata import BatchType, MessageMetadata, is_synthetic
from segue.core.triggers import FIXED_PROMPTS
from segue.journal.records import (
    Timer,
    TimerKind,
    TimerState,
    Turn,
    TurnKind,
    TurnState,
)
from segue.testing.providers import request_problems
from tests.chaos.aftermath import Aftermath, is_cancelled, is_final, segments_of
from tests.chaos.cast import BROKEN, MAX_CONSECUTIVE, planned_rounds, token_of
from tests.chaos.driver import Sent

# What no person may ever see.
SECRET: Final = (
    *FIXED_PROMPTS.values(),
    CONTINUATION_PROMPT,
    CUT_OFF_REPLY,
    NOT_CONTINUED,
    INTERRUPTED_RESULT,
)
NEVER_FINISHED: Final = "never finished"
# Enough for each batch to be read as an earlier one of many others.
WINDOW_TOKENS: Final = 2_000
_OVER: Final = frozenset({TurnState.DONE, TurnState.FAILED, TurnState.VOID})
_TOLD: Final = frozenset({TurnState.DONE, TurnState.FAILED})
# The gates may refuse an event, with a reason on record.
_REFUSED: Final = frozenset({TimerState.SUPPRESSED, TimerState.EXPIRED})
_WAITING: Final = frozenset({TimerState.PENDING, TimerState.POSTPONED})


def _lost(seen: Aftermath) -> Iterator[str]:
    texts = {
        thread_id: Counter(str(m.text) for m in messages if isinstance(m, HumanMessage))
        for thread_id, messages in seen.history.items()
    }
    for sent in seen.spoken.sent:
        times = texts[sent.thread_id][sent.text]
        if times != 1:
            yield f"{sent.token} of {sent.thread_id} is there {times} times."


def _unanswered(seen: Aftermath) -> Iterator[str]:
    for sent in seen.spoken.sent:
        turns = seen.turns_of[sent.batch]
        if not turns:
            yield f"{sent.token} has no turn."
        elif any(is_cancelled(turn) for turn in turns):
            continue  # whether somebody wanted that is another rule's
        elif any(turn.state is TurnState.FAILED for turn in turns):
            if not any(_is_honest(turn) for turn in turns):
                yield f"{sent.token} failed, and the user was not told."
        elif any(turn.state is not TurnState.DONE for turn in turns):
            yield f"{sent.token}: {[turn.state.value for turn in turns]}."
        elif not is_final(_last_said(seen.batches[sent.batch])):
            yield f"{sent.token} has no reply."


def _last_said(batch: Batch) -> BaseMessage:
    """Before the batch was settled: a continuation may be cancelled after the answer."""
    said = segments_of(batch)[-1]
    return next((m for m in reversed(said) if not MessageMetadata.of(m).settled), said[-1])


def _is_honest(turn: Turn) -> bool:
    says = turn.ending or {}
    return bool(turn.error) and says.get("kind") == "error" and says.get("reason") == turn.error


def _failed(seen: Aftermath) -> Iterator[str]:
    plans = {sent.batch: sent.plan for sent in _in_order(seen)}
    for turn in seen.turns:
        if turn.state is not TurnState.FAILED or plans.get(turn.batch) == BROKEN:
            continue
        if NEVER_FINISHED not in (turn.error or ""):
            yield f"Turn {turn.id} ({turn.kind}, try {turn.attempts}): {turn.error}"


def _in_order(seen: Aftermath) -> list[Sent]:
    return sorted(seen.spoken.sent, key=lambda sent: int(sent.token[1:]))


def _cancelled(seen: Aftermath) -> Iterator[str]:
    wanted = {turn.batch for turn in seen.turns if turn.id in seen.spoken.cancelled}
    ended = {turn.batch for turn in seen.turns if turn.state in (TurnState.VOID, TurnState.FAILED)}
    for turn in filter(is_cancelled, seen.turns):
        # What another agent was asked is stopped with the one who asked.
        parent = seen.batches[turn.batch].parent
        if turn.id not in seen.spoken.cancelled and parent not in wanted | ended:
            yield f"Turn {turn.id} of {turn.thread_id} ({turn.kind})."


def _open(seen: Aftermath) -> Iterator[str]:
    for batch in seen.batches.values():
        if not batch.is_complete and not seen.is_void(batch):
            yield f"Batch {batch.id} ({batch.type}) is {batch.state}: {batch.reasons}"


def _twice(seen: Aftermath) -> Iterator[str]:
    for batch in seen.batches.values():
        for segment in segments_of(batch):
            replies = [message for message in segment if is_final(message)]
            if len(replies) > 1:
                yield f"Batch {batch.id}: {[message.text for message in replies]}"
    for thread_id, messages in seen.history.items():
        ids = Counter(message.id for message in messages)
        answers = Counter(m.text for m in messages if is_final(m) and "my answer to" in m.text)
        yield from (f"{thread_id}: message {name}" for name, times in ids.items() if times > 1)
        yield from (f"{thread_id}: {text!r}" for text, times in answers.items() if times > 1)


def _mixed_up(seen: Aftermath) -> Iterator[str]:
    for batch in seen.batches.values():
        asked = [m for m in batch.messages if isinstance(m, HumanMessage) and not is_synthetic(m)]
        for reply in filter(is_final, batch.messages):
            token = token_of(reply.text)
            # A reply that was cut off may not have got as far as saying it.
            if asked and token is not None and token != token_of(asked[-1].text):
                yield f"Batch {batch.id} asks {asked[-1].text!r} and says {reply.text!r}."


def _astray(seen: Aftermath) -> Iterator[str]:
    """Two processes in one turn would each have the model call its tools."""
    for thread in seen.threads:
        for batch in seen.in_thread[thread.id]:
            for segment in segments_of(batch):
                rounds = sum(bool(calls_of(message)) for message in segment)
                if rounds > planned_rounds(thread.agent_id, segment[0].text):
                    yield f"Batch {batch.id}: {rounds} rounds of calls to {segment[0].text!r}."


def _run_again(seen: Aftermath) -> Iterator[str]:
    for run in seen.tools:
        stored = min(seen.results.get(run.call_id, ()), default=None)
        if run.knew_result or (stored is not None and run.run_began_at > stored):
            yield f"{run.tool} {run.call_id}: stored at {stored}, ran again at {run.began_at}."


def _run_often(seen: Aftermath) -> Iterator[str]:
    for call_id, times in Counter(run.call_id for run in seen.tools).items():
        batch, name = seen.calls.get(call_id, (0, ""))
        tries = sum(turn.attempts for turn in seen.turns_of[batch])
        if times > tries:
            yield f"{name} {call_id} ran {times} times in {tries} tries."


def _run_unasked(seen: Aftermath) -> Iterator[str]:
    for run in seen.tools:
        if seen.calls.get(run.call_id) != (run.batch, run.tool):
            yield f"{run.tool} {run.call_id} of batch {run.batch}."


def _asked_twice(seen: Aftermath) -> Iterator[str]:
    asked = Counter(batch for batch, name in seen.calls.values() if name == "ask_agent")
    nested = Counter(batch.parent for batch in seen.batches.values() if batch.parent is not None)
    for parent, times in nested.items():
        if times > asked[parent or 0]:
            yield f"Batch {parent} asked {asked[parent or 0]} times and {times} were answered."


def _misfired(seen: Aftermath) -> Iterator[str]:
    """Each timer that fired has one turn, in a batch of its own that begins with one trigger.

    One that the gates or a reply took back before it was seen may fire again.
    """
    turns = {turn.id: turn for turn in seen.turns if turn.kind.speaks_first}
    told = {turn.id for turn in turns.values() if turn.state is not TurnState.VOID}
    timers = [timer for timer in seen.timers if timer.kind is not TimerKind.CONTINUATION]
    yield from _fired_wrongly(seen, timers, told, {*turns})
    fired = {timer.turn_id for timer in timers if timer.state is TimerState.FIRED}
    yield from (f"Follow-up {turn_id} comes of no timer." for turn_id in sorted(told - fired))
    for turn in turns.values():
        batch = seen.batches[turn.batch]
        triggers = [m for m in batch.messages if MessageMetadata.of(m).trigger_type is not None]
        is_trigger = batch.type is BatchType.SYSTEM_TRIGGER and len(triggers) == 1
        if not is_trigger or len(seen.turns_of[batch.id]) != 1:
            yield f"Batch {batch.id} is a {batch.type} with {len(triggers)} triggers."
    begun = sum(batch.type is BatchType.SYSTEM_TRIGGER for batch in seen.batches.values())
    if begun != len(turns):
        yield f"There are {begun} batches of triggers and {len(turns)} follow-ups."


def _fired_wrongly(
    seen: Aftermath, timers: list[Timer], told: set[int], turns: set[int]
) -> Iterator[str]:
    allowed = Counter(
        decision.timer_id
        for decision in seen.decisions
        if decision.kind == "gates" and decision.turn_id in told
    )
    for timer in timers:
        has_fired = timer.state is TimerState.FIRED
        if allowed[timer.id] > has_fired or (has_fired and timer.turn_id not in turns):
            yield f"Timer {timer.id} is {timer.state} and has {allowed[timer.id]} turns."


def _not_kept(seen: Aftermath) -> Iterator[str]:
    """What was accepted is there once; an event and a reminder were told, whatever happened."""
    by_key = defaultdict(list)
    for timer in seen.timers:
        by_key[timer.thread_id, timer.key].append(timer)
    states = {turn.id: turn.state for turn in seen.turns}
    for key, thread_id in seen.spoken.requested.items():
        timers = by_key[thread_id, key]
        if len(timers) != 1:
            yield f"{key} of {thread_id} is there {len(timers)} times."
            continue
        [timer] = timers
        is_told = timer.state is TimerState.FIRED and states.get(timer.turn_id or 0) in _TOLD
        stays = timer.kind in (TimerKind.EVENT, TimerKind.REMINDER)
        if stays and not is_told and timer.state not in _REFUSED:
            yield f"{key}, a {timer.kind}, is {timer.state}: {states.get(timer.turn_id or 0)}."


def _went_on(seen: Aftermath) -> Iterator[str]:
    fired = Counter(
        timer.batch
        for timer in seen.timers
        if timer.kind is TimerKind.CONTINUATION and timer.state is TimerState.FIRED
    )
    for batch in seen.batches.values():
        said = sum(
            isinstance(m, HumanMessage)
            and MessageMetadata.of(m).batch_type is BatchType.CONTINUATION
            for m in batch.messages
        )
        turns = sum(turn.kind is TurnKind.CONTINUATION for turn in seen.turns_of[batch.id])
        if len({said, turns, fired[batch.id]}) > 1:
            yield f"Batch {batch.id}: {fired[batch.id]} timers, {said} messages, {turns} turns."


def _in_a_row(seen: Aftermath) -> Iterator[str]:
    shown = Counter(
        (turn.thread_id, turn.epoch)
        for turn in seen.turns
        if turn.kind is TurnKind.FOLLOW_UP and turn.shown_at is not None
    )
    for (thread_id, epoch), times in shown.items():
        if times > MAX_CONSECUTIVE:
            yield f"{thread_id} got {times} follow-ups in epoch {epoch}."


def _too_late(seen: Aftermath) -> Iterator[str]:
    """Shown after the client had it in writing that the user's message is stored."""
    epochs = _epochs(seen)
    written = defaultdict(list)
    for sent in seen.spoken.sent:
        written[sent.thread_id].append((epochs[sent.thread_id, sent.text], sent))
    for turn in seen.turns:
        if turn.kind is not TurnKind.FOLLOW_UP or turn.shown_at is None:
            continue
        for epoch, sent in written[turn.thread_id]:
            if epoch > turn.epoch and sent.returned_at < turn.shown_at:
                yield f"Follow-up {turn.id} was shown at {turn.shown_at}, after {sent.token}."


def _epochs(seen: Aftermath) -> Mapping[tuple[str, str], int]:
    """The epoch that each message of a user began: they are counted from one."""
    said: Counter[str] = Counter()
    epochs: dict[tuple[str, str], int] = defaultdict(int)
    for thread_id, _, message in seen.messages:
        if isinstance(message, HumanMessage) and not is_synthetic(message):
            said[thread_id] += 1
            epochs[thread_id, message.text] = said[thread_id]
    return epochs


def _unshown(seen: Aftermath) -> Iterator[str]:
    for turn in seen.turns:
        if turn.kind is not TurnKind.FOLLOW_UP or turn.shown_at is not None:
            continue
        if visible := visible_messages(seen.batches[turn.batch].messages):
            yield f"Follow-up {turn.id} ({turn.state}): {visible[0].text!r}"


def _hanging_timers(seen: Aftermath) -> Iterator[str]:
    for timer in seen.timers:
        if timer.state in _WAITING:
            if timer.due_at <= seen.now:
                yield f"Timer {timer.id} is {timer.state} since {timer.due_at}."
        elif timer.state is TimerState.CLAIMED:
            yield f"Timer {timer.id} is in somebody's hands."
        elif timer.state is not TimerState.FIRED and not timer.state_reason:
            yield f"Timer {timer.id} is {timer.state} and does not say why."


def _hanging_turns(seen: Aftermath) -> Iterator[str]:
    for turn in seen.turns:
        if turn.state not in _OVER:
            yield f"Turn {turn.id} ({turn.kind}) is {turn.state} after {turn.attempts} tries."


def _visible_secrets(seen: Aftermath) -> Iterator[str]:
    texts = [(t.id, text) for t in seen.threads for text in (t.title, t.preview) if text]
    texts += [(name, m.text) for name, messages in seen.history.items() for m in messages]
    for thread_id, text in texts:
        # A title is cut.
        if any(secret[:40] in text for secret in SECRET):
            yield f"{thread_id} shows {text!r}."


def _bad_contexts(seen: Aftermath) -> Iterator[str]:
    for batch_id, context in contexts(seen):
        for problem in request_problems(context):
            yield f"Batch {batch_id} as the current one: {problem}"


def contexts(
    seen: Aftermath, max_tokens: int = WINDOW_TOKENS
) -> Iterator[tuple[int, list[BaseMessage]]]:
    """What a model would be asked, with every batch of every thread as the current one."""
    for batches in seen.in_thread.values():
        for place, batch in enumerate(batches):
            earlier = batches[max(place - 20, 0) : place]
            newest_first = [batch, *reversed(earlier)]
            yield batch.id, build_context(newest_first, batch.id, max_tokens).messages


def _shared_nodes(seen: Aftermath) -> Iterator[str]:
    """A number is another's only after the one before gave it back."""
    holders: dict[int, int] = {}
    for life in sorted(seen.lives, key=lambda life: life.at):
        if life.event == "gives back":
            holders.pop(life.node, None)
        elif holders.setdefault(life.node, life.life) != life.life:
            yield f"Node {life.node} is held by {holders[life.node]} and taken by {life.life}."


RULES: Final[Mapping[str, Callable[[Aftermath], Iterator[str]]]] = {
    "an accepted message is not in history exactly once": _lost,
    "a message has no answer and no honest end": _unanswered,
    "a turn failed for no good reason": _failed,
    "a turn was cancelled that nobody wanted cancelled": _cancelled,
    "a batch is over and not complete": _open,
    "a reply is there twice": _twice,
    "a reply answers something else": _mixed_up,
    "a turn took more steps than it had to": _astray,
    "a tool ran again whose result was stored": _run_again,
    "a tool ran more often than its turn was tried": _run_often,
    "a tool ran without a call": _run_unasked,
    "an agent was asked twice for one call": _asked_twice,
    "a timer fired twice, or for nothing": _misfired,
    "a request was lost, or is there twice": _not_kept,
    "a continuation came twice, or without its timer": _went_on,
    "too many follow-ups in a row": _in_a_row,
    "a follow-up was shown after the user wrote": _too_late,
    "a follow-up is seen that was never shown": _unshown,
    "a timer hangs, or does not say why": _hanging_timers,
    "a turn hangs": _hanging_turns,
    "a person sees what was never said to them": _visible_secrets,
    "a context is not valid": _bad_contexts,
    "a node number is shared": _shared_nodes,
}


def breaches(seen: Aftermath) -> list[str]:
    """What is not as it must be, a sentence each."""
    return [f"{rule}: {breach}" for rule, find in RULES.items() for breach in find(seen)]
