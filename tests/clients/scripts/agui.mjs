// AG-UI's own agent: one run, then a connection that hears what nobody asked for.
import { HttpAgent } from "@ag-ui/client";
import { randomUUID } from "node:crypto";

const { SEGUE_URL, ASSISTANT } = process.env;
const threadId = randomUUID();
const events = [];
const listener = { onEvent: ({ event }) => void events.push(event) };
const shown = (agent) => agent.messages.map(({ role, content }) => ({ role, content }));

const agent = new HttpAgent({ url: `${SEGUE_URL}/ag-ui/${ASSISTANT}/run`, threadId });
agent.addMessage({ id: randomUUID(), role: "user", content: "Which chords?" });
await agent.runAgent({}, listener);
const answered = shown(agent);

const listening = new HttpAgent({
  url: `${SEGUE_URL}/ag-ui/${ASSISTANT}/connect`, threadId, initialMessages: agent.messages,
});
let finished = 0;
const heard = [];
await new Promise((go) => {
  const run = listening.runAgent({}, {
    onEvent: ({ event }) => void heard.push(event),
    onRunFinishedEvent: () => { finished += 1; if (shown(listening).length > answered.length) go(); },
  });
  run.catch(go);
});
console.log(JSON.stringify({ answered, heard, finished, after: shown(listening), events }));
process.exit(0);
