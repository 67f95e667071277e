"""A process that answers one message with three parallel tools, to be killed and started again.

Tools write a line to `tools.log` when they begin. In the first life the third one never ends; with
a number of checkpoints all of them end, and the process ends where the next one would be stored.
"""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from segue import user_message
from segue.agent.checkpoints.store import SqliteCheckpoints
from segue.agent.scripted import ScriptedChatModel
from segue.journal.sqlite import SqliteJournal
from segue.testing.journal_contract.fixtures import ticking_ids
from tests.agent.session import START, THREAD, Session

TOOLS = ("one", "two", "three")


def answer(messages: list[Any]) -> AIMessage:
    results = sum(isinstance(message, ToolMessage) for message in messages)
    if results:
        return AIMessage(f"All {results} are done.")
    calls = [{"name": name, "args": {}, "id": name, "type": "tool_call"} for name in TOOLS]
    return AIMessage("", tool_calls=calls)


def logging_tool(name: str, log: Path, *, hangs: bool) -> BaseTool:
    async def work() -> str:
        with log.open("a") as lines:
            lines.write(f"{name}\n")
        if hangs:
            await asyncio.Event().wait()
        return name

    return tool(name, description=f"Do {name}.")(work)


def die_after(checkpoints: int) -> None:
    """End the process at once where the next checkpoint would be stored."""
    left = iter(range(checkpoints))
    put = AsyncSqliteSaver.aput

    async def last_put(self: AsyncSqliteSaver, *args: Any, **kwargs: Any) -> Any:
        if next(left, None) is None:
            await asyncio.sleep(0.3)  # what the step wrote is stored meanwhile
            os._exit(1)
        return await put(self, *args, **kwargs)

    AsyncSqliteSaver.aput = last_put  # type: ignore[method-assign]  # this process is made to die


async def live(folder: Path, life: int, cut: int | None) -> None:
    journal = SqliteJournal(folder / "journal.db")
    await journal.open()
    checkpoints = await SqliteCheckpoints(folder / "runs.db").open()
    log = folder / "tools.log"
    tools = [
        logging_tool(name, log, hangs=name == "three" and not life and not cut) for name in TOOLS
    ]
    model = ScriptedChatModel(script=answer)
    session = await Session.begin(journal, checkpoints, model, tools=tools)
    session.now = START + life * timedelta(hours=1)
    session.ids = ticking_ids(node=life + 1, start=session.now)
    if life == 0:
        await journal.inbox.accept(THREAD, user_message("Go!"), ids=session.ids, now=session.now)
    await session.work()
    await checkpoints.close()
    await journal.close()


def main(folder: Path, life: int, cut: int | None) -> None:
    if cut:
        die_after(cut)
    asyncio.run(live(folder, life, cut))
