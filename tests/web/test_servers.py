"""The page with other servers: one that restarts, one with keys, and one of another origin."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from segue.server.auth import new_key
from tests.web.stage import PATIENCE, Served, eager, open_tab, served

pytestmark = pytest.mark.anyio


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Served]:
    """A server that a test may stop."""
    async with served(str(tmp_path), eager("calm", "Calm", 3_600)) as running:
        yield running


async def test_a_restart_loses_and_doubles_nothing(browser: Browser, own: Served) -> None:
    """What is sent while the server is away can be sent again, and is stored once."""
    context = await browser.new_context()
    tab = await open_tab(context, own.address)
    await tab.begin()
    await tab.say("Before.")
    await tab.check_shows("You said: Before.")
    await own.stop()
    await tab.page.get_by_text("Connection lost; reconnecting").wait_for()
    await tab.say("During.")
    await tab.page.get_by_text("Not sent:").wait_for()
    await own.start()
    again = tab.page.get_by_role("alert").get_by_role("button", name="Try again")
    await expect(tab.page.get_by_text("Connection lost")).to_have_count(0)
    await again.click()
    await tab.check_shows("You said: During.")
    await tab.say("After.")
    await tab.check_shows("You said: After.")
    words = [
        each for said in ("Before.", "During.", "After.") for each in (said, f"You said: {said}")
    ]
    assert await tab.words() == words
    await tab.page.reload()
    await tab.check_shows("You said: After.")
    assert await tab.words() == words
    await context.close()


async def test_a_server_with_keys_asks_for_one(browser: Browser, own: Served) -> None:
    """It is kept for the tab only, and is in no address."""
    key, secret = new_key("laptop", "ann", datetime(2026, 1, 1, tzinfo=UTC))
    await own.journal.keys.add(key)
    context = await browser.new_context()
    page = await context.new_page()
    page.set_default_timeout(PATIENCE)
    addresses: list[str] = []
    page.on("request", lambda request: addresses.append(request.url))
    page.on("websocket", lambda socket: addresses.append(socket.url))
    await page.goto(f"{own.address}/")
    await page.get_by_label("Key", exact=True).fill("sgu_wrong")
    await page.get_by_role("button", name="Open").click()
    await page.get_by_role("alert").wait_for()
    program, shared = new_key("webui", None, datetime(2026, 1, 1, tzinfo=UTC))
    await own.journal.keys.add(program)
    await page.get_by_label("Key", exact=True).fill(shared)
    await page.get_by_role("button", name="Open").click()
    await page.get_by_role("alert").get_by_text("Use a user's key here.").wait_for()
    await page.get_by_label("Key", exact=True).fill(secret)
    await page.get_by_role("button", name="Open").click()
    await page.get_by_role("textbox", name="Write to").fill("Hello")
    await page.keyboard.press("Enter")
    await page.get_by_role("log").get_by_text("You said: Hello").wait_for()
    await page.reload()
    await page.get_by_role("log").get_by_text("You said: Hello").wait_for()
    assert await page.evaluate("localStorage.getItem('segue.key')") is None
    assert not [address for address in addresses if secret in address]
    assert not await page.get_by_role("button", name="Inspector").count()
    await context.close()


@pytest.mark.parametrize("name", ["Simulator", "Outcomes"])
async def test_pages_of_operators_ask_for_a_key(browser: Browser, own: Served, name: str) -> None:
    """As the page does, and keep it for the tab."""
    key, secret = new_key("ops", "ann", datetime(2026, 1, 1, tzinfo=UTC), is_operator=True)
    await own.journal.keys.add(key)
    context = await browser.new_context()
    page = await context.new_page()
    page.set_default_timeout(PATIENCE)
    await page.goto(f"{own.address}/{ {'Simulator': 'simulate', 'Outcomes': 'outcomes'}[name] }")
    await page.get_by_label("Key", exact=True).fill(secret)
    await page.get_by_role("button", name="Open").click()
    await page.get_by_role("heading", name=name).wait_for()
    await page.wait_for_function("key => sessionStorage.getItem('segue.key') === key", arg=secret)
    await expect(page.get_by_label("Key", exact=True)).to_have_count(0)
    if name == "Simulator":  # a story that still ran would be cut off with the server
        await page.locator("figure").first.wait_for()
    await context.close()


@contextmanager
def foreign_site(html: bytes) -> Iterator[str]:
    """A site of another origin with one page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(html)))
            self.end_headers()
            self.wfile.write(html)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


WIDGET = """<!doctype html><html lang="en"><title>A site</title><body>
<script type="module" src="{}/web/chat.js"></script><segue-chat theme="light"></segue-chat>"""


@pytest.mark.parametrize("is_friend", [True, False])
async def test_the_widget_talks_where_the_settings_name_its_site(
    browser: Browser, tmp_path: Path, *, is_friend: bool
) -> None:
    """By one script tag; a site that is not named does not even get the script."""
    async with served(str(tmp_path), eager("ada", "Ada", 1.0)) as own:
        with foreign_site(WIDGET.format(own.address).encode()) as origin:
            if is_friend:
                await own.stop()
                own.settings = own.settings.model_copy(update={"cors_origins": (origin,)})
                await own.start()
            context = await browser.new_context()
            page = await context.new_page()
            page.set_default_timeout(PATIENCE)
            async with page.expect_event("requestfinished" if is_friend else "requestfailed"):
                await page.goto(f"{origin}/")
            box = page.get_by_role("textbox", name="Write to Ada")
            if is_friend:
                await box.fill("Which chords first?")
                await box.press("Enter")
                await page.get_by_role("log").get_by_text("Did G and C work out?").wait_for()
                await page.reload()
                await page.get_by_role("log").get_by_text("Did G and C work out?").wait_for()
            assert await box.count() == int(is_friend)
            await context.close()


async def test_the_widget_speaks_with_the_key_of_its_reader(
    browser: Browser, tmp_path: Path
) -> None:
    """A property, so that it is in no page source; without it the widget says what is missing."""
    async with served(str(tmp_path), eager("ada", "Ada", 3_600)) as own:
        key, secret = new_key("reader", "ann", datetime(2026, 1, 1, tzinfo=UTC))
        await own.journal.keys.add(key)
        with foreign_site(WIDGET.format(own.address).encode()) as origin:
            await own.stop()
            own.settings = own.settings.model_copy(update={"cors_origins": (origin,)})
            await own.start()
            context = await browser.new_context()
            page = await context.new_page()
            page.set_default_timeout(PATIENCE)
            await page.goto(f"{origin}/")
            await page.get_by_role("status").get_by_text("key").wait_for()
            await page.evaluate("key => (document.querySelector('segue-chat').key = key)", secret)
            box = page.get_by_role("textbox", name="Write to Ada")
            await box.fill("Hello")
            await box.press("Enter")
            await page.get_by_role("log").get_by_text("You said: Hello").wait_for()
            assert [thread.user_id for thread in await own.segue.list_threads("ann")] == ["ann"]
            await context.close()
