"""Notifications in a real browser: the service worker shows them, a switch subscribes."""

import asyncio

import pytest
from playwright.async_api import Browser, CDPSession, Page, Worker

from segue.web_push import public_bytes, to_base64
from tests.web.stage import FOLLOW_UP, PATIENCE, Served, tab_of

pytestmark = pytest.mark.anyio

SHOWN = """async () => (await (await navigator.serviceWorker.ready).getNotifications())
  .map((each) => [each.title, each.body, each.data.thread])"""
# A worker is ready while it handles the event of its activation, which would count as handled.
ACTIVATED = """async () => {
  const { active } = await navigator.serviceWorker.ready;
  while (active.state !== "activated") await new Promise((go) => (active.onstatechange = go));
}"""
# How many events the worker has finished with.
HANDLED = """() => {
  if (self.handled === undefined) {
    self.handled = 0;
    const wait = ExtendableEvent.prototype.waitUntil;
    ExtendableEvent.prototype.waitUntil = function (done) {
      Promise.resolve(done).finally(() => (self.handled += 1));
      return wait.call(this, done);
    };
  }
  return self.handled;
}"""
# A push service is not at hand: this stands for the browser's part, with keys as it would make.
SUBSCRIBE = """
  let made = null;
  window.given = null;
  PushManager.prototype.getSubscription = async () => made;
  PushManager.prototype.subscribe = async (options) => {
    window.given = options;
    const endpoint = "https://fcm.googleapis.com/fcm/send/7";
    made = {
      endpoint,
      toJSON: () => ({ endpoint, expirationTime: null, keys: { p256dh: "KEY", auth: "AUTH" } }),
      unsubscribe: async () => { made = null; return true; },
    };
    return made;
  };
"""


async def worker_of(page: Page) -> Worker:
    """The page may know that it is ready before we do."""
    context = page.context
    async with asyncio.timeout(PATIENCE / 1_000):
        while not context.service_workers:
            await page.wait_for_timeout(20)
    [worker] = context.service_workers
    return worker


async def push(page: Page, session: CDPSession, origin: str, registration: str, data: str) -> None:
    """Push, and wait until the worker has done with it."""
    worker = await worker_of(page)
    before = await worker.evaluate(HANDLED)
    pushed = {"origin": origin, "registrationId": registration, "data": data}
    await session.send("ServiceWorker.deliverPushMessage", pushed)
    async with asyncio.timeout(PATIENCE / 1_000):
        while await worker.evaluate(HANDLED) == before:
            await page.wait_for_timeout(20)


async def test_the_worker_shows_what_is_pushed_and_opens_it(browser: Browser, site: Served) -> None:
    """Not while the page is looked at; once for a repetition; a click leads to the conversation."""
    async with tab_of(browser, site, permissions=["notifications"]) as tab:
        page = tab.page
        session = await page.context.new_cdp_session(page)
        registered: list[str] = []
        session.on(
            "ServiceWorker.workerRegistrationUpdated",
            lambda event: registered.extend(r["registrationId"] for r in event["registrations"]),
        )
        await session.send("ServiceWorker.enable")
        await page.evaluate(ACTIVATED)
        while not registered:
            await page.wait_for_timeout(50)
        thread = (await site.segue.create_thread("me", "calm")).id
        data = f'{{"title": "Ada", "body": "Did it work?", "thread": "{thread}", "position": "7"}}'
        await push(page, session, site.address, registered[0], data)
        assert await page.evaluate(SHOWN) == []
        worker = await worker_of(page)
        # A headless tab is always visible: hide it from the worker alone.
        await worker.evaluate(
            "self.clients.matchAll = ((all) => async (kind) => (await all(kind)).filter("
            "() => self.isOpening))(self.clients.matchAll.bind(self.clients))"
        )
        for _ in range(2):
            await push(page, session, site.address, registered[0], data)
        assert await page.evaluate(SHOWN) == [["Ada", "Did it work?", thread]]
        await worker.evaluate(
            """async () => {
              self.isOpening = true;
              const [shown] = await self.registration.getNotifications();
              const event = new NotificationEvent("notificationclick", { notification: shown });
              self.dispatchEvent(event);
            }"""
        )
        await page.wait_for_url(f"**/#/t/{thread}")
        assert await page.evaluate(SHOWN) == []


async def test_a_switch_subscribes_this_browser(browser: Browser, site: Served) -> None:
    """With the server's key; it is kept over a reload, and switched off again at the server."""
    key = public_bytes(await site.segue.notifier._load_key())
    script = SUBSCRIBE.replace("KEY", to_base64(key)).replace("AUTH", to_base64(b"a" * 16))
    async with tab_of(browser, site, permissions=["notifications"]) as tab:
        page = tab.page
        await page.add_init_script(script)
        await page.goto(f"{site.address}/#/preferences")
        await page.reload()
        switch = page.get_by_role("checkbox", name="Notify this browser")
        await switch.check()
        await page.get_by_text("Notifications are on in this browser.").wait_for(state="attached")
        assert await page.evaluate("window.given") == {
            "userVisibleOnly": True,
            "applicationServerKey": to_base64(key),
        }
        [stored] = await site.journal.push.list_of("me")
        assert stored.endpoint == "https://fcm.googleapis.com/fcm/send/7"
        await switch.uncheck()
        await page.get_by_text("Notifications are off in this browser.").wait_for(state="attached")
        assert await site.journal.push.list_of("me") == []


async def test_without_push_services_there_is_no_switch(browser: Browser, site: Served) -> None:
    """Nothing is offered that the server does not do."""
    notifier = site.segue.notifier
    kept, notifier._settings = (
        notifier._settings,
        notifier._settings.model_copy(update={"services": ()}),
    )
    try:
        async with tab_of(browser, site) as tab:
            tab.mistakes.clear()
            async with tab.page.expect_response(lambda found: "push" in found.url):
                await tab.page.goto(f"{site.address}/#/preferences")
                await tab.page.get_by_text("Agents may write to me first").wait_for()
            await tab.page.evaluate("new Promise(requestAnimationFrame)")
            assert await tab.page.get_by_text("Notify this browser").count() == 0
            tab.mistakes[:] = [each for each in tab.mistakes if "404" not in each]
    finally:
        notifier._settings = kept


async def test_an_open_page_keeps_other_devices_quiet(browser: Browser, site: Served) -> None:
    """What is on the screen is marked as read, before a notification would be sent."""
    async with tab_of(browser, site) as tab:
        await tab.begin("Ada")
        await tab.say("Which chords first?")
        await tab.check_wrote_first(FOLLOW_UP)
        thread = tab.page.url.rpartition("/")[2]
        async with asyncio.timeout(PATIENCE / 1_000):
            while (stored := await site.segue.get_thread(thread)).unread:
                await tab.page.wait_for_timeout(50)
        assert stored.preview == FOLLOW_UP
