"""The default decider: whether to plan a follow-up after a reply, by rules and without a model.

It reads what a person can see, the reply and the user's last message, and whether the work was
finished; never a trigger's prompt. The gates decide later whether the follow-up is sent.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import Field

from segue.core.batch import Batch, BatchState
from segue.core.durations import Duration
from segue.core.memory import text_of
from segue.core.messages import visible_messages
from segue.core.metadata import BatchType, is_settled
from segue.core.speech.acts import (
    Act,
    acts_of,
    asks_fact,
    asks_something,
    ends_conversation,
    is_english,
    looks_for_something,
)
from segue.core.speech.sentences import is_question, sentences_of
from segue.core.speech.silence import promises_silence
from segue.core.speech.stops import Wish, may_be_stop, read_request, says_goodbye
from segue.core.triggers import TriggerType
from segue.errors import UsageError

# Sentences in which a reply states its request: at the start, or at the end.
_OPENING: Final = 2
_ENDING: Final = 3
# Earlier batches that count: users often state their need some turns before.
LOOKED_BACK: Final = 3


class Sign(Enum):
    """The finding for or against a follow-up: its trigger, if any, and the reason."""

    INTERRUPTED = (
        TriggerType.WAITING_FOR_DECISION,
        "The agent stopped to wait for the user's answer.",
    )
    NESTED = (None, "Another agent asked, so no user is waiting.")
    GOES_ON = (None, "The agent continues this by itself.")
    BROKEN_OFF = (TriggerType.TASK_INCOMPLETE, "The work stopped before it was done.")
    SILENT = (None, "The agent said nothing that could be followed up.")
    ASKED = (TriggerType.QUESTION_UNANSWERED, "The reply asks the user something.")
    PROPOSED = (TriggerType.WAITING_FOR_DECISION, "The reply leaves the user something to decide.")
    FAILED = (TriggerType.TASK_INCOMPLETE, "The reply says that something failed.")
    TOOL_FAILED = (TriggerType.TASK_INCOMPLETE, "The last tool that was called failed.")
    PROMISED = (TriggerType.TASK_INCOMPLETE, "The reply promises more.")
    CLOSED = (None, "The conversation is closed: goodbye, thanks, or nothing more needed.")
    STOPPED = (None, "The user asked not to be written to.")
    MAY_BE_STOP = (None, "The user may have asked not to be written to.")
    PROMISED_SILENCE = (None, "The agent promised not to write on its own any more.")
    NOT_READ = (None, "The rules do not know the language of the reply.")
    DONE = (TriggerType.CHECK_IN, "The reply reports success or offers more help.")
    ANSWERED = (None, "The user asked for a fact and got it.")
    INFORMED = (TriggerType.CHECK_IN, "The reply tells something and asks nothing.")

    def __init__(self, trigger: TriggerType | None, reason: str) -> None:
        self.trigger = trigger
        self.reason = reason

    def plan(self, delays: "Delays") -> "Plan | None":
        """The follow-up to arm; None if no trigger fits."""
        if self.trigger is None:
            return None
        return Plan(self.trigger, delays.of(self.trigger), self.reason)


# Settings check the bound in the type; tests and custom deciders may use a delay of zero.
_Delay = Annotated[Duration, Field(gt=timedelta())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long the user is silent before the first follow-up, by trigger."""

    question_unanswered: _Delay = timedelta(hours=1)
    """After a reply that asked the user a question."""
    waiting_for_decision: _Delay = timedelta(hours=4)
    """After a reply that left a decision to the user."""
    task_incomplete: _Delay = timedelta(minutes=30)
    """After a failed tool, a reply that was cut off, or a promise of more work. After a failed
    turn, which is reported to the user, nothing is planned."""
    check_in: _Delay = timedelta(days=1)
    """After any other reply, unless the conversation was closed."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) < timedelta():
                raise UsageError(f"The delay {each.name} is negative; expected zero or more.")

    def of(self, trigger: TriggerType) -> timedelta:
        delay: timedelta = getattr(self, trigger.value)
        return delay


@dataclass(frozen=True, slots=True)
class Plan:
    """A follow-up; `delay` counts from the reply, the rest is as in `synthetic_message`."""

    trigger: TriggerType | str
    delay: timedelta
    reason: str
    prompt: str | None = None
    data: Any = None


def judge(batch: Batch, earlier: Iterable[Batch] = (), *, interrupted: bool = False) -> Sign:
    """What the batch just finished leaves open.

    `interrupted` means that the graph waits for a person. The last `LOOKED_BACK` of the `earlier`
    batches, in any order, are read: a "no" ends the conversation after "Anything else?", and a user
    who searched two turns ago may still have to choose. An open matter beats a goodbye, since the
    user still wants to know. "How can I help you?" does not count as a question, only as a reason
    to check in. If the user may have asked to be left alone, there is no follow-up.
    """
    sign = _sign_of_work(batch, interrupted=interrupted) or _sign_of_text(batch, earlier)
    if sign.trigger is None or not may_be_stop(user := _last_text(batch, HumanMessage)):
        return sign
    request = read_request(user)
    return sign if request is not None and request.wish is Wish.RESUME else Sign.MAY_BE_STOP


def _sign_of_work(batch: Batch, *, interrupted: bool) -> Sign | None:
    if interrupted:
        return Sign.INTERRUPTED
    if batch.type is BatchType.AGENT_TO_AGENT:
        return Sign.NESTED
    if batch.state is BatchState.AWAITING_CONTINUATION:
        return Sign.GOES_ON
    # A message before the user's last one is not a reply to it. A follow-up without a reply leaves
    # open only what was open before.
    has_no_reply = not any(isinstance(m, AIMessage) for m in visible_messages(batch.messages)[-1:])
    if has_no_reply and batch.type is BatchType.SYSTEM_TRIGGER:
        return Sign.SILENT
    if not batch.is_complete or any(map(is_settled, batch.messages)):
        return Sign.BROKEN_OFF
    return Sign.SILENT if has_no_reply else None


def _sign_of_text(batch: Batch, earlier: Iterable[Batch]) -> Sign:
    reply, user = _last_text(batch, AIMessage), _last_text(batch, HumanMessage)
    request = read_request(user)
    if request is not None and request.wish in (Wish.STOP, Wish.STOP_REMINDERS):
        return Sign.STOPPED
    if promises_silence(reply):
        return Sign.PROMISED_SILENCE
    if not is_english(reply):
        return _sign_of_foreign_text(reply, user)
    return _sign_of_english_text(batch, _before(batch, earlier), acts_of(reply), user)


def _sign_of_english_text(
    batch: Batch, before: list[Batch], acts: list[frozenset[Act]], user: str
) -> Sign:
    edges = {act for sentence in (*acts[:_OPENING], *acts[-_ENDING:]) for act in sentence}
    if open_matter := _open_matter(acts[-_ENDING:], edges):
        return open_matter
    if _last_tool_failed(batch):
        return Sign.TOOL_FAILED
    if _is_closed(acts) or ends_conversation(user, help_was_offered=_help_was_offered(before)):
        return Sign.CLOSED
    if edges & {Act.REPORTS, Act.OFFERS_HELP}:
        return Sign.DONE
    if Act.SHOWS in edges and _still_looking(user, before):
        return Sign.PROPOSED
    return Sign.ANSWERED if asks_fact(user) else Sign.INFORMED


def _sign_of_foreign_text(reply: str, user: str) -> Sign:
    """Only an open question counts in a language that the rules do not know."""
    if says_goodbye(user):
        return Sign.CLOSED
    asks = any(map(is_question, sentences_of(reply)[-_ENDING:]))
    return Sign.ASKED if asks else Sign.NOT_READ


def _open_matter(ending: list[frozenset[Act]], edges: set[Act]) -> Sign | None:
    """The last question of the ending, or else a matter at either end of the reply."""
    for sentence in reversed(ending):
        if sentence & {Act.ASKS, Act.PROPOSES}:
            return Sign.PROPOSED if Act.PROPOSES in sentence else Sign.ASKED
    if Act.LACKS in edges and edges & {Act.REGRETS, Act.OFFERS_HELP} and Act.REPORTS not in edges:
        edges = edges | {Act.FAILS}
    return next((sign for act, sign in _OPEN.items() if act in edges), None)


# The first that is found counts.
_OPEN: Final = {
    Act.PROPOSES: Sign.PROPOSED,
    Act.FAILS: Sign.FAILED,
    Act.PROMISES: Sign.PROMISED,
}


def _is_closed(acts: list[frozenset[Act]]) -> bool:
    """A reply that says goodbye at its end, or consists of courtesies."""
    if not acts or any(Act.OFFERS_HELP in sentence for sentence in acts):
        return False
    return Act.PARTS in acts[-1] or all(s & {Act.PARTS, Act.IS_POLITE} for s in acts)


def _before(batch: Batch, earlier: Iterable[Batch]) -> list[Batch]:
    """The earlier batches that count, newest first."""
    talks = (b for b in earlier if b.id < batch.id and b.type is not BatchType.AGENT_TO_AGENT)
    return sorted(talks, key=lambda b: b.id, reverse=True)[:LOOKED_BACK]


def _help_was_offered(before: list[Batch]) -> bool:
    return bool(before) and any(
        Act.OFFERS_HELP in s for s in acts_of(_last_text(before[0], AIMessage))
    )


def _still_looking(user: str, before: list[Batch]) -> bool:
    """Whether the user searches for one of several things, or did and has only added details.

    A report of success or another question ends the search.
    """
    if looks_for_something(user):
        return True
    for batch in before:
        if asks_something(user) or any(
            Act.REPORTS in s for s in acts_of(_last_text(batch, AIMessage))
        ):
            return False
        user = _last_text(batch, HumanMessage)
        if looks_for_something(user):
            return True
    return False


def _last_tool_failed(batch: Batch) -> bool:
    """Whether the last message that called tools got an error; earlier errors do not count."""
    exchanges = batch.pairing.exchanges
    results = [e.result for e in exchanges if e.message is exchanges[-1].message]
    return any(result is not None and result.status == "error" for result in results)


def _last_text(batch: Batch, kind: type[BaseMessage]) -> str:
    visible = visible_messages(batch.messages)
    message = next((m for m in reversed(visible) if isinstance(m, kind)), None)
    return text_of(message) if message else ""
