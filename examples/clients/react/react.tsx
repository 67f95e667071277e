/** A chat with `@langchain/react`: what the agent writes first appears by itself. */
import { useStream } from "@langchain/react";
import { createRoot } from "react-dom/client";
import { Conversation, apiUrl, assistantId, useThreadId } from "./page";

// Asks the server to keep quiet conversations open, so that a page which has only opened one hears
// a follow-up, too. It stands outside of the component: other headers mean another client.
const defaultHeaders = { "segue-live": "true" };

function Chat() {
  const [threadId, onThreadId] = useThreadId();
  const stream = useStream({ apiUrl, assistantId, threadId, onThreadId, defaultHeaders });
  return (
    <Conversation
      messages={stream.messages}
      isLoading={stream.isLoading}
      error={stream.error}
      onSend={(content) => void stream.submit({ messages: [{ type: "human", content }] })}
    />
  );
}

createRoot(document.getElementById("root")!).render(<Chat />);
