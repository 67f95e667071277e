/** CopilotKit's chat, with the code that follow-ups need. */
import { CopilotChat, CopilotKitProvider, HttpAgent, useAgent } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { useEffect } from "react";
import { createRoot } from "react-dom/client";

declare const LIVE: string; // Segue's connect route; see server.js

const address = new URLSearchParams(location.search);
const threadId = address.get("thread") ?? crypto.randomUUID();
address.set("thread", threadId);
history.replaceState(null, "", `?${address}`); // a reload opens the same conversation

/** CopilotKit listens only to runs that it started. Segue's `connect` has all of them. */
function useEveryRun() {
  const { agent } = useAgent();
  useEffect(() => {
    const live = new HttpAgent({ url: LIVE, threadId });
    function show() {
      const last = agent.messages.at(-1)?.id;
      const isBehind = last && !live.messages.some(({ id }) => id === last);
      if (!agent.isRunning && !isBehind) agent.setMessages(live.messages);
    }
    live.subscribe({ onMessagesChanged: show });
    const chat = agent.subscribe({ onRunFinalized: show });
    let isOpen = true;
    const listen = async () => {
      while (isOpen) {
        await live.runAgent().catch(() => {}); // a run that fails ends it, as a lost network does
        await new Promise((go) => setTimeout(go, 1000));
      }
    };
    void listen();
    return () => {
      isOpen = false;
      chat.unsubscribe();
      live.abortRun();
    };
  }, [agent]);
}

function Chat() {
  useEveryRun();
  return <CopilotChat threadId={threadId} />;
}

createRoot(document.getElementById("root")!).render(
  <CopilotKitProvider runtimeUrl="/copilotkit" enableInspector={false}>
    <Chat />
  </CopilotKitProvider>,
);
