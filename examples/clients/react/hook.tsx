/** A chat with the older hook of `@langchain/langgraph-sdk/react`, with the code that follow-ups need. */
import { Client, type Message } from "@langchain/langgraph-sdk";
import { useStream } from "@langchain/langgraph-sdk/react";
import { useEffect, useRef } from "react";
import { createRoot } from "react-dom/client";
import { Conversation, apiUrl, assistantId, useThreadId } from "./page";

const client = new Client({ apiUrl });

function Chat() {
  const [threadId, onThreadId] = useThreadId();
  const own = useRef(new Set<string>());
  const stream = useStream<{ messages: Message[] }>({
    client,
    assistantId,
    threadId,
    onThreadId,
    onCreated: (run) => own.current.add(run.run_id),
  });

  // The hook listens only to runs that it started. The stream of the thread has all of them.
  const join = useRef(stream.joinStream);
  join.current = stream.joinStream;
  useEffect(() => {
    if (!threadId) return;
    const leaving = new AbortController();
    const listen = async () => {
      for await (const part of client.threads.joinStream(threadId, { signal: leaving.signal })) {
        if (part.event !== "metadata") continue; // a heartbeat has no data
        const { run_id, status } = part.data as { run_id: string; status?: string };
        if (!status && !own.current.has(run_id)) await join.current(run_id);
      }
    };
    listen().catch((error) => leaving.signal.aborted || console.error(error));
    return () => leaving.abort();
  }, [threadId]);

  function send(content: string) {
    const said: Message = { type: "human", content, id: crypto.randomUUID() };
    void stream.submit(
      { messages: [said] },
      { optimisticValues: (before) => ({ ...before, messages: [...(before.messages ?? []), said] }) },
    );
  }

  return (
    <Conversation
      messages={stream.messages.map(({ id, type, content }) => ({ id, type, text: String(content) }))}
      isLoading={stream.isLoading}
      error={stream.error}
      onSend={send}
    />
  );
}

createRoot(document.getElementById("root")!).render(<Chat />);
