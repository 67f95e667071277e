"""LangChain's chat page, as `create-agent-chat-app` ships it, driven in a real browser."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Browser, expect

from segue.events import MessageStored
from tests.clients.packages import installed
from tests.clients.stage import Site, pages, serving, tab_of
from tests.web.stage import FOLLOW_UP

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def app() -> Iterator[str]:
    folder: Path = installed("agent-chat-ui")
    with pages(folder / "dist") as origin:
        yield origin


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory, app: str) -> AsyncIterator[Site]:
    folder = str(tmp_path_factory.mktemp("site"))
    async with serving(folder, cors_origins=(app,)) as running:
        yield running


async def _until_followed_up(site: Site, address: str) -> None:
    [thread] = parse_qs(urlsplit(address).query)["threadId"]
    heard = site.served.segue.listen(thread, since="0")
    async with aclosing(heard) as events:
        async for event in events:
            if isinstance(event.payload, MessageStored) and event.payload.message.text == FOLLOW_UP:
                return


async def test_a_conversation_a_reload_and_a_follow_up(
    browser: Browser, app: str, site: Site
) -> None:
    """A message and its answer are shown once; after a reload the follow-up is, too."""
    query = {"apiUrl": site.address, "assistantId": "ada"}
    async with tab_of(browser, app, site, **query) as tab:
        page, bubbles = tab.page, tab.page.locator("p.rounded-3xl")
        await tab.say("Which chords?")
        await expect(page.get_by_text("Shall we go on?")).to_have_count(1)
        await expect(bubbles).to_have_text(["Which chords?"])
        await page.wait_for_url("**threadId=**")
        await _until_followed_up(site, page.url)
        await page.reload()
        await expect(page.get_by_text(FOLLOW_UP)).to_have_count(1)
        await expect(bubbles).to_have_text(["Which chords?"])
        await tab.say("Thanks.")
        await expect(page.get_by_text("You said: Thanks.")).to_have_count(1)
        await expect(bubbles).to_have_text(["Which chords?", "Thanks."])
