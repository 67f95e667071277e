"""A conversation between a keyboard, a screen and a talk: what `segue chat` does.

Everything happens in one loop: lines and Ctrl-C come from the keyboard, words from the talk, in any
order, and neither waits for the other.
"""

import asyncio
import shlex
import signal
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, cast

import typer

from segue.cli.errors import FAILED
from segue.cli.keyboard import END, INTERRUPT, Keyboard
from segue.cli.remote import RemoteTalk, client_of
from segue.cli.screen import Screen
from segue.cli.talks import OwnTalk, Talk, TalkEvent
from segue.core.errors import SegueError, UsageError
from segue.facade import Segue
from segue.journal.records import Thread
from segue.runtime.events import Asked, Failed
from segue.runtime.logs import configure_logging
from segue.settings import Settings, note_on_first_try

_EARLIER: Final = 10
_DEFAULT_USER: Final = "me"


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
    configure_logging("warning")
    if note := note_on_first_try(settings):
        typer.echo(note, err=True)
    async with Segue.open(settings) as segue:
        if whom.thread is None:
            user = _DEFAULT_USER if whom.user is None else whom.user
            thread = await segue.create_thread(user, whom.agent)
        else:
            thread = await segue.thread(whom.thread)
            _check_same("user", whom.user, thread.user_id, thread)
            _check_same("agent", whom.agent, thread.agent_id, thread)
        return await _chat(OwnTalk(segue, thread), whom.back)


async def chat_with_server(url: str, key: str | None, whom: Whom) -> int:
    """Chat with an agent of a server; the exit code."""
    async with client_of(url, key, whom.user) as client:
        talk = await RemoteTalk.begin(client, whom.agent, whom.thread)
        return await _chat(talk, whom.back)


def _check_same(what: str, named: str | None, own: str, thread: Thread) -> None:
    if named is not None and named != own:
        raise UsageError(
            f"The {what} of thread {thread.id!r} is {own!r}, and --{what} says {named!r}. Leave "
            f"out --{what} to go on with it, or --thread to begin another one."
        )


async def _chat(talk: Talk, back: str) -> int:
    keyboard = Keyboard()
    screen = Screen(talk.agent, keyboard)
    who = "" if talk.user == _DEFAULT_USER else f" as {talk.user}"
    screen.announce(f"You talk with {talk.agent}{who}. Ctrl-C stops an answer, Ctrl-D leaves.")
    for said in await talk.earlier(_EARLIER):
        if keyboard.is_terminal:  # who reads a pipe wants the answers alone
            screen.recall(said)
    chat = Chat(talk, screen, keyboard)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, keyboard.interrupt)
    loop.add_signal_handler(signal.SIGTERM, keyboard.end)
    try:
        with keyboard.reading(until_idle=chat.idle):
            await chat.run()
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
    screen.announce(f"Come back with: {back} --thread {shlex.quote(talk.thread_id)}")
    return FAILED if chat.has_failed and not keyboard.is_terminal else 0


class Chat:
    """One conversation, until the user leaves."""

    def __init__(self, talk: Talk, screen: Screen, keyboard: Keyboard) -> None:
        self._talk = talk
        self._screen = screen
        self._keyboard = keyboard
        self._work: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._question: _Question | None = None
        self._is_leaving = False
        self.idle = asyncio.Event()
        self.idle.set()
        self.has_failed = False

    async def run(self) -> None:
        """Talk until the user leaves; raises what ends the listening, such as a refused key."""
        listening = asyncio.create_task(self._show())
        typing = asyncio.create_task(self._obey())
        try:
            done, _ = await asyncio.wait({listening, typing}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            tasks = [listening, typing, *self._work]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _obey(self) -> None:
        while (typed := await self._keyboard.next()) is not END:
            if typed is INTERRUPT:
                if self._interrupted():
                    return
            elif typed.strip():
                self._is_leaving = False
                self._say(typed.strip())

    async def _show(self) -> None:
        events = cast("AsyncGenerator[TalkEvent]", self._talk.listen())
        async with aclosing(events):
            async for event in events:
                await self._keyboard.prompted.wait()
                self._screen.see(event)
                self.has_failed |= isinstance(event, Failed)
                if isinstance(event, Asked) and event.questions:
                    self._question = _Question(event)
                    self._screen.note(self._question.words)

    def _say(self, text: str) -> None:
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

    def _interrupted(self) -> bool:
        """Stop the answer; whether to leave instead."""
        is_busy = not self.idle.is_set() or self._screen.is_writing
        if self._is_leaving or not (is_busy or self._keyboard.typed()):
            return True
        self._is_leaving = True
        if is_busy:
            self._start(self._tried(self._talk.cancel()))
        self._screen.note("Ctrl-C again leaves.")
        return False

    def _begin(self, turn: Coroutine[Any, Any, None]) -> None:
        """Something to which the agent says something."""
        self._waiting += 1
        self.idle.clear()
        self._screen.wait()
        self._start(self._until_over(turn))

    async def _until_over(self, turn: Coroutine[Any, Any, None]) -> None:
        await self._tried(turn)
        self._waiting -= 1
        if not self._waiting:
            self._screen.wait_no_more()
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
