"""A slow network in a real browser: answers that come late, and clicks that come early."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.web.stage import PATIENCE, Served, eager, served, tab_of

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def late(page: Page, pattern: str, method: str = "") -> AsyncIterator[asyncio.Event]:
    """Holds the next answer until the end of the block; the event tells that the server gave it."""
    asked, given, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        if asked.is_set() or method not in {"", route.request.method}:
            await route.fallback()
            return
        asked.set()
        answer = await route.fetch(timeout=PATIENCE)
        given.set()
        await over.wait()
        await route.fulfill(response=answer)

    await page.route(pattern, hold)
    yield given
    async with page.expect_request_finished():
        over.set()
    await page.evaluate("new Promise(go => requestAnimationFrame(() => requestAnimationFrame(go)))")


async def test_a_late_list_does_not_replace_a_newer_one(browser: Browser, site: Served) -> None:
    """What was just added stays in it."""
    async with tab_of(browser, site) as tab:
        page = tab.page
        noted = page.get_by_text("I sing.")
        async with late(page, "**/api/memories*") as given:
            await page.goto(f"{site.address}/#/memories")
            await given.wait()
            await page.get_by_role("combobox").select_option("minder")
            await page.get_by_label("Something to remember").fill("I sing.")
            await page.get_by_role("button", name="Remember").click()
            await noted.wait_for()
        await expect(noted).to_be_visible()
        await page.get_by_role("button", name="Forget: I sing.").click()
        await expect(noted).to_have_count(0)


async def test_the_inspector_shows_what_it_read_last(browser: Browser, site: Served) -> None:
    """An answer from before the message does not hide the message's batch."""
    async with tab_of(browser, site, viewport={"width": 1440, "height": 900}) as tab:
        await tab.begin("Calm")
        batch = tab.page.get_by_role("tabpanel").get_by_text("complete ·")
        async with late(tab.page, "**/batches") as given:
            await tab.page.get_by_role("button", name="Inspector").click()
            await given.wait()
            await tab.say("Hello.")
            await batch.wait_for()
        await expect(batch).to_be_visible()


async def test_results_are_of_what_was_typed_last(browser: Browser, site: Served) -> None:
    """A late answer to an earlier word does not replace them."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        await tab.say("A xylophone.")
        await tab.check_shows("You said: A xylophone.")
        await tab.page.keyboard.press("Control+k")
        dialog = tab.page.get_by_role("dialog")
        nothing = dialog.get_by_text("Nothing found for “zither”.")
        async with late(tab.page, "**/api/search*") as given:
            await dialog.get_by_role("searchbox").fill("xylophone")
            await given.wait()
            await dialog.get_by_role("searchbox").fill("zither")
            await nothing.wait_for()
        await expect(nothing).to_be_visible()


async def test_enter_opens_nothing_that_was_found_for_other_words(
    browser: Browser, site: Served
) -> None:
    """While the results are on their way, the list is of what was typed before."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        await tab.say("A marimba.")
        await tab.check_shows("You said: A marimba.")
        await tab.page.keyboard.press("Control+k")
        dialog = tab.page.get_by_role("dialog")
        box = dialog.get_by_role("searchbox")
        await box.fill("marimba")
        await dialog.get_by_role("link").first.wait_for()
        async with late(tab.page, "**/api/search*") as given:
            await box.fill("zither")
            await box.press("Enter")
            await given.wait()
            await expect(dialog).to_be_visible()
        await dialog.get_by_text("Nothing found for “zither”.").wait_for()


async def test_the_bell_shows_the_newest_choice(browser: Browser, site: Served) -> None:
    """A late answer about what was read does not take it back."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        bell = tab.page.get_by_role("button", name="Do not write first")
        async with late(tab.page, "**/read") as given:
            await tab.say("Hello.")
            await given.wait()
            await bell.click()
            await expect(bell).to_have_attribute("aria-pressed", "true")
        await expect(bell).to_have_attribute("aria-pressed", "true")


async def test_preferences_show_the_newest_choice(browser: Browser, site: Served) -> None:
    """An answer from before it does not take it back."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Calm")
        stopped = tab.page.get_by_text("Off: no follow-ups and no reminders.")
        async with late(tab.page, "**/api/me") as given:
            await tab.say("Hello.")
            await given.wait()
            await tab.page.goto(f"{site.address}/#/preferences")
            await tab.page.get_by_role("checkbox", name="Agents may write to me first").uncheck()
            await stopped.wait_for()
        await expect(stopped).to_be_visible()
        await tab.page.get_by_role("checkbox", name="Agents may write to me first").check()
        await expect(stopped).to_have_count(0)


async def test_of_two_choices_none_is_taken_back(browser: Browser, site: Served) -> None:
    """The answer to the first comes after that to the second, and does not know of it."""
    async with tab_of(browser, site) as tab:
        page = tab.page
        await page.goto(f"{site.address}/#/preferences")
        allowed = page.get_by_role("checkbox", name="Agents may write to me first")
        end = page.get_by_role("button", name="End it")
        async with late(page, "**/api/me") as given:
            await allowed.uncheck()
            await given.wait()
            await page.get_by_role("button", name="An hour").click()
            await end.wait_for()
        await expect(end).to_be_visible()
        await end.click()
        await allowed.check()
        await page.get_by_text("Also switched off when you tell an agent").wait_for()
        await expect(end).to_have_count(0)


