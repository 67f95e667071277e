"""The widget on pages of a site: whose conversation it shows, and when one is created."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, Route, expect

from segue.server.auth import new_key
from tests.web.stage import FOLLOW_UP, PATIENCE, Served, eager, served
from tests.web.test_servers import foreign_site

pytestmark = pytest.mark.anyio

ALLOWED = {"Access-Control-Allow-Origin": "*"}
ROOT = Path(__file__).parents[2]
HTML = """<!doctype html><html lang="en"><title>A site</title><body>
<script type="module" src="{server}/web/chat.js"></script><segue-chat {attributes}></segue-chat>
<script>document.querySelector("segue-chat").key = "{key}"</script>"""


@pytest.fixture(scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    agents = (eager("amy", "Amy", 3_600), eager("bob", "Bob", 3_600))
    folder = str(tmp_path_factory.mktemp("widget"))
    with foreign_site(b"") as origin:
        async with served(folder, *agents, cors_origins=(origin,)) as running:
            yield running


@pytest.fixture
async def visitor(browser: Browser) -> AsyncIterator[BrowserContext]:
    """The browser of one visitor."""
    context = await browser.new_context()
    context.set_default_timeout(PATIENCE)
    yield context
    await context.close()


async def key_of(host: Served, user: str) -> str:
    key, secret = new_key(user, user, datetime(2026, 1, 1, tzinfo=UTC))
    await host.journal.keys.add(key)
    return secret


async def open_widget(page: Page, host: Served, key: str, attributes: str = "") -> None:
    """A page of the site with the widget, instead of the page before."""
    await open_html(page, host, HTML.format(server=host.address, attributes=attributes, key=key))


async def open_html(page: Page, host: Served, html: str) -> None:
    """Show a page of the site, after those before it have been left."""
    [origin] = host.settings.cors_origins
    await page.goto(f"{origin}/")
    await page.set_content(html)


async def say(page: Page, text: str, agent: str = "Amy") -> None:
    box = page.get_by_role("textbox", name=f"Write to {agent}")
    await box.fill(text)
    await box.press("Enter")
    await expect(said(page, f"You said: {text}")).to_be_visible()


def said(page: Page, text: str) -> Locator:
    return page.get_by_role("log").get_by_text(text, exact=True)


async def threads_of(host: Served, user: str) -> list[str]:
    return [thread.id for thread in await host.segue.list_threads(user)]


async def test_each_agent_has_a_conversation_of_its_own(
    host: Served, visitor: BrowserContext
) -> None:
    """Two pages of a site with one agent each; without a name it is the server's first."""
    key, page = await key_of(host, "anna"), await visitor.new_page()
    await open_widget(page, host, key, 'agent="amy"')
    await say(page, "Hello Amy")
    await open_widget(page, host, key, 'agent="bob"')
    await say(page, "Hello Bob", agent="Bob")
    await expect(said(page, "Hello Amy")).to_have_count(0)
    await open_widget(page, host, key)
    await expect(said(page, "Hello Amy")).to_be_visible()
    assert len(await threads_of(host, "anna")) == 2


async def test_each_user_of_a_browser_has_a_conversation_of_their_own(
    host: Served, visitor: BrowserContext
) -> None:
    """Also with a new key; the browser keeps none of their keys."""
    page = await visitor.new_page()
    keys = [await key_of(host, user) for user in ("bert", "cleo", "bert")]
    for key, text in zip(keys, ("I am Bert", "I am Cleo"), strict=False):
        await open_widget(page, host, key)
        await say(page, text)
    await open_widget(page, host, keys[2])
    await expect(said(page, "I am Bert")).to_be_visible()
    await expect(said(page, "I am Cleo")).to_have_count(0)
    kept = await page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
    assert not [key for key in keys if key in kept]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("threads/", 429),
        pytest.param("threads?limit=50", 503, marks=pytest.mark.long),
        pytest.param("threads?limit=50", None, marks=pytest.mark.long),
    ],
)
async def test_an_error_loses_no_conversation(
    host: Served, visitor: BrowserContext, asked: str, status: int | None
) -> None:
    """Whether the server is busy, restarts or cannot be reached, the widget says so and retries."""
    user = f"dora-{asked[7]}-{status}"
    key, page = await key_of(host, user), await visitor.new_page()
    await open_widget(page, host, key)
    await say(page, "Remember me")
    [thread] = await threads_of(host, user)
    failures = [status]

    async def fail_once(route: Route) -> None:
        if asked not in route.request.url:  # an old conversation is not among the newest
            await route.fulfill(json={"items": [], "next": None}, headers=ALLOWED)
        elif not failures:
            await route.fallback()
        elif (code := failures.pop()) is None:
            await route.abort()
        else:
            await route.fulfill(status=code, json={"detail": "Not now."}, headers=ALLOWED)

    await page.route(f"{host.address}/api/threads?limit=50", fail_once)
    await page.route(f"{host.address}/api/threads/{thread}", fail_once)
    await open_widget(page, host, key)
    await expect(page.get_by_role("status")).to_contain_text("Trying again…")
    await expect(said(page, "Remember me")).to_be_visible()
    assert await threads_of(host, user) == [thread]


async def test_a_conversation_or_agent_that_does_not_exist_is_named(
    host: Served, visitor: BrowserContext
) -> None:
    """And no other conversation is started."""
    key, page = await key_of(host, "emma"), await visitor.new_page()
    status = page.get_by_role("status")
    await open_widget(page, host, key, 'thread="nowhere"')
    await expect(status).to_have_text("Thread 'nowhere' does not exist.")
    await open_widget(page, host, key, 'agent="nobody"')
    await expect(status).to_have_text('The server has no agent "nobody".')
    assert await threads_of(host, "emma") == []


