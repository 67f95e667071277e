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
