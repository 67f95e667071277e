"""Chats and servers in the test's own process: a process of their own takes seconds to start."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import typer

from segue.cli import chat as conversation
from segue.cli import serve
from segue.cli.chat import ChatOptions, chat_here, chat_with_server
from segue.cli.chat.screen import Keyboard, Pipe
from segue.server.settings import ServedSettings
from segue.settings import load_settings
from tests.cli.programs import PATIENCE


class Output:
    """What was printed so far."""

    def __init__(self) -> None:
        self.printed = ""
        self._seen = 0
        self._more = asyncio.Event()

    def print(self, text: str) -> None:
        self.printed += text
        self._more.set()

    async def until(self, pattern: str) -> re.Match[str]:
        """Wait until something new is printed that matches."""
        async with asyncio.timeout(PATIENCE):
            while not (found := re.compile(pattern, re.MULTILINE).search(self.printed, self._seen)):
                self._more.clear()
                await self._more.wait()
        self._seen = found.end()
        return found


class Console(Pipe):
    """The user's side of a chat: lines to send, messages and status lines, and notes apart."""

    def __init__(self, *, is_live: bool) -> None:
        self.is_live = is_live  # type: ignore[misc]  # a pipe that shows what a terminal does
        self.output = Output()
        self.notes = Output()
        self.keyboard: Keyboard
        self.exit_code: asyncio.Task[int]
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()

    def say(self, line: str | None) -> None:
        """Send a line; None ends the input."""
        self._lines.put_nowait(line)

    async def until(self, pattern: str) -> re.Match[str]:
        return await self.output.until(pattern)

    async def ended(self) -> int:
        return await asyncio.wait_for(self.exit_code, PATIENCE)

    def add(self, text: str, style: str = "") -> None:
        del style
        self.output.print(text)

    def announce(self, text: str) -> None:
        self.notes.print(f"{text}\n")

    def status(self, text: str) -> None:
        if self.is_live and text:
            self.output.print(f"[{text}]\n")

    async def read(self, chat: Keyboard) -> None:
        self.keyboard = chat
        while (line := await self._lines.get()) is not None:
            chat.say(line)
            await chat.idle.wait()


@asynccontextmanager
async def chatting(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *,
    is_live: bool = False,
    url: str | None = None,
    key: str | None = None,
    agent: str | None = None,
    thread: str | None = None,
) -> AsyncIterator[Console]:
    """`segue chat` until the block is left: with a server, or on the settings of a folder."""
    console = Console(is_live=is_live)
    monkeypatch.setattr(conversation, "_front", lambda: nullcontext(console))
    options = ChatOptions(None, agent, thread, "segue chat")
    if url is not None:
        work = chat_with_server(url, key, options)
    else:
        database = str(folder / "segue-data")
        work = chat_here(load_settings(folder / "segue.toml", {}, database=database), options)
    console.exit_code = asyncio.create_task(work)
    try:
        yield console
    finally:
        console.exit_code.cancel()
        await asyncio.gather(console.exit_code, return_exceptions=True)


class Server(Output):
    """A running server."""

    address: str

    def __init__(self) -> None:
        super().__init__()
        self.stop = asyncio.Event()
        self.exit_code: asyncio.Task[int]

    async def stopped(self) -> int:
        self.stop.set()
        return await asyncio.wait_for(self.exit_code, PATIENCE)


@asynccontextmanager
async def serving(
    monkeypatch: pytest.MonkeyPatch, folder: Path, **flags: Any
) -> AsyncIterator[Server]:
    """`segue serve` on the settings of a folder, ready, until the block is left."""
    server = Server()

    def echo(text: str, *, err: bool = False) -> None:
        del err
        server.print(f"{text}\n")

    monkeypatch.setattr(typer, "echo", echo)
    monkeypatch.setattr(serve, "_handle_stop_signals", lambda: server.stop)
    settings = load_settings(
        folder / "segue.toml",
        {},
        kind=ServedSettings,
        database=str(folder / "segue-data"),
        **{f"server__{name}": value for name, value in flags.items()},
    )
    server.exit_code = asyncio.create_task(serve.serve_until_stopped(settings))
    try:
        server.address = (await server.until(r"^Starting at (http://\S+)\n"))[1]
        await server.until(r"^Ready\.\n")
        yield server
    finally:
        await server.stopped()