async def test_a_deleted_conversation_makes_room_for_another(
    host: Served, visitor: BrowserContext
) -> None:
    """While it is shown, and while the page is closed."""
    key, page = await key_of(host, "fred"), await visitor.new_page()
    await open_widget(page, host, key)
    for text in ("First", "Second"):
        await say(page, text)
        [thread] = await threads_of(host, "fred")
        if text == "Second":
            await page.goto("about:blank")
        await host.segue.delete_thread(thread)
        if text == "Second":
            await open_widget(page, host, key)
        await expect(page.get_by_role("heading", name="Say hello")).to_be_visible()


async def test_only_the_first_message_stores_a_conversation(
    host: Served, visitor: BrowserContext
) -> None:
    """A draft survives a reload before; after it, the visitor can write on at once."""
    key, page = await key_of(host, "gina"), await visitor.new_page()
    await open_widget(page, host, key)
    box = page.get_by_role("textbox", name="Write to Amy")
    await box.fill("Hello")
    await open_widget(page, host, key)
    await expect(box).to_have_value("Hello")
    assert await threads_of(host, "gina") == []
    await box.press("Enter")
    await expect(said(page, "You said: Hello")).to_be_visible()
    await expect(box).to_be_focused()
    await expect(box).to_have_value("")
    other = await visitor.new_page()
    await open_widget(other, host, key)
    await expect(said(other, "Hello")).to_be_visible()
    assert len(await threads_of(host, "gina")) == 1


async def test_tabs_that_wait_for_a_first_message_share_the_conversation(
    host: Served, visitor: BrowserContext
) -> None:
    """The second tab finds the conversation of the first."""
    key = await key_of(host, "hugo")
    tabs = [await visitor.new_page() for _ in range(2)]
    for page in tabs:
        await open_widget(page, host, key)
        await page.get_by_role("textbox", name="Write to Amy").wait_for()
    for number, page in enumerate(tabs):
        await page.bring_to_front()
        await say(page, f"From tab {number}")
    await expect(said(tabs[1], "From tab 0")).to_be_visible()
    assert len(await threads_of(host, "hugo")) == 1


async def test_a_first_message_that_cannot_be_sent_stays_in_the_field(
    host: Served, visitor: BrowserContext
) -> None:
    """With one that was written meanwhile, in their order."""
    key, page = await key_of(host, "ines"), await visitor.new_page()
    await open_widget(page, host, key)
    refused = asyncio.Event()

    async def refuse(route: Route) -> None:
        await refused.wait()
        await route.fulfill(status=429, json={"detail": "Slow down."}, headers=ALLOWED)

    await page.route(f"{host.address}/api/threads", refuse)
    box = page.get_by_role("textbox", name="Write to Amy")
    for text in ("One", "Two"):
        await box.fill(text)
        await box.press("Enter")
    await expect(box).to_have_value("Two")
    refused.set()
    await expect(page.get_by_role("alert")).to_have_text("Slow down.")
    await expect(box).to_have_value("One\nTwo")


async def test_an_agent_that_opens_the_conversation_is_shown(
    host: Served, visitor: BrowserContext
) -> None:
    """While the visitor is writing a first message, which stays in the field."""
    key, page = await key_of(host, "jana"), await visitor.new_page()
    await open_widget(page, host, key)
    box = page.get_by_role("textbox", name="Write to Amy")
    await box.fill("I was about")
    thread = await host.segue.create_thread("jana", "amy")
    await host.segue.follow_up(thread, trigger="check_in")
    await expect(said(page, FOLLOW_UP)).to_be_visible()
    await expect(box).to_be_focused()
    await expect(box).to_have_value("I was about")
    await box.press("Enter")
    await expect(said(page, "You said: I was about")).to_be_visible()
    assert await threads_of(host, "jana") == [thread.id]


@pytest.mark.parametrize("place", ["docs/page.md", "examples/widget.html"])
async def test_the_example_of_a_site_works_with_any_agent(
    host: Served, visitor: BrowserContext, place: str
) -> None:
    """It names the address that `segue serve` prints, and no agent of its own."""
    text = (ROOT / place).read_text(encoding="utf-8")
    found = re.search(r"```html\n(.*?)```", text, re.DOTALL)
    html = found[1] if found else text
    assert "http://127.0.0.1:8000/" in html
    key, page = await key_of(host, place), await visitor.new_page()
    await open_html(page, host, html.replace("http://127.0.0.1:8000/", f"{host.address}/"))
    await page.evaluate("key => (document.querySelector('segue-chat').key = key)", key)
    await say(page, "Hello")


async def test_the_example_of_the_client_works_with_any_agent(
    host: Served, visitor: BrowserContext
) -> None:
    """It creates a conversation with the server's first agent, and sends to it."""
    key, page = await key_of(host, "karl"), await visitor.new_page()
    text = (ROOT / "docs/page.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```js\n(.*?)```", text, re.DOTALL)
    for old, new in {
        "segue-client": f"{host.address}/web/client/segue-client.js",
        "http://127.0.0.1:8000/": f"{host.address}/",
        "key: null": f'key: "{key}"',
    }.items():
        assert old in program
        program = program.replace(old, new, 1)
    async with page.expect_console_message(lambda line: line.text.startswith("done ")):
        await open_html(page, host, f'<script type="module">{program}</script>')
    [thread] = await threads_of(host, "karl")
    assert len((await host.segue.history(thread)).messages) == 2
