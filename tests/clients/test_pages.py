"""React hooks in a real browser: the example apps, built with the unmodified packages."""

from datetime import timedelta

import pytest
from playwright.async_api import Browser, expect

from tests.clients.stage import Site, Tab, tab_of
from tests.web.stage import FOLLOW_UP

pytestmark = pytest.mark.anyio
ANSWER = "Start with **G**, then `C`. Shall we go on?"
HOOKS = ("react", "hook")


async def _check_conversation(tab: Tab, *words: str) -> None:
    for each in words:
        await tab.check_shows(each)
    await expect(tab.page.get_by_role("status")).to_have_text("")
    await expect(tab.words).to_have_text([*words])


@pytest.mark.parametrize("hook", HOOKS)
async def test_the_agent_writes_first_and_a_reload_shows_the_same(
    browser: Browser, apps: str, open_site: Site, hook: str
) -> None:
    """A message shown once, a streamed answer, and a follow-up without another request."""
    query = {"api": open_site.address, "agent": "ada"}
    async with tab_of(browser, f"{apps}/{hook}", open_site, **query) as tab:
        await tab.say("Which chords?")
        await _check_conversation(tab, "Which chords?", ANSWER, FOLLOW_UP)
        await tab.page.reload()
        await _check_conversation(tab, "Which chords?", ANSWER, FOLLOW_UP)
        await tab.say("bye")
        await _check_conversation(tab, "Which chords?", ANSWER, FOLLOW_UP, "bye", "Good night.")


@pytest.mark.parametrize("hook", HOOKS)
async def test_an_answer_is_shown_while_it_is_written(
    browser: Browser, apps: str, open_site: Site, hook: str
) -> None:
    """Its beginning is there while the rest is not written yet."""
    query = {"api": open_site.address, "agent": "calm"}
    async with tab_of(browser, f"{apps}/{hook}", open_site, **query) as tab:
        await tab.say("slow, please")
        await tab.check_shows("word3")
        open_site.gate.set()
        await tab.check_shows("word399")
        open_site.gate.clear()
        await expect(tab.words).to_have_count(2)


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_page_that_only_opened_a_conversation_hears_a_follow_up(
    browser: Browser, apps: str, open_site: Site, hook: str
) -> None:
    """Nothing was submitted in this tab; what comes is shown, and nothing twice."""
    segue = open_site.served.segue
    thread = await segue.create_thread("me", agent_id="calm")
    await segue.reply(thread, "Which chords?")
    query = {"api": open_site.address, "agent": "calm", "thread": thread.id}
    async with tab_of(browser, f"{apps}/{hook}", open_site, **query) as tab:
        await _check_conversation(tab, "Which chords?", ANSWER)
        await segue.follow_up(thread, after=timedelta(seconds=0.2))
        await _check_conversation(tab, "Which chords?", ANSWER, FOLLOW_UP)
