"""`segue chat`: a conversation in the terminal, with a server or with an agent in this process.

Lines and Ctrl-C come from the user, events from the thread, in any order; neither waits for the
other.
"""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from prompt_toolkit.patch_stdout import patch_stdout

from segue.cli.chat.screen import Front, Pipe, Screen, Terminal
from segue.cli.chat.threads import ChatThread, LocalThread, RemoteThread
from segue.cli.client import open_client
from segue.cli.output import FAILED, Key, program, when_of_user
from segue.cli.questions import question_text
from segue.cli.target import Place, Target
from segue.errors import SegueError, UsageError
from segue.events import QuestionAsked, TurnFailed
from segue.facade import Segue
from segue.journal.records import Thread
from segue.settings import Settings, load_settings, note_on_first_try
from segue.telemetry import configure_logging

_URL = "A server's address; without it everything runs in this process."
_USER = "The user to talk as; if not given, the thread's or the key's user, or `me`."
_REDACTED = "…"
# Number of earlier messages to show.
_EARLIER: Final = 10
_DEFAULT_USER: Final = "me"
# Seconds; far below `typing_hold`, the time for which one report delays a follow-up.
_TYPING_EVERY: Final = 2.0
_UNDO: Final = 'To undo this, write: "You can write to me again."'


def chat(
    *,
    url: Annotated[str | None, _URL] = None,
    key: Key = None,
    thread: Annotated[str | None, "Continue this thread."] = None,
    user: Annotated[str | None, _USER] = None,
    agent: Annotated[str | None, "The id of the agent to chat with."] = None,
    place: Place,
) -> None:
    """Chat with an agent: replies appear as they are written, and the agent may speak first.

    Ctrl-C stops the reply; pressed again, or with nothing to stop, it leaves, as Ctrl-D does. Lines
    may also come from a pipe: each is sent after the previous one was answered.
    """
    Target(place.config, place.database, url, key)  # checks that they can be given together
    command = resume_command(url, key, user, place.config, place.database)
    options = ChatOptions(user, agent, thread, command)
    if url is not None:
        raise typer.Exit(asyncio.run(chat_with_server(url, key, options)))
    settings = load_settings(place.config, database=place.database)
    raise typer.Exit(asyncio.run(chat_here(settings, options)))


