// What the tests do with `@langchain/langgraph-sdk`. Acts are named on the standard input, line by
// line; each prints what it got, or why it failed, as a line of JSON.
import { createInterface } from "node:readline";
import { Client } from "@langchain/langgraph-sdk";

const { SEGUE_URL, SEGUE_KEY } = process.env;
const client = new Client({ apiUrl: SEGUE_URL, apiKey: SEGUE_KEY ?? null, callerOptions: { maxRetries: 0 } });

const say = (content, id) => ({ messages: [{ type: "human", content, ...(id && { id }) }] });
const brief = (messages) => messages.map(({ type, content, id }) => ({ type, content, id }));
const refusal = (promise) => promise.then(() => null, ({ status, message }) => ({ status, message }));
const newThread = async () => (await client.threads.create()).thread_id;

async function collect(parts, limit = Infinity) {
  const found = [];
  for await (const part of parts) {
    if (part.event !== "end") found.push(part);
    if (found.length >= limit) break;
  }
  return found;
}

const acts = {
  async threads() {
    const threadId = "0199a0de-7c9f-7b3e-8f00-5d3b6b0c1a11";
    const made = await client.threads.create({ threadId, metadata: { topic: "guitar" } });
    await client.threads.create({ metadata: { topic: "piano" } });
    await client.threads.update(threadId, { metadata: { level: 2 } });
    const again = await client.threads.create({ threadId, ifExists: "do_nothing" });
    const found = await client.threads.search({ metadata: { topic: "guitar" }, limit: 5 });
    const report = {
      made: made.thread_id,
      again: again.thread_id,
      got: await client.threads.get(threadId),
      found: found.map((thread) => thread.thread_id),
      count: await client.threads.count({ metadata: { topic: "guitar" } }),
      twice: await refusal(client.threads.create({ threadId, ifExists: "raise" })),
    };
    await client.threads.delete(threadId);
    return { ...report, gone: await refusal(client.threads.get(threadId)) };
  },

  async modes() {
    const report = {};
    for (const streamMode of ["values", "messages-tuple", "updates", "custom", "events", "messages"]) {
      const thread = await newThread();
      report[streamMode] = await collect(
        client.runs.stream(thread, "calm", { input: say("Which chords?", "mine"), streamMode }),
      );
    }
    return report;
  },

  async unsolicited() {
    const thread = await newThread();
    const leaving = new AbortController();
    const heard = [];
    const listening = (async () => {
      for await (const part of client.threads.joinStream(thread, { lastEventId: "-1", signal: leaving.signal })) {
        heard.push(part);
        if (heard.filter((each) => each.data?.status === "run_done").length === 2) break;
      }
    })();
    const answered = await client.runs.wait(thread, "ada", { input: say("Which chords?", "mine") });
    await listening;
    leaving.abort();
    const runs = await client.runs.list(thread);
    return {
      answered: brief(answered.messages),
      heard,
      runs: runs.map(({ run_id, status, metadata }) => ({ run_id, status, origin: metadata.origin })),
      state: brief((await client.threads.getState(thread)).values.messages),
    };
  },

  async resumed() {
    const thread = await newThread();
    await client.runs.wait(thread, "calm", { input: say("One.") });
    const from = async (lastEventId) => {
      const found = [];
      for await (const part of client.threads.joinStream(thread, { lastEventId })) {
        if (part.event) found.push(part); // the client makes an empty one of a heartbeat
        if (part.data?.status === "run_done") return found;
      }
    };
    const all = await from("-1");
    return { all, rest: await from(all.find((part) => part.id).id) };
  },

  async history() {
    const thread = await newThread();
    for (const text of ["One.", "Two."]) await client.runs.wait(thread, "calm", { input: say(text) });
    const states = await client.threads.getHistory(thread, { limit: 10 });
    const state = await client.threads.getState(thread);
    return {
      next: state.next,
      tasks: state.tasks,
      checkpoint: state.checkpoint,
      now: brief(state.values.messages),
      states: states.map((each) => brief(each.values.messages).map((said) => said.content)),
    };
  },

  async runs() {
    const thread = await newThread();
    const run = await client.runs.create(thread, "calm", { input: say("One.") });
    const joined = await client.runs.join(thread, run.run_id);
    const parts = await collect(client.runs.joinStream(thread, run.run_id, { streamMode: "values" }));
    const got = await client.runs.get(thread, run.run_id);
    return { created: run.status, got, joined: brief(joined.messages), parts };
  },

  async cancel() {
    const thread = await newThread();
    const stream = client.runs.stream(thread, "calm", { input: say("slow"), streamMode: "messages-tuple" });
    let pieces = 0;
    let run;
    for await (const part of stream) {
      if (part.event === "metadata") run = part.data.run_id;
      if (part.event === "messages" && ++pieces === 5) await client.runs.cancel(thread, run, true);
    }
    const { status } = await client.runs.get(thread, run);
    const next = await client.runs.wait(thread, "calm", { input: say("And now?") });
    return { pieces, status, last: next.messages.at(-1).content };
  },

  async stateless() {
    const values = await client.runs.wait(null, "calm", { input: say("One.") });
    const parts = await collect(client.runs.stream(null, "calm", { input: say("Two."), streamMode: "values" }));
    return { waited: brief(values.messages), streamed: brief(parts.at(-1).data.messages) };
  },

  async store() {
    const space = ["memories", "calm"];
    await client.store.putItem(space, "sport", { content: "Plays chess on Sundays." });
    const item = await client.store.getItem(space, "sport");
    const { items } = await client.store.searchItems(space, { query: "chess" });
    const { namespaces } = await client.store.listNamespaces();
    await client.store.deleteItem(space, "sport");
    return { item, items, namespaces, gone: await client.store.getItem(space, "sport").catch((e) => e.status) };
  },

  async crons() {
    const thread = await newThread();
    await client.runs.wait(thread, "calm", { input: say("One.") });
    const made = await client.crons.createForThread(thread, "calm", {
      schedule: "0 9 * * 1",
      input: say("Practise the guitar."),
    });
    const found = await client.crons.search({ threadId: thread });
    const count = await client.crons.count({ threadId: thread });
    await client.crons.delete(made.cron_id);
    return { made, found, count, left: await client.crons.search({ threadId: thread }) };
  },

  async refused() {
    const thread = await newThread();
    const input = say("One.");
    const run = (payload) => refusal(client.runs.wait(thread, "calm", { input, ...payload }));
    await client.runs.wait(thread, "calm", { input });
    return {
      fork: await run({ checkpointId: "1ef00000-0000-6000-8000-000000000000" }),
      before: await run({ interruptBefore: ["model"] }),
      rollback: await run({ multitaskStrategy: "rollback" }),
      edit: await refusal(client.threads.updateState(thread, { values: input })),
      nobody: await refusal(client.runs.wait(thread, "nobody", { input })),
    };
  },

  async assistants() {
    const found = await client.assistants.search();
    const id = found.find((each) => each.graph_id === "calm").assistant_id;
    return {
      found,
      got: await client.assistants.get(id),
      schemas: await client.assistants.getSchemas(id),
      graph: await client.assistants.getGraph(id),
    };
  },

  async foreign() {
    const own = await newThread();
    await client.runs.wait(own, "calm", { input: say("One.") });
    const other = new Client({
      apiUrl: SEGUE_URL, apiKey: process.env.OTHER_KEY, callerOptions: { maxRetries: 0 },
    });
    return {
      get: await refusal(other.threads.get(own)),
      state: await refusal(other.threads.getState(own)),
      write: await refusal(other.runs.wait(own, "calm", { input: say("Mine!") })),
      stream: await refusal(collect(other.threads.joinStream(own), 1)),
      list: (await other.threads.search()).length,
      nokey: await refusal(
        new Client({ apiUrl: SEGUE_URL, apiKey: null, callerOptions: { maxRetries: 0 } }).threads.search(),
      ),
    };
  },
};

for await (const name of createInterface({ input: process.stdin })) {
  const report = await acts[name]().then((got) => ({ got }), (error) => ({ error: error.stack }));
  console.log(JSON.stringify(report));
}
process.exit(0);
