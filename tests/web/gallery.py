"""A server in mid-November with weeks of conversations behind it, for pictures of the page.

Everything was said and decided by a real Segue on a virtual clock, which then stands still: the
same pictures come out at any hour. `python -m tests.web.gallery` renews those of the docs.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from playwright.async_api import Browser, BrowserContext

from segue.agent.scripted import ScriptedChatModel
from segue.server.app import create_app
from segue.server.serving import open_socket, serving
from segue.server.settings import ServerSettings
from segue.settings.agents import AgentConfig
from segue.simulate.world import Stage, VirtualClock, World, plain_agent, with_graph
from tests.web.stage import Tab, browsing, look_up, open_tab

NOW = datetime(2026, 11, 17, 10, 43, tzinfo=UTC)  # a Tuesday
WEEKS = 8
CHORDS = """Start with **G**, **C** and **D**: most songs of a campfire need no more.

1. Press *lightly*, close to the fret.
2. Change slowly; the beat matters more than the speed.

```
e|--3--0--2--|
B|--0--1--3--|
G|--0--0--2--|
```

| chord | fingers | feels |
|---|---|---|
| G | 3 | open |
| C | 3 | a stretch |

Shall we go through G first?"""
ANSWERS = {
    "chords": CHORDS,
    "learn the guitar": "Lovely. Do you have a guitar already, or shall we look for one first?",
    "my sister's": "Then we can begin today. Is it a steel-string or a classical one?",
    "Oslo": "Oslo in May is light until ten. Fly on Thursday evening, stay near **Grünerløkka**, "
    "and take the ferry to the islands on Saturday.\n\nDo you prefer museums or the water?",
    "water": "Then a sauna on the fjord, and a kayak on Saturday morning.",
    "tax return": "The forms for this year come out on 4 January. Until then, collect receipts.",
    "Bye": "Good night!",
    "sleep": "Try to put the phone away an hour before. Will you try it tonight?",
}
FOLLOW_UPS = {
    "chords": "Did G and C work out? If your fingers hurt, that is normal in the first week.",
    "Oslo": "Have you had a look at the ferry times? The islands are worth a whole day.",
    "sleep": "How was the night?",
    "my sister's": "Could you see which strings it has? Steel ones are wound and shine.",
}
WARM = "Ask me warmly how it went."


def _text_of(messages: list[BaseMessage]) -> str:
    """What the user said last. Triggers look the same to a model; this one knows its lines."""
    known = (*ANSWERS, "broken")
    spoken = [m.text for m in messages if m.type == "human"]
    return next((t for t in reversed(spoken) if any(word in t for word in known)), spoken[-1])


def say(messages: list[BaseMessage]) -> AIMessage | BaseException:
    said = _text_of(messages)
    last = messages[-1]
    if "broken" in said:
        return ValueError("The model could not be reached.")
    if last.type == "human" and last.text != said:
        found = next((text for word, text in FOLLOW_UPS.items() if word in said), "How did it go?")
        return AIMessage(found)
    if "ferry" in said and last.type == "human":
        calls = [
            {"name": "look_up", "args": {"what": each}, "id": each} for each in ("ferry", "tide")
        ]
        return AIMessage("", tool_calls=calls)
    if last.type == "tool":
        return AIMessage("The last ferry back leaves at 23:32, and the tide is low at noon.")
    return AIMessage(next((text for word, text in ANSWERS.items() if word in said), "Noted."))


def _agents() -> tuple[AgentConfig, ...]:
    hour = dict.fromkeys(
        ("question_unanswered", "waiting_for_decision", "check_in", "task_incomplete"), 3_600
    )
    variants = [
        {"name": "plain", "text": "Ask me how it went."},
        {"name": "warm", "text": WARM},
    ]
    policy = {"quiet_hours": {"start": "22:00", "end": "08:00"}, "max_consecutive": 1}
    autonomy: dict[str, Any] = {"delays": hour, "policy": {**policy, "max_per_day": 50}}
    prompts = {"question_unanswered": variants}
    ada = plain_agent(
        "ada", name="Ada", memory={"text_weight": 1}, tools=(look_up,), autonomy=autonomy
    )
    sol = plain_agent("sol", name="Sol", autonomy={**autonomy, "prompts": prompts})
    milo = plain_agent("milo", name="Milo", tools=(look_up,), autonomy=autonomy)
    builder = StateGraph(MessagesState)

    asked = {"question": "A table for how many?", "choices": ["two", "four", "eight"]}
    builder.add_node("ask", lambda _: {"messages": [AIMessage(f"Booked for {interrupt(asked)}.")]})
    builder.add_edge(START, "ask")
    return ada, milo, sol, with_graph(plain_agent("nora", name="Nora"), builder)


@dataclass
class Gallery:
    """A served world; `threads` are those of its user, by name."""

    world: World
    address: str
    threads: dict[str, str]

    async def visit(
        self, browser: Browser, width: int, scheme: str, **options: Any
    ) -> tuple[BrowserContext, Tab]:
        """A tab at the gallery's time, which stands still."""
        height = 844 if width < 500 else 900
        context = await browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
            **options,
        )
        await context.clock.set_fixed_time(self.world.clock.now())
        return context, await open_tab(context, self.address)


