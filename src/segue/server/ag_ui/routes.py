"""AG-UI's routes of an agent: `run` ends with its run; `connect` stays open, and sends every later
run of the conversation, also those that the agent starts.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any, Final, Literal

from fastapi import Request
from langchain_core.messages import BaseMessage, HumanMessage
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from segue.core.messages import origin_of
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import to_text
from segue.core.text import plain_json
from segue.errors import UsageError
from segue.events import (
    MessageStored,
    Payload,
    QuestionAsked,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    cursor_at,
)
from segue.facade import Segue
from segue.journal.records import Thread, Turn
from segue.server.access import PAGES, CallerDep, SegueDep, get_own_turn, slot_of
from segue.server.ag_ui.runs import (
    SNAPSHOT,
    AgUiEvent,
    Run,
    content_of,
    error_event,
    id_of,
    message_of,
    parse_interrupt,
)
from segue.server.chats import (
    check_new_message,
    find_question,
    hear_reply,
    message_in,
    open_chat,
)
from segue.server.connections import (
    STILL_HERE,
    EventStream,
    LiveConnection,
    StreamDep,
    data_line,
    event_lines,
    with_heartbeats,
)
from segue.server.middleware import authenticated_router
from segue.server.problems import ApiError, Problem
from segue.server.responses import encode
from segue.server.routes.messages import accept_message

PREFIX: Final = "/ag-ui"
# Messages in a snapshot: the newest.
_WINDOW: Final = 100

router = authenticated_router(f"{PREFIX}/{{agent_id}}", "ag-ui", in_schema=False)


class ResumeIn(BaseModel):
    """The answer to one interrupt."""

    model_config = ConfigDict(alias_generator=to_camel)

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunIn(BaseModel):
    """AG-UI's `RunAgentInput`; what is not here, such as `forwardedProps`, is ignored."""

    model_config = ConfigDict(alias_generator=to_camel)

    thread_id: str = Field(min_length=1, max_length=200)
    run_id: str = Field(min_length=1, max_length=200)
    messages: list[dict[str, Any]] = []
    tools: list[Any] = []
    context: list[Any] = []
    state: Any = None
    resume: list[ResumeIn] = []

    def check(self) -> None:
        """`ApiError` for fields that are not supported."""
        for name in ("tools", "context", "state"):
            if getattr(self, name):
                detail = f"An agent has its own tools, context and state; leave {name} empty."
                raise ApiError(422, "unsupported", detail)

    @property
    def is_answer(self) -> bool:
        """Whether questions are answered; a message replaces cancelled ones."""
        return bool(self.resume) and all(entry.status == "resolved" for entry in self.resume)

    @property
    def known(self) -> set[str]:
        """The ids of the messages that the client has."""
        return {str(message.get("id")) for message in self.messages}

    @property
    def message(self) -> dict[str, Any]:
        """The user's message; `UsageError` if the last one is of another role, or there is none."""
        last: dict[str, Any] = self.messages[-1] if self.messages else {}
        if last.get("role") != "user":
            raise UsageError("The last of `messages` must be the user's, with role 'user'.")
        return last


@router.post("/run")
async def run_agent(
    request: Request,
    segue: SegueDep,
    caller: CallerDep,
    agent_id: str,
    given: RunIn,
    live: StreamDep,
) -> EventStream:
    """Send the last message, or answer questions; the reply is the run."""
    given.check()
    if given.is_answer:
        thread = await open_chat(segue, caller, agent_id, given.thread_id)
        turn = await _answer(segue, thread, given.resume)
    else:
        content, message_id = content_of(given.message), given.message.get("id")
        check_new_message(request, content, message_id)
        thread = await open_chat(segue, caller, agent_id, given.thread_id)
        new = message_in(content, message_id)
        turn = (await accept_message(request, thread, new)).turn
    run = Run(given.thread_id, given.run_id, given.known)
    events = _reply(segue, turn, run, live)
    return EventStream(
        _lines(events, partial(_snapshot, segue, thread), live), describe=_error_line
    )


@router.post("/connect")
async def connect_agent(
    segue: SegueDep, caller: CallerDep, agent_id: str, given: RunIn, live: StreamDep
) -> EventStream:
    """The conversation so far, and then each run in it, for as long as the client listens."""
    thread = await open_chat(segue, caller, agent_id, given.thread_id)
    runs = _Runs(segue, thread, given.thread_id, given.run_id)
    return EventStream(_lines(runs.listen(live), runs.snapshot, live), describe=_error_line)


