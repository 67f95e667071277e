"""A process that runs a graph of `graphs`, to be killed in its second turn and started again."""

import asyncio
import json
import os
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

from segue import Segue, Settings
from segue.settings.agents import AgentConfig
from tests.stories import graphs

THREAD = "chat"
SECOND = timedelta(seconds=1)
_SPEAKS_FIRST = {
    "delays": dict.fromkeys(
        ("check_in", "question_unanswered", "task_incomplete", "waiting_for_decision"), 1
    ),
    "policy": {"min_delay": 1, "cooldown": 0, "max_consecutive": 1, "quiet_hours": None},
}


def graph_of(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = getattr(graphs, name)
        return made if name == "workflow" else made()


async def replies(segue: Segue) -> list[str]:
    messages = (await segue.history(THREAD)).messages
    return [message.text for message in messages if message.type == "ai"]


async def live(database: str, name: str, folder: Path, life: int) -> None:
    autonomy = {"enabled": False} if life else _SPEAKS_FIRST
    given = {"id": "guide", "graph": graph_of(name), "autonomy": autonomy}
    settings = Settings(
        database=database,
        agents=(AgentConfig.model_validate(given),),
        lease_for=2 * SECOND,
        poll=SECOND / 5,
    )
    async with Segue.open(settings) as segue:
        if life == 0:
            await segue.create_thread("ann", thread_id=THREAD)
            await segue.reply(THREAD, "one")
            count = len(await replies(segue))
            while len(await replies(segue)) == count:  # noqa: ASYNC110 - as a user would wait
                await asyncio.sleep(0.1)
            (folder / graphs.HANGS).touch()
            await segue.reply(THREAD, "two")
        else:
            [killed] = await segue.system.deps.journal.turns.list_of(THREAD, limit=1)
            await segue.wait_turn(killed)
            await segue.reply(THREAD, "three")
            (folder / "said.json").write_text(json.dumps(await replies(segue)))


def main(database: str, name: str, folder: Path, life: int) -> None:
    os.environ[graphs.HELD] = str(folder)
    asyncio.run(live(database, name, folder, life))
