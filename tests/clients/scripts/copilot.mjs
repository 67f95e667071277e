// CopilotKit's agent for LangGraph servers, as its runtime calls it. Prints what a page would show.
import { LangGraphAgent } from "@ag-ui/langgraph";
import { randomUUID } from "node:crypto";

const { SEGUE_URL, ASSISTANT, PAUSE } = process.env;
const agent = new LangGraphAgent({ deploymentUrl: SEGUE_URL, graphId: ASSISTANT, threadId: randomUUID() });
const events = [];
const listener = { onEvent: ({ event }) => void events.push(event) };

async function say(content) {
  agent.addMessage({ id: randomUUID(), role: "user", content });
  await agent.runAgent({}, listener);
  return agent.messages.map(({ role, content }) => ({ role, content }));
}

const first = await say("Which chords?");
const streamed = events.filter((event) => event.type === "TEXT_MESSAGE_CONTENT").map((event) => event.delta);
// Long enough for a follow-up, which this client does not listen for.
await new Promise((go) => setTimeout(go, Number(PAUSE)));
const second = await say("Thanks.");
console.log(JSON.stringify({ first, streamed, second, types: [...new Set(events.map((event) => event.type))], events }));
process.exit(0);
