/** A chat with the older hook of `@langchain/langgraph-sdk/react`, and what it needs for follow-ups. */
import { Client, type Message } from "@langchain/langgraph-sdk";
import { useStream } from "@langchain/langgraph-sdk/react";
import { useEffect, useRef, useState, type FormEvent } from "react";
import { createRoot } from "react-dom/client";

const address = new URLSearchParams(location.search);
const client = new Client({ apiUrl: address.get("api") ?? "http://127.0.0.1:8000" });
const assistantId = address.get("agent") ?? "companion";

function Chat() {
  const [threadId, setThreadId] = useState(address.get("thread"));
  const own = useRef(new Set<string>());
  const stream = useStream<{ messages: Message[] }>({
    client,
    assistantId,
    threadId,
    onCreated: (run) => own.current.add(run.run_id),
    onThreadId(id) {
      setThreadId(id);
      address.set("thread", id);
      history.replaceState(null, "", `?${address}`); // a reload opens the same conversation
    },
  });

  // The hook listens only to runs that it began. The stream of the thread has all of them.
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

  function send(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const content = String(new FormData(event.currentTarget).get("text"));
    const said: Message = { type: "human", content, id: crypto.randomUUID() };
    event.currentTarget.reset();
    void stream.submit(
      { messages: [said] },
      { optimisticValues: (before) => ({ ...before, messages: [...(before.messages ?? []), said] }) },
    );
  }

  return (
    <>
      <div role="log">
        {stream.messages.map((message) => (
          <p key={message.id} className={message.type}>{String(message.content)}</p>
        ))}
      </div>
      <p role="status">{stream.isLoading ? "…" : String(stream.error ?? "")}</p>
      <form onSubmit={send}>
        <input name="text" aria-label="Message" autoFocus required />
        <button>Send</button>
      </form>
    </>
  );
}

createRoot(document.getElementById("root")!).render(<Chat />);
