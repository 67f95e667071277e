"""`segue serve --reload`: serves changed code without an interruption.

This process holds the port and watches files; a child serves. After a change a second child starts
on the same port and the same database. Once it is ready, the first one stops as after SIGTERM: it
releases its turns, and the second one resumes them. If the second one cannot start, the first one
continues. A child detects by its standard input that this process has ended.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import typer

from segue.settings import Settings
from segue.settings.agents import AgentConfig

# In the environment of a child: the descriptor of the socket that it serves on. Not `SEGUE_…`,
# which would be a setting.
LISTENER: Final = "_SEGUE_LISTENER"
_LOOK_EVERY: Final = 0.3
# How long a child that was never ready may take to stop.
_GRACE: Final = 5.0
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})

FileTimes = Mapping[Path, tuple[int, int]]
Look = Callable[[], FileTimes]


def inherited_listener() -> int | None:
    """The descriptor of the socket to serve on, if this process is a child of `--reload`."""
    given = os.environ.pop(LISTENER, None)
    return int(given) if given else None


def stop_without_parent(stop: asyncio.Event) -> None:
    """In a child: set `stop` when its standard input ends, since the parent is gone then."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(0)
        stop.set()

    loop.add_reader(0, end)


async def serve_with_reload(
    listener: int, stop: asyncio.Event, look: Look, command: Sequence[str]
) -> int:
    """Serve until `stop` is set; returns the exit code."""
    current: _Child | None = None
    leaving: set[asyncio.Task[int]] = set()
    while not stop.is_set():
        seen = look()
        child = await _Child.start(command, listener)
        change = asyncio.create_task(_change(look, seen, stop))
        await child.has_started(unless=change)
        if child.ended.is_set():
            typer.echo(
                "The previous code keeps serving."
                if current and not current.ended.is_set()
                else "Nothing is served; waiting for a change."
            )
        elif child.ready.is_set():
            if current is not None:
                leaving.add(asyncio.create_task(current.stop()))
            current = child
        else:
            leaving.add(asyncio.create_task(child.stop()))
        if changed := await change:
            typer.echo(f"Reloading: {changed} changed.")
    if current is not None:
        leaving.add(asyncio.create_task(current.stop()))
    return max([0, *await asyncio.gather(*leaving)])


async def _change(look: Look, seen: FileTimes, stop: asyncio.Event) -> str | None:
    """The name of a file that changed, once no file changes any more; None if stopped."""
    while not stop.is_set():
        found = look()
        different = {path for path, _ in seen.items() ^ found.items()}
        if different:
            while (later := look()) != found:
                found = later
                await asyncio.sleep(_LOOK_EVERY)
            return min(different).name
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY):
                await stop.wait()
    return None


class _Child:
    """A process that serves; its output is printed as long as it is the newest."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._is_shown = True
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: Sequence[str], listener: int) -> "_Child":
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=[listener],
            # Files that change twice in a second would be taken from the cache of byte code.
            env={**os.environ, LISTENER: str(listener), "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # Ctrl-C reaches only this process, which stops it
        )
        return cls(process)

    async def has_started(self, *, unless: asyncio.Task[Any]) -> None:
        """Wait until it is ready or has ended, or until a task is done."""
        start = asyncio.create_task(wait_for_any(self.ready, self.ended))
        await asyncio.wait({start, unless}, return_when=asyncio.FIRST_COMPLETED)
        start.cancel()

    async def stop(self) -> int:
        """Stop it as SIGTERM does; its exit code. If it never got ready, its code may hang."""
        if self.ready.is_set():
            self._is_shown = False
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        if not self.ready.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    await self._process.wait()
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._reading
        return await self._process.wait()

    async def _read(self) -> None:
        if self._process.stdout is None:
            return
        while line := await self._process.stdout.readline():
            text = line.decode(errors="replace").rstrip("\n")
            if self._is_shown:
                typer.echo(text)
            if text == "Ready.":
                self.ready.set()
        await self._process.wait()
        self.ended.set()


def look_at(config: Path, folders: Iterable[Path]) -> FileTimes:
    """Time and size of the settings file, and of all Python files of some folders."""
    found: dict[Path, tuple[int, int]] = {}
    for path in (config, *(path for folder in folders for path in _python_files(folder))):
        with suppress(OSError):  # it was deleted meanwhile
            stat = path.stat()
            found[path] = (stat.st_mtime_ns, stat.st_size)
    return found


def _python_files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in _SKIPPED
            and not name.startswith(".")
            and not Path(parent, name, "pyvenv.cfg").exists()
        ]
        yield from (Path(parent, name) for name in files if name.endswith(".py"))


def watched_folders(settings: Settings) -> list[Path]:
    """The working directory, and packages elsewhere whose code the agents' settings name."""
    folders = {Path.cwd()}
    for agent in settings.agents:
        folders |= {folder for name in _modules(agent) for folder in _folders_of(name)}
    return [each for each in folders if not folders.intersection(each.parents)]


def _modules(agent: AgentConfig) -> Iterator[str]:
    """The top-level modules of an agent's own code."""
    for given in (agent.graph, agent.autonomy.decider, *agent.tools):
        if isinstance(given, str) and ":" in given:
            yield given.partition(":")[0].partition(".")[0]


def _folders_of(module: str) -> Iterator[Path]:
    spec = find_spec(module) if module else None
    for place in (spec and spec.submodule_search_locations) or []:
        if "site-packages" not in Path(place).parts:
            yield Path(place)


def child_command() -> list[str]:
    """The command of this process without `--reload`.

    `-P`: modules of the working directory are found last, as by the installed program.
    """
    return [sys.executable, "-P", sys.argv[0], *(a for a in sys.argv[1:] if a != "--reload")]


async def wait_for_any(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
