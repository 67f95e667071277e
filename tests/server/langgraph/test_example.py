"""The example program of the LangGraph SDK, as a reader runs it."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from segue.simulate.world import Stage
from tests.runtime.scenes import lines
from tests.server.clients import PATIENCE, site_of
from tests.stories.scenes import PATIENCE as SILENCE
from tests.stories.scenes import eager_agent

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).parents[3] / "examples" / "clients" / "langgraph_chat.py"


async def call(address: str, *args: str) -> tuple[int | None, str]:
    """The exit code of the program, and what it printed on stdout and stderr."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), *args),
        env={**os.environ, "SEGUE_URL": address},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await program.communicate()
    return program.returncode, printed.decode()


async def test_without_a_server_the_example_says_so_in_one_line() -> None:
    """And how to start one; `--help` needs none."""
    address = "http://127.0.0.1:9"
    async with asyncio.timeout(PATIENCE):
        failed = await call(address, "Hello!")
        assert failed[0] == 1
        assert failed[1].startswith(f"{address} does not answer: ")
        assert failed[1].endswith("Start the server with `segue serve`.\n")
        assert failed[1].count("\n") == 1
        code, shown = await call(address, "--help")
        assert (code, "Ctrl-C ends it." in shown, "Traceback" in shown) == (0, True, False)


async def test_the_example_prints_the_answer_and_the_follow_up(sqlite_stage: Stage) -> None:
    """It sends one message, and hears what comes by itself on the same stream."""
    models = {"guide": lines("Start with G and C. Which songs?", then="Shall I name some?")}
    async with (
        sqlite_stage.world(eager_agent(), models=models) as world,
        site_of(world.segue) as site,
        asyncio.timeout(PATIENCE),
    ):
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, str(PROGRAM), "I want to learn the guitar.", "guide"),
            env={**os.environ, "SEGUE_URL": site.address},
            stdout=asyncio.subprocess.PIPE,
        )
        assert program.stdout is not None
        try:
            await program.stdout.readuntil(b"reply: Start with G and C. Which songs?")
            await world.clock.settle()
            await world.pass_time(SILENCE)
            await program.stdout.readuntil(b"follow_up: Shall I name some?")
        finally:
            program.kill()
            await program.wait()
