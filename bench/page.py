"""The page with a thread of 10,000 messages, in a real Chromium: scrolling up, and new messages.

Prints the worst frame of each, and how many messages are in the document. The history is made up
here, so that only the page is measured. Needs `chromium`.
"""

import asyncio
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Page, Route

from tests.web.stage import browsing, eager, open_tab, served

MESSAGES = 10_000
FIRST = 2_000_000_000_000_000_000
FRAMES = """async (action) => {
  const app = document.querySelector("segue-app").shadowRoot;
  const talk = app.querySelector("segue-conversation");
  const log = talk.shadowRoot.querySelector(".log");
  let worst = 0, before = performance.now(), goes = true;
  const frame = (now) => {
    worst = Math.max(worst, now - before);
    before = now;
    if (goes) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  const steps = action === "scroll" ? 150 : 60;
  for (let step = 0; step < steps; step += 1) {
    if (action === "scroll") log.scrollTop -= 400;
    else talk.conversation.apply({type: "message", message: {
      id: `new-${step}`, position: `9${String(step).padStart(18, "0")}`, role: "agent",
      text: "A **new** message of some words, which is appended.", content: "", origin: "reply",
      created_at: new Date().toISOString(), state: null, error: null}});
    await new Promise((resolve) => requestAnimationFrame(resolve));
  }
  goes = false;
  return [worst, talk.shadowRoot.querySelectorAll("segue-message").length];
}"""


def message(number: int) -> dict[str, Any]:
    """One of the thread's messages; users and agents take turns."""
    is_user = number % 2 == 0
    words = f"Message {number} of a long talk, with **some** words that fill a line or two."
    return {
        "id": f"m{number}",
        "position": str(FIRST + number),
        "role": "user" if is_user else "agent",
        "text": words,
        "content": words,
        "created_at": "2026-01-01T00:00:00Z",
        "origin": None if is_user else "reply",
        "state": "answered" if is_user else None,
        "error": None,
        "asked": [],
    }


async def answer(route: Route) -> None:
    """A page of the history, as the server would send it."""
    asked = {
        name: int(given[0]) for name, given in parse_qs(urlsplit(route.request.url).query).items()
    }
    limit, end = asked["limit"], MESSAGES
    if "before" in asked:
        end = asked["before"] - FIRST
    start = max(0, end - limit)
    if "after" in asked:
        start = asked["after"] - FIRST + 1
        end = min(MESSAGES, start + limit)
    page = {
        "items": [message(number) for number in range(start, end)],
        "before": str(FIRST + start) if start else None,
        "after": str(FIRST + end - 1) if end < MESSAGES else None,
    }
    await route.fulfill(json=page)


async def measure(page: Page, action: str) -> tuple[str, str, str]:
    worst, nodes = await page.evaluate(FRAMES, action)
    return action, f"{worst:.0f} ms", str(nodes)


async def main() -> None:
    with TemporaryDirectory() as folder:
        async with served(folder, eager("calm", "Calm", 3_600)) as site, browsing() as browser:
            thread = await site.segue.create_thread("me")
            context = await browser.new_context(viewport={"width": 1440, "height": 900})
            await context.route("**/history?*", answer)
            tab = await open_tab(context, site.address)
            await tab.page.goto(f"{site.address}/#/t/{thread.id}")
            await tab.page.locator("segue-message").last.wait_for()
            print(f"{'10,000 messages':<20}{'worst frame':>14}{'in the document':>18}")
            for action in ("append", "scroll"):
                print("{:<20}{:>14}{:>18}".format(*await measure(tab.page, action)))


if __name__ == "__main__":
    asyncio.run(main())
