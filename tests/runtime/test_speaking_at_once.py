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
from segue.events import MessageDelta, MessageStored, Payload
from segue.journal.records import NewTimer, TurnKind, TurnState
from segue.simulate.world import plain_agent
from tests.runtime.scenes import Process, Tab, process, tab

pytestmark = pytest.mark.anyio

ROUNDS = 3
MANY_ROUNDS = 12
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
        """Both speak; the screens of all processes once the user is answered, unless the user had
        seen the follow-up.
        """
        here = self.dice.choice(self.processes)
        parts = here.system.deps
        thread = (await here.segue.create_thread(f"user {self.number}")).id
        async with AsyncExitStack() as open_tabs:
            tabs = [
                await open_tabs.enter_async_context(tab(each.segue, thread))
                for each in self.processes
            ]
            now = parts.clock.now()
            await parts.journal.timers.arm(
                NewTimer(thread, now, "check_in"), ids=parts.ids, now=now
            )
            parts.wakeups.timers.now()
            if self.dice.random() < 0.7:  # about when the first word comes, on some screen
                await self.dice.choice(tabs).until(lambda seen: bool(seen.drafts or seen.said))
            await asyncio.sleep(self.dice.random() * 0.1)
            there = self.dice.choice(self.processes)
            accepted = await there.segue.send(thread, "Hi")
            late = await open_tabs.enter_async_context(tab(there.segue, thread))
            tabs.append(late)
            for each in tabs:
                await each.until(lambda seen: "Fine." in seen.texts and not seen.drafts)
        # On a slow machine the user may have read the follow-up for a second: then it goes on.
        was_seen = accepted.shown_turn is not None
        await self.check(here, thread, tabs, was_seen=was_seen)
        return [] if was_seen else tabs

    async def check(self, here: Process, thread: str, tabs: list[Tab], *, was_seen: bool) -> None:
        turns = await here.system.deps.journal.turns.list_of(thread)
        follow_ups = [turn for turn in turns if turn.kind is TurnKind.FOLLOW_UP]
        assert len(follow_ups) <= 1
        texts = [m.text for m in (await here.segue.history(thread)).messages]
        is_sent = any(turn.state is TurnState.DONE for turn in follow_ups)
        assert was_seen or texts == [*([SPEECH] if is_sent else []), "Hi", "Fine."]
        for each in tabs:
            assert each.texts == texts


def after_the_user(events: list[Payload]) -> list[Payload]:
    return [*dropwhile(lambda event: words_of(event) != "Hi", events)]


def words_of(event: Payload) -> str:
    if isinstance(event, MessageStored):
        return event.message.text
    return event.text if isinstance(event, MessageDelta) else ""


@pytest.mark.parametrize("count", [ROUNDS, pytest.param(MANY_ROUNDS, marks=pytest.mark.long)])
async def test_after_the_users_message_no_screen_shows_a_follow_up_that_is_void(
    database: str, count: int
) -> None:
    """Its pieces are taken back everywhere, it never gets into the history, and what was whole
    before stays before.
    """
    dice = random.Random(7)  # noqa: S311 - the same on each run
    workers = 1 if "postgres" not in database else 2
    async with AsyncExitStack() as running:
        processes = [
            await running.enter_async_context(
                process(database, ScriptedChatModel(script=speak, delay=0.005), EAGER)
            )
            for _ in range(workers)
        ]
        for first in range(0, count * AT_ONCE, AT_ONCE):
            rounds = [Round(processes, dice, first + each) for each in range(AT_ONCE)]
            screens = await asyncio.gather(*(each.play() for each in rounds))
            late = [e for tabs in screens for each in tabs for e in after_the_user(each.events)]
            assert [event for event in late if WORD in words_of(event)] == []
