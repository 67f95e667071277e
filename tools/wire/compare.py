"""Compares the shapes of two servers' answers to the same requests, field by field.

    python tools/wire/compare.py http://127.0.0.1:2024 http://127.0.0.1:8000 guide

The first is a server of LangGraph that you started yourself, in an environment of its own: its
licence does not allow to depend on it, so no test and no part of the package does. The second is
Segue. Both need an agent or graph of the given name that answers with one message.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import httpx


def shape(value: Any) -> Any:
    """Names and types, without values; a list has the shape of its first entry."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def differences(theirs: Any, ours: Any, place: str = "") -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in sorted(theirs.keys() | ours.keys()):
            inner = f"{place}.{name}".lstrip(".")
            if name not in ours:
                yield f"- {inner}"
            elif name not in theirs:
                yield f"+ {inner}"
            else:
                yield from differences(theirs[name], ours[name], inner)
    elif isinstance(theirs, list) and isinstance(ours, list):
        if theirs and ours:
            yield from differences(theirs[0], ours[0], f"{place}[]")
        elif bool(theirs) != bool(ours):
            yield f"~ {place}: one is empty"
    elif theirs != ours and "NoneType" not in (theirs, ours):
        yield f"~ {place}: {theirs} is {ours}"


def answers(address: str, assistant: str) -> dict[str, Any]:
    """What a server answers to a short conversation."""
    said = {"messages": [{"role": "user", "content": "the guitar", "id": "m1"}]}
    run = {"assistant_id": assistant, "input": said}
    found: dict[str, Any] = {}
    with httpx.Client(base_url=address, timeout=60) as http:

        def ask(name: str, method: str, path: str, body: Any = None) -> Any:
            answer = http.request(method, path, json=body)
            is_json = "json" in answer.headers.get("content-type", "")
            found[name] = {"status": answer.status_code, "body": answer.json() if is_json else None}
            return found[name]["body"]

        ask("info", "GET", "/info")
        ask("assistants.search", "POST", "/assistants/search", {})
        thread = ask("threads.create", "POST", "/threads", {})["thread_id"]
        modes = ["values", "messages-tuple", "updates"]
        with http.stream(
            "POST", f"/threads/{thread}/runs/stream", json={**run, "stream_mode": modes}
        ) as stream:
            for event, data in events(stream.iter_lines()):
                found[f"runs.stream {event}"] = data
        ask("threads.get", "GET", f"/threads/{thread}")
        ask("threads.search", "POST", "/threads/search", {})
        ask("threads.state", "GET", f"/threads/{thread}/state")
        ask("threads.history", "POST", f"/threads/{thread}/history", {})
        ask("runs.list", "GET", f"/threads/{thread}/runs")
        ask("runs.wait", "POST", f"/threads/{thread}/runs/wait", run)
        ask("assistants.graph", "GET", f"/assistants/{assistant}/graph")
        ask("threads.missing", "GET", "/threads/11111111-1111-4111-8111-111111111111")
        command = {"id": 1, "method": "run.start", "params": run}
        ask("commands run.start", "POST", f"/threads/{thread}/commands", command)
        channels = {"channels": ["values", "messages", "lifecycle"]}
        with http.stream("POST", f"/threads/{thread}/stream/events", json=channels) as stream:
            for event, data in events(stream.iter_lines()):
                kind = data["params"]["data"].get("event", "")
                found[f"stream/events {event} {kind}"] = data
                if kind in {"completed", "failed"}:
                    break
        ask("threads.delete", "DELETE", f"/threads/{thread}")
    return found


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Server-sent events."""
    name, data = "", ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data = value
        elif not line and data:
            yield name, json.loads(data)
            name, data = "", ""


def main() -> None:
    theirs, ours, assistant = sys.argv[1:]
    both = [answers(address, assistant) for address in (theirs, ours)]
    for name in sorted(both[0].keys() | both[1].keys()):
        if name not in both[0] or name not in both[1]:
            sys.stdout.write(f"{name}: only {'Segue' if name in both[1] else 'LangGraph'}\n")
            continue
        found = [*differences(shape(both[0][name]), shape(both[1][name]))]
        lines = "".join(f"    {line}\n" for line in found)
        sys.stdout.write(f"{name}: {'the same' if not found else ''}\n{lines}")


if __name__ == "__main__":
    main()
