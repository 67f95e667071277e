/**
 * Notifications of the browser for what agents write first: by the page while it is hidden, by Web
 * Push while it is closed. Permission is asked for only after a first such message
 * was read, and only by a click.
 */

/** @import { Message } from "./client/types.js" */
/** @import { Session } from "./session.js" */
/** @import { SegueClient } from "./client/segue-client.js" */

// Under Trusted Types the address of a worker has to come from a policy; ours knows only this one.
const types = /** @type {any} */ (globalThis).trustedTypes;
const WORKER = types
  ? types.createPolicy("segue-worker", { createScriptURL: () => "sw.js" }).createScriptURL("")
  : "sw.js";
const SEEN = "segue.has-read-a-follow-up";

export const decline = () => localStorage.setItem(SEEN, "declined");

/** Whether the page may now offer notifications. */
export const mayAsk = () =>
  "Notification" in globalThis && Notification.permission === "default" && localStorage.getItem(SEEN) === "yes";

/** @param {Session} session @param {{thread: string, message: Message}} heard */
export async function notify(session, { thread, message }) {
  if (message.role !== "agent" || message.origin === "reply") return;
  if (document.visibilityState === "visible") {
    if (!localStorage.getItem(SEEN)) localStorage.setItem(SEEN, "yes");
    return;
  }
  if (!("Notification" in globalThis) || Notification.permission !== "granted") return;
  const name = session.nameOf(session.find(thread)?.agent_id);
  const options = { body: message.text.slice(0, 200), tag: message.position, data: { thread }, icon: "web/icon.svg" };
  const worker = await navigator.serviceWorker?.ready;
  if (worker) await worker.showNotification(name, options);
}

/** After a click: ask, and register the worker that shows them. */
export async function allow() {
  const permission = await Notification.requestPermission();
  if (permission === "granted") await register();
  return permission;
}

export async function register() {
  if (!("serviceWorker" in navigator && "Notification" in globalThis) || Notification.permission !== "granted") return;
  await navigator.serviceWorker.register(WORKER);
}

const subscription = async () => (await navigator.serviceWorker?.getRegistration())?.pushManager?.getSubscription() ?? null;

/**
 * Whether the server may notify this browser while the page is closed; null if one of them cannot.
 * @param {SegueClient} client
 */
export async function isSubscribed(client) {
  if (!("PushManager" in globalThis)) return null;
  try {
    await client.getPushKey();
    const found = await subscription();
    // Again: the server may have lost it, or another user may use this browser now.
    if (found) await client.subscribePush(found.toJSON());
    return Boolean(found);
  } catch {
    return null;
  }
}

/** After a click. @param {SegueClient} client */
export async function subscribe(client) {
  if ((await allow()) !== "granted") {
    throw new Error("This browser does not let this page notify you. Allow it in its settings, then try again.");
  }
  const worker = await navigator.serviceWorker.ready;
  await (await subscription())?.unsubscribe(); // one of another key cannot be changed
  const { key } = await client.getPushKey();
  const made = await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  await client.subscribePush(made.toJSON());
}

/** @param {SegueClient} client */
export async function unsubscribe(client) {
  const found = await subscription();
  if (!found) return;
  await client.unsubscribePush(found.endpoint);
  await found.unsubscribe();
}