async def _answer(segue: Segue, thread: Thread, entries: list[ResumeIn]) -> Turn:
    """Answer the questions of a turn."""
    ids = [parse_interrupt(entry.interrupt_id) for entry in entries]
    if len({turn_id for turn_id, _ in ids}) > 1:
        raise UsageError("The entries of `resume` must answer the interrupts of one run.")
    turn = await get_own_turn(segue, thread, ids[0][0])
    if len(entries) == 1:
        return await segue.answer(turn, plain_json(entries[0].payload))
    answers = {name: entry.payload for (_, name), entry in zip(ids, entries, strict=True)}
    return await segue.answer(turn, plain_json(answers))


async def _reply(
    segue: Segue, turn: Turn, run: Run, live: LiveConnection
) -> AsyncGenerator[AgUiEvent | None]:
    """One run; None after each interval of silence."""
    yield run.start("reply")
    async with aclosing(hear_reply(segue, turn, live)) as heard:
        async for event in heard:
            for each in [None] if event is None else run.tell(event.payload):
                yield each


class _Runs:
    """A listener's view of a conversation: each turn is a run."""

    def __init__(self, segue: Segue, thread: Thread, name: str, run_id: str) -> None:
        """`name` is the client's for the conversation; `run_id` is that of its request."""
        self._segue = segue
        self._thread = thread
        self._name = name
        self._run_id = run_id
        self._run: Run | None = None
        # The user's messages since the last run began.
        self._said: list[BaseMessage] = []
        # The messages of the last snapshot: some may still come as events.
        self._shown: set[str] = set()

    async def listen(self, live: LiveConnection) -> AsyncGenerator[AgUiEvent | None]:
        """None after each idle interval."""
        for past in self._history(await find_question(self._segue, self._thread)):
            yield past
        heard = self._segue.listen(self._thread, cursor_at(self._thread.last_position))
        async with aclosing(with_heartbeats(heard, live)) as events:
            async for each in events:
                for event in [None] if each is None else self._tell(each.payload):
                    yield event

    async def snapshot(self) -> AgUiEvent:
        taken = await _snapshot(self._segue, self._thread)
        self._shown.clear()
        self._shown.update(message["id"] for message in taken["messages"])
        return taken

    def _history(self, question: Turn | None) -> Iterator[AgUiEvent]:
        """The messages so far, as a run of their own, since nothing may come outside of runs."""
        run = Run(self._name, self._run_id)
        yield run.start("history")
        yield SNAPSHOT
        if question is not None:
            run.ask(question.id, (question.ending or {}).get("questions", {}))
        yield from run.end("done")

    def _tell(self, payload: Payload) -> Iterator[AgUiEvent]:
        match payload:
            case MessageStored(HumanMessage() as message):
                if id_of(message) not in self._shown:
                    self._said.append(message)
                if self._run is not None:
                    self._run.is_stale = True  # the next run may be long in coming
            case TurnStarted(turn_id, origin):
                yield from self._close("cancelled")  # if its end was missed
                yield self._open(turn_id, origin)
            case TurnEnded(_, state):
                yield from self._close(state)
            case _:
                yield from self._tell_run(payload)

    def _tell_run(self, payload: Payload) -> Iterator[AgUiEvent]:
        """Also of a turn whose beginning was missed."""
        if self._run is None:
            match payload:
                case MessageStored(message) if message.id not in self._shown:
                    batch = MessageMetadata.of(message).batch or 0
                    yield self._open(batch, origin_of(message) or "reply")
                case TurnFailed(turn_id=int(turn_id)) | QuestionAsked(turn_id):
                    yield self._open(turn_id, "reply")
        if self._run is not None:
            yield from self._run.tell(payload)

    def _open(self, turn_id: int, origin: str) -> AgUiEvent:
        self._run = Run(self._name, to_text(turn_id), self._shown)
        said, self._said = self._said, []
        return self._run.start(origin, map(message_of, said))

    def _close(self, state: str) -> Iterator[AgUiEvent]:
        run, self._run = self._run, None
        if run is not None:
            yield from run.end(state)


async def _snapshot(segue: Segue, thread: Thread) -> AgUiEvent:
    page = await segue.history(thread, limit=_WINDOW)
    return {**SNAPSHOT, "messages": [*map(message_of, page.messages)]}


async def _lines(
    events: AsyncGenerator[AgUiEvent | None],
    take_snapshot: Callable[[], Awaitable[AgUiEvent]],
    live: LiveConnection,
) -> AsyncGenerator[bytes]:
    async with aclosing(events):
        async for event in events:
            if event is SNAPSHOT:
                # It may have more than 10 MB, for as long as the client takes to read it.
                async with slot_of(live.connection, live.caller, *PAGES):
                    yield await _data_line(await take_snapshot())
            else:
                yield STILL_HERE if event is None else await _data_line(event)


async def _data_line(event: AgUiEvent) -> bytes:
    return event_lines(await encode(event))


def _error_line(problem: Problem) -> bytes:
    return data_line(error_event(problem))
