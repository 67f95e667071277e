"""The inspector's time line and server in a real browser, on a clock that stands still."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from playwright.async_api import Browser, Locator, expect

from segue.agent.scripted import ScriptedChatModel
from segue.settings.agents import AgentConfig
from segue.simulate.world import plain_agent
from tests.runtime.receiver import Receiver, status
from tests.web.gallery import Gallery, staged
from tests.web.stage import Tab

pytestmark = pytest.mark.anyio

QUIET = {"decider": "none"}


def calling(tool: str, /, **args: Any) -> AIMessage:
    call = {"name": tool, "args": args, "id": f"of-{tool}", "type": "tool_call"}
    return AIMessage("", tool_calls=[call])


@asynccontextmanager
async def inspected(
    browser: Browser, folder: Path, *agents: AgentConfig, **scripts: Any
) -> AsyncIterator[tuple[Gallery, Tab]]:
    """A user's message to the first agent, and the inspector open beside it."""
    models = {name: ScriptedChatModel(script=lines) for name, lines in scripts.items()}
    async with staged(str(folder), *agents, models=models) as made:
        thread = await made.world.segue.create_thread("me", agents[0].id)
        await made.world.say(thread.id, "Look after it, please.")
        made.threads["one"] = thread.id
        context, tab = await made.visit(browser, 1440, "light")
        await look(made, tab)
        yield made, tab
        assert tab.mistakes == []
        await context.close()


async def look(made: Gallery, tab: Tab) -> None:
    """Show the thread as it is now, at the world's time."""
    page = tab.page
    await page.context.clock.set_fixed_time(made.world.clock.now())
    await page.goto(f"{made.address}/#/t/{made.threads['one']}")
    await page.reload()
    await tab.log.wait_for()
    inspector = page.get_by_role("button", name="Inspector")
    if await inspector.get_attribute("aria-pressed") == "false":
        await inspector.click()
    await page.locator("segue-timeline rect.bar").first.wait_for()


def lane(tab: Tab, kind: str) -> Locator:
    """The bars of a kind of batch."""
    return tab.page.get_by_role("group", name="Timeline").get_by_role("link", name=kind)


async def test_a_batch_that_goes_on_later_is_hatched_and_then_drawn_in_parts(
    browser: Browser, tmp_path: Path
) -> None:
    """While it waits, a ring fills; when it went on, a dashed line joins its two turns."""
    agent = plain_agent("ada", name="Ada", continuations=2, autonomy=QUIET)
    lines = [calling("continue_later", after_seconds=60, reason="see if it is done"), "Done."]
    lines.insert(1, "I look again in a minute.")
    async with inspected(browser, tmp_path, agent, ada=lines) as (made, tab):
        bar = lane(tab, "user request")
        await expect(bar.locator("rect.open")).to_have_count(1)
        fill = await bar.locator("rect.open").evaluate("each => getComputedStyle(each).fill")
        assert "hatch" in fill
        ring = tab.page.locator("segue-timeline circle.filled")
        await expect(ring).to_have_attribute("stroke-dasharray", re.compile(r"^0 "))
        timeline = tab.page.locator("segue-timeline")
        await expect(timeline.get_by_text("01:00")).to_have_count(1)
        await made.world.pass_time(seconds=30)
        await look(made, tab)
        await expect(timeline.get_by_text("00:30")).to_have_count(1)
        filled, whole = map(float, (await ring.get_attribute("stroke-dasharray") or "").split())
        assert filled / whole == pytest.approx(0.5)
        await made.world.pass_time(seconds=30)
        await look(made, tab)
        await expect(bar.locator("rect.user_request")).to_have_count(2)
        await expect(bar.locator("line.later")).to_have_count(1)
        await expect(bar.locator("rect.open")).to_have_count(0)
        await expect(ring).to_have_count(0)


async def test_what_another_agent_was_asked_hangs_below_the_batch_that_asked(
    browser: Browser, tmp_path: Path
) -> None:
    """A bar in a lane of its own, joined by a line; chosen, the batch shows it nested."""
    ada = plain_agent("ada", name="Ada", may_ask=("atlas",), autonomy=QUIET)
    atlas = plain_agent("atlas", name="Atlas", autonomy=QUIET)
    lines = [calling("ask_agent", name="atlas", text="How far is it?"), "It is 12 km."]
    answers = ["12 km."]
    async with inspected(browser, tmp_path, ada, atlas, ada=lines, atlas=answers) as (_, tab):
        timeline = tab.page.locator("segue-timeline")
        await expect(timeline.get_by_text("agents", exact=True)).to_have_count(1)
        await expect(lane(tab, "agent to agent").locator("rect.agent_to_agent")).to_have_count(1)
        await expect(timeline.locator("path.link")).to_have_count(1)
        await expect(lane(tab, "user request").locator("rect.call")).to_have_count(1)
        nested = tab.page.locator("details details")
        await lane(tab, "agent to agent").click()
        await expect(nested).to_have_class("chosen")
        await expect(nested.get_by_text("How far is it?")).to_be_visible()


async def test_a_dead_letter_is_tried_again_from_the_page(browser: Browser, tmp_path: Path) -> None:
    """What a receiver refused for good is sent once more, and leaves the list."""
    with Receiver() as receiver:
        receiver.answer = status(410)
        target = receiver.target
        hook = {"url": target.url, "secret": target.secret, "all_replies": True}
        agent = plain_agent("ada", name="Ada", autonomy=QUIET, webhook=hook)
        async with inspected(browser, tmp_path, agent, ada=_echo) as (made, tab):
            await made.world.pass_time(seconds=1)
            await tab.page.get_by_role("tab", name="Server").click()
            panel = tab.page.get_by_role("tabpanel")
            await panel.get_by_text("webhook", exact=True).wait_for()
            await tab.page.route("**/retry", lambda route: route.fulfill(status=503))
            await panel.get_by_role("button", name="Try again").click()
            await panel.get_by_role("alert").wait_for()
            for _ in range(2):  # looks at the server, which leave the error where it is
                await tab.page.wait_for_event("response", lambda r: "dead-letters" in r.url)
            await expect(panel.get_by_role("alert")).to_be_visible()
            assert [tab.mistakes.pop()[:23]] == ["Failed to load resource"]
            await tab.page.unroute("**/retry")
            receiver.answer = status(200)
            await panel.get_by_role("button", name="Try again").click()
            await panel.get_by_text("No failed deliveries.").wait_for()
            await expect(panel.get_by_role("alert")).to_have_count(0)
            await made.world.clock.settle()
            assert len(receiver.got) == 2
            assert await made.world.journal.effects.list_dead() == []


def _echo(messages: list[BaseMessage]) -> str:
    return f"You said: {messages[-1].text}"
