"""A turn as a run of AG-UI: its events, in the order that clients check; and its messages.

A run opens with RUN_STARTED and closes with RUN_FINISHED or RUN_ERROR; nothing of it may stay open.
Of a tool's call only its name and outcome are sent: arguments and results may quote what the user
must not see.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.messages import origin_of, shown_content, spoken_text
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import to_text
from segue.core.text import exact_json
from segue.errors import UsageError
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
# Parts of a message in AG-UI, and the blocks of ours.
_KINDS: Final = {"image": "image", "audio": "audio", "video": "video", "document": "file"}
_PARTS: Final = {block: part for part, block in _KINDS.items()}
# What our blocks call the value of a source.
_SOURCES: Final = {"data": "base64", "url": "url", "file": "file_id"}
_DATA_URL: Final = re.compile(r"data:([\w.+/-]{1,100});base64,")
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
        fields = {**self._ids, "protocolVersion": PROTOCOL, "metadata": self._metadata}
        if asked := [*messages]:
            fields["input"] = {**self._ids, "messages": asked, "tools": [], "context": []}
        return {"type": "RUN_STARTED", **fields}

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


def content_of(message: Mapping[str, Any]) -> Any:
    """What a user's message says, in our blocks; other fields of it are dropped."""
    content = message.get("content")
    return [*map(_block_of, content)] if isinstance(content, list) else content


def _block_of(part: Any) -> Any:
    """A block of a part; a part of another form is passed on unchanged, to be refused there."""
    if not isinstance(part, dict) or (kind := _KINDS.get(str(part.get("type")))) is None:
        return part
    source = part.get("source")
    if not isinstance(source, dict) or (name := _SOURCES.get(str(source.get("type")))) is None:
        raise UsageError(f"A part of type {part['type']!r} needs a source: data, url or file.")
    block = {"type": kind, name: source.get("value")}
    return block | ({"mime_type": source["mimeType"]} if source.get("mimeType") else {})


def id_of(message: BaseMessage) -> str:
    """The client's id of a message: for its own messages, the one that it chose."""
    return MessageMetadata.of(message).client_message_id or message.id or ""


def message_of(message: BaseMessage) -> dict[str, Any]:
    """A visible message; a follow-up is marked in its metadata."""
    if isinstance(message, HumanMessage):
        shown = shown_content(message)
        content = shown if isinstance(shown, str) else [*_parts(shown)]
        return {"id": id_of(message), "role": "user", "content": content}
    said = {"id": id_of(message), "role": "assistant", "content": spoken_text(message)}
    return said | {"metadata": {"origin": origin_of(message)}}


def _parts(blocks: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        if isinstance(block, str) or block.get("type") == "text":
            yield {"type": "text", "text": block if isinstance(block, str) else block["text"]}
        elif (source := _source_of(block)) is not None:
            kind = "image" if block["type"] == "image_url" else _PARTS.get(block["type"])
            if kind is not None:
                yield {"type": kind, "source": source}


def _source_of(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where the bytes of a block are; None for a form that is not known here."""
    inner = block.get(str(block["type"]))
    place = inner if isinstance(inner, dict) else block
    url = inner if isinstance(inner, str) else place.get("url")
    kind = block.get("mime_type")
    if isinstance(url, str):
        if found := _DATA_URL.match(url):
            return {"type": "data", "value": url[found.end() :], "mimeType": found[1]}
        return {"type": "url", "value": url}
    data = block.get("base64") or block.get("data")
    if isinstance(data, str) and isinstance(kind, str):
        return {"type": "data", "value": data, "mimeType": kind}
    return None
