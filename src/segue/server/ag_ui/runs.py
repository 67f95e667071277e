"""A turn as a run of AG-UI: its events, in the order that clients check.

A run opens with RUN_STARTED and closes with RUN_FINISHED or RUN_ERROR; nothing of it may stay open.
Of a tool's call only its name and outcome are told: arguments and results may quote what the user
must not see.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from segue.core.messages import spoken_text
from segue.core.snowflake import to_text
from segue.core.text import exact_json
from segue.events import (
    ListenerLagged,
    MessageDelta,
    MessageRetracted,
    MessageStored,
    Payload,
    QuestionAsked,
    ToolActivity,
    TurnEnded,
    TurnFailed,
)
from segue.server.chats import question_text
from segue.server.problems import Problem

PROTOCOL: Final = "1.0"
# Between the id of a turn and that of a question.
_IN_TURN: Final = ":"
AgUiEvent = dict[str, Any]
# A place for a snapshot, which is taken when it is sent.
SNAPSHOT: Final[AgUiEvent] = {"type": "MESSAGES_SNAPSHOT"}


class Run:
    """One run; `thread_id` is the client's name of the conversation, and `known` has the ids of
    messages that the client has: it would add their text once more.
    """

    def __init__(self, thread_id: str, run_id: str, known: Collection[str] = ()) -> None:
        self._ids = {"threadId": thread_id, "runId": run_id}
        self._known = known
        # Characters that were sent of each message, and the messages that are still open.
        self._sent: dict[str, int] = {}
        self._open: set[str] = set()
        # The calls whose outcome is not known yet.
        self._calls: set[str] = set()
        self._questions: list[AgUiEvent] = []
        self._failure: TurnFailed | None = None
        # Whether the client has something that is not, or no longer, in the conversation.
        self.is_stale = False
        self._metadata: AgUiEvent = {}

    def start(self, origin: str, messages: Iterable[Mapping[str, Any]] = ()) -> AgUiEvent:
        """`messages` are the user's that led to the run; clients add those they do not have."""
        self._metadata = {"origin": origin}
        told = {**self._ids, "protocolVersion": PROTOCOL, "metadata": self._metadata}
        if asked := [*messages]:
            told["input"] = {**self._ids, "messages": asked, "tools": [], "context": []}
        return {"type": "RUN_STARTED", **told}

    def tell(self, payload: Payload) -> Iterator[AgUiEvent]:
        """The events for something that happened in the turn."""
        match payload:
            case MessageDelta(message_id, offset, text):
                yield from self._write(message_id, offset, text)
            case MessageStored(message):
                message_id = message.id or ""
                yield from self._write(message_id, 0, spoken_text(message))
                yield from self._close(message_id)
            case MessageRetracted(message_id):
                self.is_stale = self.is_stale or message_id in self._sent
                yield from self._close(message_id)
            case ToolActivity():
                yield from self._call(payload)
            case QuestionAsked(turn_id, questions):
                self.ask(turn_id, questions)
            case TurnFailed():
                self._failure = payload
            case ListenerLagged():
                self.is_stale = True
            case TurnEnded(_, state):
                yield from self.end(state)

    def ask(self, turn_id: int, questions: Mapping[str, Any]) -> None:
        """The run ends with questions; an answer names one by its id here."""
        self._questions = [
            {
                "id": f"{to_text(turn_id)}{_IN_TURN}{name}",
                "reason": "question",
                "message": question_text(question),
                "metadata": {"value": exact_json(question)},
            }
            for name, question in questions.items()
        ]

    def end(self, state: str) -> Iterator[AgUiEvent]:
        """Close what is open, and then the run; `state` is how its turn ended."""
        for message_id in sorted(self._open):
            self.is_stale = True  # it was not stored
            yield from self._close(message_id)
        for call in sorted(self._calls):
            yield _result(call, "interrupted")
        if self.is_stale:
            yield SNAPSHOT
        if self._failure is not None:
            error = {"message": self._failure.reason, "code": self._failure.code}
            yield {"type": "RUN_ERROR", **error}
            return
        finished: AgUiEvent = {"type": "RUN_FINISHED", **self._ids}
        if self._questions:
            finished["outcome"] = {"type": "interrupt", "interrupts": self._questions}
        elif state in {"cancelled", "void"}:
            finished["outcome"] = {"type": "cancelled"}
        yield finished

    def _write(self, message_id: str, offset: int, text: str) -> Iterator[AgUiEvent]:
        sent = self._sent.get(message_id, 0)
        part = text[max(sent - offset, 0) :]
        if not part or message_id in self._known:
            return
        if message_id not in self._open:
            self._open.add(message_id)
            said = {"messageId": message_id, "role": "assistant", "metadata": self._metadata}
            yield {"type": "TEXT_MESSAGE_START", **said}
        self._sent[message_id] = offset + len(text)
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": part}

    def _close(self, message_id: str) -> Iterator[AgUiEvent]:
        if message_id in self._open:
            self._open.remove(message_id)
            yield {"type": "TEXT_MESSAGE_END", "messageId": message_id}

    def _call(self, activity: ToolActivity) -> Iterator[AgUiEvent]:
        # Providers repeat the ids of calls in later turns.
        call = f"{to_text(activity.turn_id)}-{activity.call_id}"
        if activity.state == "running":
            self._calls.add(call)
            yield {"type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": activity.name}
            yield {"type": "TOOL_CALL_END", "toolCallId": call}
        elif call in self._calls:
            self._calls.remove(call)
            yield _result(call, activity.state)


def parse_interrupt(given: str) -> tuple[str, str]:
    """The ids of a turn and of its question."""
    turn_id, _, question = given.partition(_IN_TURN)
    return turn_id, question


def error_event(problem: Problem) -> AgUiEvent:
    return {"type": "RUN_ERROR", "message": problem.detail, "code": problem.code}


def _result(call: str, outcome: str) -> AgUiEvent:
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": f"{call}-result",
        "toolCallId": call,
        "content": outcome,
        "role": "tool",
    }
