"""A conversation between a user, a screen and a talk: what `segue chat` does.

Everything happens in one loop: lines and Ctrl-C come from the user, words from the talk, in any
order, and neither waits for the other.
"""

import asyncio
import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import typer

from segue.cli.errors import FAILED
from segue.cli.http import client_of
from segue.cli.pipe import Pipe
from segue.cli.remote import RemoteTalk
from segue.cli.screen import Front, Screen
from segue.cli.talks import OwnTalk, Talk, TalkEvent
from segue.core.errors import SegueError, UsageError
from segue.facade import Segue
from segue.journal.records import Thread
from segue.runtime.events import Asked, Failed
from segue.runtime.logs import configure_logging
from segue.settings import Settings, note_on_first_try

_EARLIER: Final = 10
_DEFAULT_USER: Final = "me"
# In seconds; far shorter than a follow-up is held back for one report.
_TYPING_EVERY: Final = 2.0


@dataclass(frozen=True, slots=True)
class Whom:
    """Who talks, with whom, and where; what is not named is chosen. `back` is the command that
    leads back there, but for the thread.
    """

    user: str | None
    agent: str | None
    thread: str | None
    back: str


async def chat_here(settings: Settings, whom: Whom) -> int:
    """Chat with an agent that runs in this process; the exit code."""
    with _front() as front:
        configure_logging("warning")
        if note := note_on_first_try(settings):
            typer.echo(note, err=True)
        async with Segue.open(settings) as segue:
            talk = OwnTalk(segue, await _thread_of(segue, whom))
            return await _chat(talk, front, whom.back)


async def chat_with_server(url: str, key: str | None, whom: Whom) -> int:
    """Chat with an agent of a server; the exit code."""
    with _front() as front:
        async with client_of(url, key, whom.user) as client:
            talk = await RemoteTalk.begin(client, whom.agent, whom.thread)
            return await _chat(talk, front, whom.back)


async def _thread_of(segue: Segue, whom: Whom) -> Thread:
    if whom.thread is None:
        user = _DEFAULT_USER if whom.user is None else whom.user
        return await segue.create_thread(user, whom.agent)
    thread = await segue.thread(whom.thread)
    for what, named, own in (
        ("user", whom.user, thread.user_id),
        ("agent", whom.agent, thread.agent_id),
    ):
        if named is not None and named != own:
            raise UsageError(
                f"The {what} of thread {thread.id!r} is {own!r}, and --{what} says {named!r}. "
                f"Leave out --{what} to go on with it, or --thread to begin another one."
            )
    return thread


async def _chat(talk: Talk, front: Front, back: str) -> int:
    screen = Screen(talk.agent, front)
    who = "" if talk.user == _DEFAULT_USER else f" as {talk.user}"
    front.announce(f"You talk with {talk.agent}{who}. Ctrl-C stops an answer, Ctrl-D leaves.")
    for said in await talk.earlier(_EARLIER):
        if front.is_live:  # whoever reads a pipe wants the answers alone
            screen.recall(said)
    chat = Chat(talk, screen, front)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, chat.leave)
    try:
        await chat.run()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        screen.end_draft()
    front.announce(f"Come back with: {back} --thread {shlex.quote(talk.thread_id)}")
    return FAILED if chat.has_failed and not front.is_live else 0


@contextmanager
def _front() -> Iterator[Front]:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield Pipe()
        return
    from prompt_toolkit.patch_stdout import patch_stdout  # noqa: PLC0415 - a pipe needs none

    from segue.cli.terminal import Terminal  # noqa: PLC0415

    terminal = Terminal()
    with patch_stdout(raw=True):  # warnings that are logged go above the prompt
        yield terminal


class Chat:
    """One conversation, until the user leaves."""

    def __init__(self, talk: Talk, screen: Screen, front: Front) -> None:
        self._talk = talk
        self._screen = screen
        self._front = front
        self._work: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._question: _Question | None = None
        self._is_leaving = False
        self._left = asyncio.Event()
        self._typed_at = -_TYPING_EVERY
        self.idle = asyncio.Event()
        self.idle.set()
        self.has_failed = False

    async def run(self) -> None:
        """Talk until the user leaves; raises what ends the listening, such as a refused key."""
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
        """A line of the user: a message, or an answer to what the agent asks."""
        if not (text := text.strip()):
            return
        self._is_leaving = False
        if self._front.is_live:
            self._screen.echo(text)
        if self._question is None:
            self._screen.expect(text)
            self._begin(self._talk.ask(text))
            return
        self._question.answer(text)
        if self._question.is_open:
            self._screen.note(self._question.words)
            return
        question, self._question = self._question, None
        self._begin(self._talk.answer(question.turn_id, question.answers))

    def interrupt(self) -> None:
        """Ctrl-C: stop the answer; again, or with nothing to stop on an empty line, leave."""
        is_busy = not self.idle.is_set() or self._screen.is_writing
        if self._is_leaving or not (is_busy or self._front.typed):
            self.leave()
            return
        self._is_leaving = True
        if is_busy:
            self._start(self._tried(self._talk.cancel()))
        self._screen.note("Ctrl-C again leaves.")

    def report_typing(self) -> None:
        """The user is typing: the agent should not speak first now."""
        now = asyncio.get_running_loop().time()
        if now - self._typed_at >= _TYPING_EVERY:
            self._typed_at = now
            self._start(self._typing())

    async def _typing(self) -> None:
        with suppress(SegueError):  # the next key reports it again
            await self._talk.typing()

    async def _show(self) -> None:
        events = cast("AsyncGenerator[TalkEvent]", self._talk.listen())
        async with aclosing(events):
            async for event in events:
                self._screen.see(event)
                self.has_failed |= isinstance(event, Failed)
                if isinstance(event, Asked) and event.questions:
                    if self._question is not None and self._question.turn_id == event.turn_id:
                        continue  # told again after the connection was lost
                    self._question = _Question(event)
                    self._screen.note(self._question.words)

    def _begin(self, turn: Coroutine[Any, Any, None]) -> None:
        """Something to which the agent says something."""
        self._waiting += 1
        self.idle.clear()
        self._screen.wait(is_waiting=True)
        self._start(self._until_over(turn))

    async def _until_over(self, turn: Coroutine[Any, Any, None]) -> None:
        await self._tried(turn)
        self._waiting -= 1
        if not self._waiting:
            self._screen.wait(is_waiting=False)
            self.idle.set()

    async def _tried(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except SegueError as error:
            self.has_failed = True
            self._screen.note(str(error))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


class _Question:
    """What the agent asks before it goes on; the next lines answer it, one each."""

    def __init__(self, asked: Asked) -> None:
        self.turn_id = asked.turn_id
        self.answers: dict[str, str] = {}
        self._left = [*asked.questions.items()]

    @property
    def is_open(self) -> bool:
        return bool(self._left)

    @property
    def words(self) -> str:
        return f"The agent asks: {self._left[0][1]}"

    def answer(self, text: str) -> None:
        self.answers[self._left.pop(0)[0]] = text