@asynccontextmanager
async def staged(
    folder: str,
    *agents: AgentConfig,
    models: dict[str, ScriptedChatModel] | None = None,
    start: datetime = NOW,
    **settings: Any,
) -> AsyncIterator[Gallery]:
    """A server whose time moves by `world.pass_time` alone."""
    stage = Stage(folder, VirtualClock(start))
    given = models or {
        agent.id: ScriptedChatModel(script=say, keep=10) for agent in agents if agent.graph is None
    }
    chosen = ServerSettings(port=0, rate_per_minute=None, **settings)
    async with (
        stage.world(*agents, models=given, max_attempts=1) as world,
        serving(create_app(world.segue, chosen), open_socket(chosen)) as address,
    ):
        yield Gallery(world, address, {})


@asynccontextmanager
async def gallery(folder: str) -> AsyncIterator[Gallery]:
    """Eight weeks of other users, then some days of ours."""
    start = NOW - timedelta(weeks=WEEKS)
    async with staged(folder, *_agents(), start=start) as made:
        for week in range(WEEKS):
            await _week_of_others(made.world, week)
        await _days_of_ours(made)
        yield made


async def _week_of_others(world: World, week: int) -> None:
    """Some who answer a warm follow-up more often than a plain one."""
    threads = [(await world.segue.create_thread(f"user-{week}-{n}", "sol")).id for n in range(6)]
    for thread in threads:
        await world.say(thread, "How do I sleep better?")
    await world.pass_time(hours=1, minutes=5)
    for number, thread in enumerate(threads):
        decisions = await world.journal.decisions.list_of(thread)
        is_warm = any(each.facts.get("variant") == "warm" for each in decisions)
        if number < (3 + week // 2 if is_warm else 1):
            await world.say(thread, "Slept well, thank you. Bye for now!")
    if week < WEEKS - 1:
        await world.pass_time(days=6, hours=22, minutes=55)


async def _days_of_ours(made: Gallery) -> None:
    """They end at the hour of the pictures."""
    world, segue = made.world, made.world.segue

    async def begin(name: str, agent: str, *texts: str) -> None:
        thread = made.threads[name] = (await segue.create_thread("me", agent)).id
        for text in texts:
            await world.say(thread, text)

    async def until(days: int, clock: str) -> None:
        at = datetime.combine(NOW - timedelta(days=days), datetime.min.time(), UTC)
        hour, minute = map(int, clock.split(":"))
        await world.pass_time(at + timedelta(hours=hour, minutes=minute) - world.clock.now())

    await until(5, "18:20")
    await begin("taxes", "milo", "When is my tax return due?")
    await segue.set_thread_preferences(made.threads["taxes"], muted=True)
    await until(3, "17:02")
    await begin("oslo", "milo", "A long weekend in Oslo in May, what do you think?")
    await until(3, "19:40")
    await world.say(made.threads["oslo"], "The water! And when does the ferry go?")
    await until(1, "20:05")
    await begin("guitar", "ada", "I want to learn the guitar.", "Yes, I have my sister's.")
    await until(0, "08:30")
    await begin("table", "nora", "Book a table for Friday, please.")
    await begin("broken", "milo", "Is the broken link on your side?")
    await until(0, "09:41")
    await world.say(made.threads["guitar"], "Steel. Which chords should I learn first?")
    await until(0, "10:43")
    for fact in ("Plays her sister's steel-string guitar.", "Has a daughter, Mia, who is six."):
        await segue.remember("me", fact, "ada")
    await segue.remind(made.threads["guitar"], "tune the guitar", after="20m")
    await segue.remind(made.threads["oslo"], "check in for Oslo", at="2026-11-19T09:00")
    await segue.remind(made.threads["guitar"], "practise", every="FREQ=DAILY;BYHOUR=19;BYMINUTE=0")


# Name, view, width and scheme of the pictures that the docs show.
PUBLISHED = (
    ("page.png", "timeline", 1440, "light"),
    ("page-dark.png", "chat", 1440, "dark"),
    ("simulator.png", "simulator", 1440, "light"),
)


async def simulator(made: Gallery, tab: Tab) -> None:
    """Two policies on the same week, and why the second one waits."""
    await tab.page.goto(f"{made.address}/simulate")
    await tab.page.get_by_text("Both policies do the same.").wait_for()
    fields = {
        "In a row, at most": ("3", "3"),
        "A day, at most": ("5", "1"),
        "After a question": ("1h", "2h"),
        "Quiet hours": ("22:00 to 08:00", "20:00 to 10:00"),
    }
    for label, values in fields.items():
        for policy, value in zip("AB", values, strict=True):
            await tab.page.get_by_label(f"{label}, policy {policy}").fill(value)
    await tab.page.keyboard.press("Enter")
    weeks = tab.page.locator("figure")
    await tab.page.get_by_text("quiet 20:00 to 10:00").wait_for()
    await weeks.nth(1).locator(".mark:has(.postponed)").first.focus()


async def publish(target: Path) -> None:
    from tests.web.test_pictures import VIEWS  # noqa: PLC0415 - the views are drawn there

    with TemporaryDirectory() as folder:
        async with gallery(folder) as made, browsing() as browser:
            for name, view, width, scheme in PUBLISHED:
                context, tab = await made.visit(browser, width, scheme)
                await {**VIEWS, "simulator": simulator}[view](made, tab)
                await tab.page.screenshot(path=target / name)
                await context.close()


if __name__ == "__main__":
    asyncio.run(publish(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures")))