async def test_a_question_is_not_asked_again_by_a_late_answer(
    browser: Browser, site: Served
) -> None:
    """The form stays away once its question is answered."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Asker")
        form = tab.page.get_by_role("form", name="A question for you")
        async with late(tab.page, "**/history?limit=10") as given:
            await tab.say("Book a table.")
            await given.wait()
            await form.get_by_role("textbox").fill("For nine.")
            await form.get_by_role("button", name="Answer").click()
            await tab.check_shows("So: For nine.")
            await expect(form).to_have_count(0)
        await expect(form).to_have_count(0)


async def test_a_simulation_of_another_agent_is_not_shown(browser: Browser, site: Served) -> None:
    """Chosen while the first one ran, the agent is simulated when it is asked for."""
    async with tab_of(browser, site) as tab:
        page = tab.page
        button = page.get_by_role("button", name="Simulate")
        async with late(page, "**/api/admin/simulations", "POST") as given:
            await page.goto(f"{site.address}/simulate")
            await given.wait()
            await page.get_by_label("Agent").select_option("calm")
        await expect(button).to_be_enabled()
        await expect(page.locator("figure")).to_have_count(0)


async def test_a_second_click_begins_no_second_conversation(
    browser: Browser, tmp_path: Path
) -> None:
    """The first one is on its way; what was typed meanwhile is kept."""
    async with (
        served(str(tmp_path), eager("calm", "Calm", 3_600)) as own,
        tab_of(browser, own) as tab,
    ):
        box = tab.page.get_by_role("textbox", name="Write to")
        async with late(tab.page, "**/api/threads") as given:
            await tab.say("Hello.")
            await given.wait()
            await tab.page.get_by_role("button", name="New", exact=True).click()
            await tab.say("Are you there?")
            await expect(box).to_have_value("Are you there?")
        await tab.check_shows("You said: Hello.")
        assert len(await own.segue.list_threads("me")) == 1


async def test_a_first_message_that_is_not_sent_is_kept(browser: Browser, site: Served) -> None:
    """The text is in its field again, with the reason."""
    async with tab_of(browser, site) as tab:
        await tab.page.route("**/api/threads", lambda route: route.abort())
        await tab.say("Hello.")
        await tab.page.get_by_role("alert").wait_for()
        box = tab.page.get_by_role("textbox", name="Write to")
        await expect(box).to_have_value("Hello.")
        await tab.page.unroute("**/api/threads")
        await box.press("Enter")
        await tab.check_shows("You said: Hello.")
        tab.mistakes.clear()  # the browser notes the failure


async def test_a_second_click_adds_nothing_twice(browser: Browser, site: Served) -> None:
    """And what is typed meanwhile stays in the field."""
    async with tab_of(browser, site) as tab:
        page = tab.page
        await page.goto(f"{site.address}/#/memories")
        await page.get_by_role("combobox").select_option("minder")
        await page.get_by_text("Nothing is remembered yet.").wait_for()
        field = page.get_by_label("Something to remember")
        async with late(page, "**/api/memories") as given:
            await field.fill("I dance.")
            await field.press("Enter")
            await given.wait()
            await field.press("Enter")
            await expect(page.get_by_role("button", name="Remember")).to_be_disabled()
            await field.fill("I cook.")
        await page.get_by_role("button", name="Forget: I dance.").click()
        await page.get_by_text("Nothing is remembered yet.").wait_for()
        await expect(field).to_have_value("I cook.")


async def test_a_conversation_that_was_not_read_is_read_when_the_server_is_back(
    browser: Browser, tmp_path: Path
) -> None:
    """Without a click."""
    async with (
        served(str(tmp_path), eager("calm", "Calm", 3_600)) as own,
        tab_of(browser, own) as tab,
    ):
        await tab.begin()
        await tab.say("Hello.")
        await tab.check_shows("You said: Hello.")
        await tab.page.route("**/history*", lambda route: route.abort())
        await tab.page.reload()
        await tab.page.get_by_role("button", name="Try again").wait_for()
        await own.stop()
        await tab.page.get_by_text("Connection lost; reconnecting").wait_for()
        await tab.page.unroute("**/history*")
        await own.start()
        await tab.check_shows("You said: Hello.")
        tab.mistakes.clear()  # the browser notes the failures


async def test_a_server_that_refuses_the_first_requests_is_asked_again(
    browser: Browser, site: Served
) -> None:
    """As over the rate limit, or behind a proxy while it restarts."""
    async with tab_of(browser, site) as tab:
        await tab.page.route("**/api/me", lambda route: route.fulfill(status=429))
        await tab.page.reload()
        await tab.page.get_by_text("This page retries automatically.").wait_for()
        await tab.page.unroute("**/api/me")
        await expect(tab.page.get_by_role("textbox", name="Write to")).to_be_visible()
        tab.mistakes.clear()  # the browser notes the refusals
