// @ts-nocheck
/** Until there is one stream for all threads: a socket for each of the newest ones. */

import { SegueStream } from "./stream.js";

export class ThreadStreams {
  constructor(client, options, connect) {
    this.client = client;
    this.options = options;
    this.connect = connect;
    this.streams = new Map();
    this.unread = new Map();
  }

  follow(threads) {
    for (const { id } of threads.slice(0, 20)) {
      if (this.streams.has(id)) continue;
      this.streams.set(id, new SegueStream((since) => this.connect(id, since), {
        since: "0",
        onFrame: (frame) => this.#hear(id, frame),
        onState: (state, code) => this.options.onState?.(state, code),
      }));
    }
  }

  async #hear(id, frame) {
    this.options.onFrame({ ...frame, thread_id: id });
    if (frame.type !== "message" || Date.now() - Date.parse(frame.message.created_at) > 3000) return;
    const isUser = frame.message.role === "user";
    this.unread.set(id, isUser ? 0 : (this.unread.get(id) ?? 0) + 1);
    const thread = await this.client.getThread(id);
    this.options.onFrame({ type: "thread", thread_id: id, thread: { ...thread, preferences: thread.settings, unread: this.unread.get(id) } });
    if (!isUser) this.options.onFrame({ type: "done", thread_id: id, turn_id: null });
  }

  send({ thread_id, ...frame }) {
    return this.streams.get(thread_id)?.send(frame) ?? false;
  }

  close() {
    this.streams.forEach((stream) => stream.close());
  }
}
