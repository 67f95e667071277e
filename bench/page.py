"""The page with a thread of 10,000 messages, in a real Chromium: scrolling up, and new messages.

Prints the worst frame of each round, which should be below 100 ms, and what depends less on how
busy the machine is: the processor time of the worst task, the layouts of each step, and how much is
in the document. What the page costs is in every round; other work on the machine only in some. The
history is made up here, so that only the page is measured. Needs `chromium`.
"""

import asyncio
import json
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Browser, Page, Route

from tests.web.stage import browsing, eager, open_tab, served

MESSAGES = 10_000
FIRST = 2_000_000_000_000_000_000
STEPS = {"append": 200, "scroll": 300}
ROUNDS = 3
FRAMES = """async ([action, steps]) => {
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
  const first = talk.conversation.messages.length + Date.now();
  for (let step = first; step < first + steps; step += 1) {
    if (action === "scroll") log.scrollTop -= 400;
    else talk.conversation.apply({type: "message", message: {
      id: `new-${step}`, position: `9${String(step).padStart(18, "0")}`, role: "agent",
      text: "A **new** message of some words, which is appended.", content: "", origin: "reply",
      created_at: new Date().toISOString(), state: null, error: null}});
    await new Promise((resolve) => requestAnimationFrame(resolve));
  }
  goes = false;
  const count = (root) => [...root.querySelectorAll("*")].reduce(
    (all, each) => all + 1 + (each.shadowRoot ? count(each.shadowRoot) : 0), 0);
  return [worst, talk.shadowRoot.querySelectorAll("segue-message").length, count(document)];
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


async def measure(browser: Browser, page: Page, action: str) -> list[str]:
    """The worst frames, then once more with a trace, which makes all frames slower."""
    steps = STEPS[action]
    rounds = [await page.evaluate(FRAMES, [action, steps]) for _ in range(ROUNDS)]
    worst = ", ".join(f"{frame:.0f}" for frame, *_ in rounds)
    _, messages, nodes = rounds[-1]
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    before = await session.send("Performance.getMetrics")
    await browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
    await page.evaluate(FRAMES, [action, steps])
    trace = json.loads(await browser.stop_tracing())
    after = await session.send("Performance.getMetrics")
    layouts = _metric(after, "LayoutCount") - _metric(before, "LayoutCount")
    task = f"{_worst_task(trace):.0f} ms"
    return [action, f"{worst} ms", task, f"{layouts / steps:.1f}", str(messages), str(nodes)]


def _metric(answer: dict[str, Any], name: str) -> float:
    return next(float(each["value"]) for each in answer["metrics"] if each["name"] == name)


def _worst_task(trace: dict[str, Any]) -> float:
    """The most processor time that a task of the page's main thread took, in milliseconds."""
    events = trace["traceEvents"]
    named = [each for each in events if each["name"] == "thread_name"]
    main = {(e["pid"], e["tid"]) for e in named if e["args"]["name"] == "CrRendererMain"}
    tasks = [e for e in events if "tdur" in e and (e["pid"], e["tid"]) in main]
    return max(float(each["tdur"]) for each in tasks) / 1_000


async def main() -> None:
    with TemporaryDirectory() as folder:
        async with served(folder, eager("calm", "Calm", 3_600)) as site, browsing() as browser:
            thread = await site.segue.create_thread("me")
            context = await browser.new_context(viewport={"width": 1440, "height": 900})
            await context.route("**/history?*", answer)
            tab = await open_tab(context, site.address)
            await tab.page.goto(f"{site.address}/#/t/{thread.id}")
            await tab.page.locator("segue-message").last.wait_for()
            line = "{:<18}{:>18}{:>20}{:>16}{:>10}{:>10}"
            heads = ("worst frames", "worst task (CPU)", "layouts a step", "messages", "elements")
            print(line.format("10,000 messages", *heads))
            for action in STEPS:
                print(line.format(*await measure(browser, tab.page, action)))


if __name__ == "__main__":
    asyncio.run(main())
