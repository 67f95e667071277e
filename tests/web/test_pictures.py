"""Pictures of all views, in light and dark, on a desk, a laptop and a phone.

They are for looking at: `SEGUE_PICTURES` names a folder that keeps them. What a machine can see is
asserted: nothing is wider than the screen, no text is cut by its box, and the console stays empty.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from segue.server.auth import new_key
from segue.simulate.world import plain_agent
from tests.web.gallery import Gallery, gallery, staged
from tests.web.stage import Tab, open_tab
from tests.web.test_servers import WIDGET, foreign_site

pytestmark = pytest.mark.anyio

View = Callable[[Gallery, Tab], Awaitable[None]]
SCREENS = [
    (1440, "light"),
    (390, "dark"),
    *[
        pytest.param(width, scheme, marks=pytest.mark.long)
        for width, scheme in ((1440, "dark"), (1024, "light"), (1024, "dark"), (390, "light"))
    ],
]
# Of all elements in all shadow trees: those whose text sticks out of a box that does not scroll.
CUT = """() => {
  const found = [];
  const visit = (root) => {
    for (const each of root.querySelectorAll("*")) {
      if (each.shadowRoot) visit(each.shadowRoot);
      const style = getComputedStyle(each);
      const isCut = each.scrollWidth > each.clientWidth + 1 && style.overflowX === "visible"
        && style.display !== "inline" && each.clientWidth && style.position !== "absolute"
        && each.getBoundingClientRect().right > innerWidth + 1;
      if (isCut) found.push(`${each.localName}.${each.className}: ${each.textContent}`);
    }
  };
  visit(document);
  return found;
}"""


@pytest.fixture(scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gallery]:
    async with gallery(str(tmp_path_factory.mktemp("gallery"))) as made:
        yield made


async def _open(made: Gallery, tab: Tab, thread: str) -> None:
    await tab.page.goto(f"{made.address}/#/t/{made.threads[thread]}")
    await tab.log.locator("segue-message").last.wait_for()


async def welcome(_: Gallery, tab: Tab) -> None:
    await (
        tab.page.get_by_role("navigation", name="Conversations")
        .get_by_role("link")
        .first.wait_for()
    )


async def chat(made: Gallery, tab: Tab) -> None:
    await _open(made, tab, "guitar")
    await tab.page.get_by_role("button", name="why?").last.click()
    await tab.page.get_by_text("You had not answered").wait_for()


async def tools(made: Gallery, tab: Tab) -> None:
    await _open(made, tab, "oslo")


async def question(made: Gallery, tab: Tab) -> None:
    await _open(made, tab, "table")
    await tab.page.get_by_role("form", name="A question for you").wait_for()


async def failed(made: Gallery, tab: Tab) -> None:
    await _open(made, tab, "broken")
    await tab.page.get_by_text("Not answered").wait_for()


async def muted(made: Gallery, tab: Tab) -> None:
    await _open(made, tab, "taxes")


def _inspector(name: str) -> View:
    async def view(made: Gallery, tab: Tab) -> None:
        await chat(made, tab)
        await tab.page.get_by_role("button", name="Inspector").click()
        await tab.page.get_by_role("tab", name=name).click()
        await (
            tab.page.get_by_role("tabpanel")
            .get_by_text("segue ")
            .or_(tab.page.get_by_text("Dead letters"))
            .first.wait_for()
        )

    return view


def _place(address: str, text: str) -> View:
    async def view(made: Gallery, tab: Tab) -> None:
        await tab.page.goto(f"{made.address}/{address}")
        await tab.page.get_by_text(text).first.wait_for()

    return view


async def outcomes(made: Gallery, tab: Tab) -> None:
    await tab.page.goto(f"{made.address}/outcomes")
    await tab.page.locator("figure .dot").first.wait_for()


async def search(made: Gallery, tab: Tab) -> None:
    await welcome(made, tab)
    await tab.page.keyboard.press("Control+k")
    await expect(tab.page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused()
    await tab.page.keyboard.type("guitar")
    await tab.page.get_by_role("dialog").get_by_role("link").first.wait_for()


async def keys(made: Gallery, tab: Tab) -> None:
    await welcome(made, tab)
    await tab.page.evaluate("document.activeElement.blur()")  # in the composer it is a letter
    await tab.page.keyboard.press("?")
    await tab.page.get_by_role("heading", name="Keys", exact=True).wait_for()


VIEWS: dict[str, View] = {
    "welcome": welcome,
    "chat": chat,
    "tools": tools,
    "question": question,
    "failed": failed,
    "muted": muted,
    "preferences": _place("#/preferences", "Quiet hours"),
    "memories": _place("#/memories", "Mia"),
    "reminders": _place("#/reminders", "tune the guitar"),
    "outcomes": outcomes,
    "search": search,
    "keys": keys,
    "timeline": _inspector("Timeline"),
    "decisions": _inspector("Decisions"),
    "context": _inspector("Context"),
    "server": _inspector("Server"),
}
WIDE_ONLY = {"timeline", "decisions", "context", "server"}


async def check_fits(tab: Tab, name: str) -> None:
    """Keeps the picture, and checks what a machine can see of it."""
    await tab.page.evaluate("document.fonts.ready.then(() => true)")
    folder = os.environ.get("SEGUE_PICTURES")
    shot = await tab.page.screenshot(path=Path(folder) / f"{name}.png" if folder else None)
    assert shot
    assert await tab.page.evaluate(CUT) == [], name
    wide = "document.documentElement.scrollWidth - innerWidth"
    assert await tab.page.evaluate(wide) <= 0, name


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
async def test_all_views_fit_on_the_screen(
    browser: Browser, shown: Gallery, width: int, scheme: str
) -> None:
    """With the conversations of some weeks."""
    for name, view in VIEWS.items():
        if name in WIDE_ONLY and width < 800:
            continue
        context, tab = await shown.visit(browser, width, scheme)
        await view(shown, tab)
        await check_fits(tab, f"{name}-{width}-{scheme}")
        assert tab.mistakes == [], name
        await context.close()


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
async def test_empty_locked_and_broken_views_fit_on_the_screen(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    """Each says what to do: nothing there yet, a key is missing, the server is away."""
    agent = plain_agent("ada", name="Ada", memory={"text_weight": 1})
    screen = f"{width}-{scheme}"
    async with staged(str(tmp_path / "locked"), agent) as locked:
        key, _ = new_key("laptop", "ann", datetime(2026, 1, 1, tzinfo=UTC))
        await locked.world.journal.keys.add(key)
        context, tab = await locked.visit(browser, width, scheme)
        await tab.page.get_by_label("Key", exact=True).wait_for()
        await check_fits(tab, f"sign-in-{screen}")
        await context.close()
    with foreign_site(b"") as origin:
        async with staged(str(tmp_path / "bare"), agent, cors_origins=(origin,)) as bare:
            context, tab = await bare.visit(browser, width, scheme)
            for place in ("", "#/memories", "#/reminders", "outcomes"):
                await tab.page.goto(f"{bare.address}/{place}")
                await tab.page.wait_for_load_state("networkidle")
                await tab.page.evaluate("new Promise(requestAnimationFrame)")
                await check_fits(tab, f"empty-{place.strip('#/') or 'start'}-{screen}")
            site = await open_tab(context, origin)
            await site.page.set_content(WIDGET.format(bare.address))
            await site.page.get_by_role("textbox", name="Write to Ada").fill("Which chords?")
            await site.page.keyboard.press("Enter")
            await site.page.get_by_role("log").get_by_text("Start with").wait_for()
            await check_fits(site, f"widget-{screen}")
            await site.page.close()
            await tab.page.goto(f"{bare.address}/")
            await tab.begin()
            await tab.page.get_by_text("Then wait a while").wait_for()
            await check_fits(tab, f"empty-chat-{screen}")
            await tab.say("Which chords first?")
            await tab.check_shows("Start with")
            await tab.page.get_by_role("button", name="Send").wait_for()
    await tab.page.get_by_text("Connection lost; reconnecting").wait_for()
    await tab.say("Are you there?")
    await tab.page.get_by_text("Not sent:").wait_for()
    await check_fits(tab, f"away-{screen}")
    await context.close()
