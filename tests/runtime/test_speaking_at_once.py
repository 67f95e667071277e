"""The user and the agent begin to speak at the same moment, over and over, in two processes.

Real databases on the real clock, at random moments; what a screen may show is the same each time.
"""

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import dropwhile

import pytest
from langchain_core.messages import BaseMessage

from segue.agent.scripted import ScriptedChatModel
from segue.journal.records import NewTimer, TurnKind, TurnState
from segue.runtime.events import Said, ThreadEvent, Writing
from segue.testing.world import plain_agent
from tests.runtime.scenes import PATIENCE, Process, Tab, process, tab

pytestmark = pytest.mark.anyio

ROUNDS = 25
AT_ONCE = 8
WORD = "psst"
SPEECH = f"{WORD} " * 12
EAGER = plain_agent(autonomy={"policy": {"cooldown": 0, "quiet_hours": None}})


def speak(messages: list[BaseMessage]) -> str:
    return "Fine." if messages[-1].text == "Hi" else SPEECH


@dataclass(frozen=True)
class Round:
    """One conversation in which both speak."""

    processes: list[Process]
    dice: random.Random
    number: int

    async def play(self) -> list[Tab]:
        """Both speak; the screens of all processes once the user is answered."""
        here = self.dice.choice(self.processes)
        parts = here.composed.parts
        thread = (await here.segue.create_thread(f"user {self.number}")).id
        async with AsyncExitStack() as open_tabs:
            tabs = [
                await open_tabs.enter_async_context(tab(each.segue, thread))
                for each in self.processes
            ]
            now = parts.clock.now()
            await parts.journal.arm_timer(NewTimer(thread, now, "check_in"), ids=parts.ids, now=now)
            parts.agendas.timers.at_once()
            if self.dice.random() < 0.7:  # about when the first word comes, on some screen
                await self.dice.choice(tabs).until(lambda seen: bool(seen.drafts or seen.said))
            await asyncio.sleep(self.dice.random() * 0.1)
            there = self.dice.choice(self.processes)
            await there.segue.send(thread, "Hi")
            late = await open_tabs.enter_async_context(tab(there.segue, thread))
            tabs.append(late)
            for each in tabs:
                await each.until(lambda seen: "Fine." in seen.texts and not seen.drafts)
        await self.check(here, thread, tabs)
        return tabs

    async def check(self, here: Process, thread: str, tabs: list[Tab]) -> None:
        turns = await here.composed.parts.journal.list_turns(thread)
        follow_ups = [turn for turn in turns if turn.kind is TurnKind.FOLLOW_UP]
        assert len(follow_ups) <= 1
        texts = [m.text for m in (await here.segue.history(thread)).messages]
        is_sent = any(turn.state is TurnState.DONE for turn in follow_ups)
        assert texts == [*([SPEECH] if is_sent else []), "Hi", "Fine."]
        for each in tabs:
            assert each.texts == texts


def after_the_user(events: list[ThreadEvent]) -> list[ThreadEvent]:
    return [*dropwhile(lambda event: words_of(event) != "Hi", events)]


def words_of(event: ThreadEvent) -> str:
    if isinstance(event, Said):
        return event.message.text
    return event.text if isinstance(event, Writing) else ""


async def test_after_the_users_message_no_screen_shows_a_follow_up_that_is_void(
    database: str,
) -> None:
    """Its pieces are taken back everywhere, it never gets into the history, and what was whole
    before stays before.
    """
    dice = random.Random(7)  # noqa: S311 - the same on each run
    count = 1 if "postgres" not in database else 2
    async with AsyncExitStack() as running:
        processes = [
            await running.enter_async_context(
                process(database, ScriptedChatModel(script=speak, delay=0.005), EAGER)
            )
            for _ in range(count)
        ]
        async with asyncio.timeout(PATIENCE * 4):
            for first in range(0, ROUNDS * AT_ONCE, AT_ONCE):
                rounds = [Round(processes, dice, first + each) for each in range(AT_ONCE)]
                screens = await asyncio.gather(*(each.play() for each in rounds))
                late = [e for tabs in screens for each in tabs for e in after_the_user(each.events)]
                assert [event for event in late if WORD in words_of(event)] == []
