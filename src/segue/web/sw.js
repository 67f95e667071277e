/** Shows what agents write first while the page is hidden or closed. It caches nothing. */

const worker = /** @type {any} */ (self);

worker.addEventListener("install", () => worker.skipWaiting());
worker.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(worker.clients.claim()));

worker.addEventListener("push", (/** @type {any} */ event) => {
  const { title = "Segue", body = "", thread = "", id = "" } = event.data?.json() ?? {};
  event.waitUntil(worker.registration.showNotification(title, { body, tag: id, data: { thread }, icon: "web/icon.svg" }));
});

worker.addEventListener("notificationclick", (/** @type {any} */ event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data?.thread ?? ""));
});

/** The page, at the conversation; a tab that is there comes to the front. @param {string} thread */
async function open(thread) {
  const address = new URL(thread ? `#/t/${thread}` : "#/", worker.registration.scope).href;
  const [tab] = await worker.clients.matchAll({ type: "window" });
  if (!tab) return worker.clients.openWindow(address);
  await tab.focus();
  return tab.navigate(address);
}
