// CopilotKit's agent for LangGraph servers, as its runtime calls it. Prints what a page would show.
import { LangGraphAgent } from "@ag-ui/langgraph";
import { Client } from "@langchain/langgraph-sdk";
import { randomUUID } from "node:crypto";

const { SEGUE_URL, ASSISTANT } = process.env;
const threadId = randomUUID();
const agent = new LangGraphAgent({ deploymentUrl: SEGUE_URL, graphId: ASSISTANT, threadId });
const events = [];
const listener = { onEvent: ({ event }) => void events.push(event) };

async function say(content) {
  agent.addMessage({ id: randomUUID(), role: "user", content });
  await agent.runAgent({}, listener);
  return agent.messages.map(({ role, content }) => ({ role, content }));
}

const first = await say("Which chords?");
const streamed = events.filter((event) => event.type === "TEXT_MESSAGE_CONTENT").map((event) => event.delta);
// Until the follow-up is there, which this client does not listen for.
let ended = 0;
for await (const part of new Client({ apiUrl: SEGUE_URL }).threads.joinStream(threadId, { lastEventId: "-1" }))
  if (part.data?.status === "run_done" && ++ended === 2) break;
const second = await say("Thanks.");
console.log(JSON.stringify({ first, streamed, second, types: [...new Set(events.map((event) => event.type))], events }));
process.exit(0);
