/** Shows what agents write first while the page is hidden or closed. It caches nothing. */

const worker = /** @type {any} */ (self);

worker.addEventListener("install", () => worker.skipWaiting());
worker.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(worker.clients.claim()));

worker.addEventListener("push", (/** @type {any} */ event) => {
  event.waitUntil(show(event.data?.json() ?? {}));
});

/** @param {{title?: string, body?: string, thread?: string, position?: string}} pushed */
async function show({ title = "Segue", body = "", thread = "", position = "" }) {
  const tabs = await worker.clients.matchAll({ type: "window" });
  if (tabs.some((/** @type {any} */ tab) => tab.visibilityState === "visible")) return;
  // A repeated notification has the same tag, so it replaces the first one, also one that a hidden tab has shown.
  await worker.registration.showNotification(title, { body, tag: position, data: { thread }, icon: "web/icon.svg" });
}

worker.addEventListener("notificationclick", (/** @type {any} */ event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data?.thread ?? ""));
});

/** The page, at the conversation; an existing tab comes to the front. @param {string} thread */
async function open(thread) {
  const address = new URL(thread ? `#/t/${thread}` : "#/", worker.registration.scope).href;
  const [tab] = await worker.clients.matchAll({ type: "window" });
  if (!tab) return worker.clients.openWindow(address);
  await tab.focus().catch(() => null); // a browser may refuse it some seconds after the click
  return tab.navigate(address);
}
