/** What both chats share: what their address names, and what a person sees. */
import { useState, type FormEvent } from "react";

const address = new URLSearchParams(location.search);
export const apiUrl = address.get("api") ?? "http://127.0.0.1:8000";
export const assistantId = address.get("agent") ?? "companion";

/** The thread of the address, and a function that puts one there: a reload opens it again. */
export function useThreadId() {
  const [threadId, setThreadId] = useState(address.get("thread"));
  function keepThreadId(id: string) {
    setThreadId(id);
    address.set("thread", id);
    history.replaceState(null, "", `?${address}`);
  }
  return [threadId, keepThreadId] as const;
}

interface Shown {
  messages: { id?: string; type: string; text: string }[];
  isLoading: boolean;
  error: unknown;
  onSend: (text: string) => void;
}

export function Conversation({ messages, isLoading, error, onSend }: Shown) {
  function send(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    onSend(String(new FormData(event.currentTarget).get("text")));
    event.currentTarget.reset();
  }

  return (
    <>
      <div role="log">
        {messages.map(({ id, type, text }) => <p key={id} className={type}>{text}</p>)}
      </div>
      <p role="status">{isLoading ? "…" : String(error ?? "")}</p>
      <form onSubmit={send}>
        <input name="text" aria-label="Message" autoFocus required />
        <button>Send</button>
      </form>
    </>
  );
}
