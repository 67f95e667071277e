/** A chat with `@langchain/react`: follow-ups appear by themselves. */
import { useStream } from "@langchain/react";
import { createRoot } from "react-dom/client";
import { Conversation, apiUrl, assistantId, useThreadId } from "./page";

// With this header the hook also listens to a conversation that the page has only opened, and shows
// its follow-ups. Outside of the component, because a new object would create a new client.
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
