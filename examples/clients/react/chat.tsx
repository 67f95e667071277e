/** A chat with `@langchain/react`: what the agent writes first appears by itself. */
import { useStream } from "@langchain/react";
import { useState, type FormEvent } from "react";
import { createRoot } from "react-dom/client";

const address = new URLSearchParams(location.search);
const apiUrl = address.get("api") ?? "http://127.0.0.1:8000";
const assistantId = address.get("agent") ?? "companion";
// Asks the server to keep quiet conversations open, so that a page which has only opened one hears
// a follow-up, too. It stands outside of the component: other headers mean another client.
const defaultHeaders = { "segue-live": "true" };

function Chat() {
  const [threadId, setThreadId] = useState(address.get("thread"));
  const stream = useStream({
    apiUrl,
    assistantId,
    threadId,
    defaultHeaders,
    onThreadId(id) {
      setThreadId(id);
      address.set("thread", id);
      history.replaceState(null, "", `?${address}`); // a reload opens the same conversation
    },
  });

  function send(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const content = new FormData(event.currentTarget).get("text");
    event.currentTarget.reset();
    void stream.submit({ messages: [{ type: "human", content }] });
  }

  return (
    <>
      <div role="log">
        {stream.messages.map((message) => (
          <p key={message.id} className={message.type}>{message.text}</p>
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