def resume_command(
    url: str | None,
    key: str | None,
    user: str | None,
    config: Path | None,
    database: str | None,
) -> str:
    """The command that continues here, but for the thread, with secrets redacted."""
    if key is not None:
        key = None if key == os.environ.get("SEGUE_KEY") else _REDACTED
    if database is not None and ("://" in database or "=" in database):
        database = _REDACTED  # it may hold a password
    flags = {"url": url, "key": key, "user": user, "config": config, "database": database}
    given = (
        f"--{name} {value if value is _REDACTED else shlex.quote(str(value))}"
        for name, value in flags.items()
        if value is not None
    )
    return " ".join([program(), "chat", *given])


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The user, agent and thread, each None if not given, and the command to continue."""

    user: str | None
    agent: str | None
    thread: str | None
    command: str


async def chat_here(settings: Settings, options: ChatOptions) -> int:
    """Chat with an agent that runs in this process; returns the exit code."""
    with _front() as front:
        configure_logging("warning")
        if note := note_on_first_try(settings):
            typer.echo(note, err=True)
        async with Segue.open(settings) as segue:
            thread = LocalThread(segue, await _open_thread(segue, options))
            return await _chat(thread, front, options.command)


async def chat_with_server(url: str, key: str | None, options: ChatOptions) -> int:
    """Chat with an agent of a server; returns the exit code."""
    with _front() as front:
        async with open_client(url, key, options.user) as client:
            thread = await RemoteThread.open(client, options.agent, options.thread)
            return await _chat(thread, front, options.command)


async def _open_thread(segue: Segue, options: ChatOptions) -> Thread:
    if options.thread is None:
        user = _DEFAULT_USER if options.user is None else options.user
        return await segue.create_thread(user, options.agent)
    thread = await segue.get_thread(options.thread)
    for what, named, own in (
        ("user", options.user, thread.user_id),
        ("agent", options.agent, thread.agent_id),
    ):
        if named is not None and named != own:
            raise UsageError(
                f"The {what} of thread {thread.id!r} is {own!r}, and --{what} is {named!r}. "
                f"Leave out --{what} to continue it, or --thread to start another one."
            )
    return thread


async def _chat(thread: ChatThread, front: Front, command: str) -> int:
    screen = Screen(thread.agent, front)
    user = "" if thread.user == _DEFAULT_USER else f" as {thread.user}"
    front.announce(
        f"You are chatting with {thread.agent}{user}. Ctrl-C stops a reply, Ctrl-D leaves."
    )
    for message in await thread.earlier(_EARLIER):
        if front.is_live:  # a pipe gets the new replies only
            screen.show_earlier(message)
    chat = Chat(thread, screen, front, _note_on(await thread.preferences()))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, chat.leave)
    try:
        await chat.run()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        screen.end_draft()
    front.announce(f"Continue with: {command} --thread {shlex.quote(thread.thread_id)}")
    return FAILED if chat.has_failed and not front.is_live else 0


@contextmanager
def _front() -> Iterator[Front]:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield Pipe()
        return
    terminal = Terminal()
    with patch_stdout(raw=True):  # logged warnings go above the prompt
        yield terminal


class Chat:
    """One conversation, until the user leaves."""

    def __init__(self, thread: ChatThread, screen: Screen, front: Front, wishes: str) -> None:
        self._thread = thread
        self._screen = screen
        self._front = front
        self._wishes = wishes
        self._work: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._questions: _PendingQuestions | None = None
        self._is_leaving = False
        self._left = asyncio.Event()
        self._typed_at = -_TYPING_EVERY
        self.idle = asyncio.Event()
        self.idle.set()
        self.has_failed = False

    async def run(self) -> None:
        """Run until the user leaves; raises what ends listening, such as a refused key."""
        ends = (self._show(), self._front.read(self), self._left.wait())
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(end) for end in ends]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            tasks += self._work
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def leave(self) -> None:
        self._left.set()

    def say(self, text: str) -> None:
        """Send a line of the user: a message, or an answer to the agent's question."""
        if not (text := text.strip()):
            return
        self._is_leaving = False
        if self._front.is_live:
            self._screen.echo(text)
        if self._questions is None:
            self._screen.expect(text)
            self._begin(self._ask(text))
            return
        self._questions.answer(text)
        if self._questions.is_open:
            self._screen.note(self._questions.next)
            return
        answered, self._questions = self._questions, None
        self._begin(self._thread.answer(answered.turn_id, answered.answers))

    def interrupt(self) -> None:
        """Ctrl-C: stop the reply; again, or with nothing to stop on an empty line, leave."""
        is_busy = not self.idle.is_set() or self._screen.is_writing
        if self._is_leaving or not (is_busy or self._front.typed):
            self.leave()
            return
        self._is_leaving = True
        if is_busy:
            self._start(self._report_errors(self._thread.cancel()))
        self._screen.note_below("Ctrl-C again leaves.")

    def report_typing(self) -> None:
        """Report that the user is typing, so that follow-ups wait."""
        now = asyncio.get_running_loop().time()
        if now - self._typed_at >= _TYPING_EVERY:
            self._typed_at = now
            self._start(self._typing())

    async def _typing(self) -> None:
        with suppress(SegueError):  # the next key reports it again
            await self._thread.typing()

    async def _show(self) -> None:
        async with aclosing(self._thread.listen()) as events:
            async for event in events:
                self._screen.show(event)
                self.has_failed |= isinstance(event, TurnFailed)
                if isinstance(event, QuestionAsked) and event.questions:
                    if self._questions is not None and self._questions.turn_id == event.turn_id:
                        continue  # repeated after the connection was lost
                    self._questions = _PendingQuestions(event)
                    self._screen.note(self._questions.next)

    async def _ask(self, text: str) -> None:
        """Send a message; a stop, or the end of one, that was understood in it is confirmed."""
        await self._thread.ask(text)
        before, self._wishes = self._wishes, _note_on(await self._thread.preferences())
        if self._wishes != before:
            self._screen.note(self._wishes)

    def _begin(self, turn: Coroutine[Any, Any, None]) -> None:
        """Start work that the agent replies to."""
        self._waiting += 1
        self.idle.clear()
        self._screen.wait(is_waiting=True)
        self._start(self._until_over(turn))

    async def _until_over(self, turn: Coroutine[Any, Any, None]) -> None:
        await self._report_errors(turn)
        self._waiting -= 1
        if not self._waiting:
            self._screen.wait(is_waiting=False)
            self.idle.set()

    async def _report_errors(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except SegueError as error:
            self.has_failed = True
            self._screen.note(str(error))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


def _note_on(preferences: Mapping[str, Any]) -> str:
    if preferences.get("opted_out"):
        return f"Agents no longer write to you first. {_UNDO}"
    if until := preferences.get("snoozed_until"):
        return f"No agent writes to you first before {when_of_user(until, preferences)}. {_UNDO}"
    return "Agents may write to you first."


class _PendingQuestions:
    """Questions of an interrupted turn; each of the next lines answers one."""

    def __init__(self, asked: QuestionAsked) -> None:
        self.turn_id = asked.turn_id
        self.answers: dict[str, str] = {}
        self._left = [*asked.questions.items()]

    @property
    def is_open(self) -> bool:
        return bool(self._left)

    @property
    def next(self) -> str:
        return f"The agent asks: {question_text(self._left[0][1])}"

    def answer(self, text: str) -> None:
        self.answers[self._left.pop(0)[0]] = text
