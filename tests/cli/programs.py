"""Programs that really run: `segue` in a process of its own, with its lines as they come."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

# Far longer than anything takes; a test that waits so long has failed.
PATIENCE = 150.0

# As the installed program: of itself Python finds no module of the working directory.
SEGUE = [sys.executable, "-P", "-m", "segue"]
AGENT = """
patience = "0s"
[agents.ada]
name = "Ada"
model = "scripted"
memory.enabled = false
[agents.ada.autonomy.delays]
question_unanswered = "1s"
waiting_for_decision = "1s"
check_in = "1s"
[agents.ada.autonomy.policy]
min_delay = "1s"
cooldown = "1s"
max_consecutive = 1
max_per_day = 100
quiet_hours = "none"
typing_hold = "{typing_hold}"
[agents.ada.model_settings]
delay = {delay}
"""


def write_config(folder: Path, *, delay: float = 0.0, typing_hold: str = "1s") -> Path:
    """A settings file with an agent that speaks by rules, and soon speaks first."""
    path = folder / "segue.toml"
    path.write_text(AGENT.format(delay=delay, typing_hold=typing_hold), encoding="utf-8")
    return path


def environment() -> dict[str, str]:
    """That of the tests without their settings and their path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEGUE_")}
    return {**kept, "PYTHONPATH": "", "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": ""}


class Program:
    """A running `segue`, what it printed so far, and its keyboard."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.printed = ""
        self.complained = b""
        self._seen = 0

    async def until(self, pattern: str) -> re.Match[str]:
        """Wait until something new is printed that matches; fails if the program ends first."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while not (found := re.compile(pattern, re.MULTILINE).search(self.printed, self._seen)):
                piece = await self._process.stdout.read(4096)
                assert piece, f"It ended without {pattern!r}: {self.printed}\n{self.complained!r}"
                self.printed += piece.decode()
        self._seen = found.end()
        return found

    async def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    def hang_up(self) -> None:
        """The end of its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Read on to the end; the exit code."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            self.printed += (await self._process.stdout.read()).decode()
            return await self._process.wait()

    async def hear_complaints(self) -> None:
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(4096):
            self.complained += piece


@asynccontextmanager
async def running(
    folder: Path, *args: str, command: Sequence[str] = SEGUE, path: Path | str = ""
) -> AsyncIterator[Program]:
    """Run `segue` in a folder until the block is left; `path` holds modules to be found first."""
    process = await asyncio.create_subprocess_exec(
        *command,
        *args,
        cwd=folder,
        env={**environment(), "PYTHONPATH": str(path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    program = Program(process)
    complaints = asyncio.create_task(program.hear_complaints())
    try:
        yield program
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await complaints
