"""Compares the shapes of two servers' answers to the same requests, field by field.

    python tools/wire/compare.py http://127.0.0.1:2024 http://127.0.0.1:8000 guide

The first is a server of LangGraph that you started yourself, in an environment of its own: its
licence does not allow to depend on it, so no test and no part of the package does. The second is
Segue. Both need an agent or graph of the given name that answers with one message. The output is a
table: the request, the field, and what each server has there.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import httpx

_MISSING = "none"
_OTHER = "11111111-1111-4111-8111-111111111111"


def shape(value: Any) -> Any:
    """Names and types, without values; a list has the shape of its first entry."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def differences(theirs: Any, ours: Any, place: str = "") -> Iterator[tuple[str, str, str]]:
    """A place, and the type that each side has there."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in sorted(theirs.keys() | ours.keys()):
            inner = f"{place}.{name}".lstrip(".")
            yield from differences(theirs.get(name, _MISSING), ours.get(name, _MISSING), inner)
    elif isinstance(theirs, list) and isinstance(ours, list) and theirs and ours:
        yield from differences(theirs[0], ours[0], f"{place}[]")
    elif theirs != ours and "NoneType" not in (theirs, ours):
        yield place, _kind(theirs), _kind(ours)


def _kind(found: Any) -> str:
    if isinstance(found, dict):
        return "object" if found else "{}"
    if isinstance(found, list):
        return "list" if found else "[]"
    return str(found)


class Answers:
    """What a server answers to a short conversation, by the name of the request."""

    def __init__(self, http: httpx.Client, assistant: str) -> None:
        self._http = http
        self._assistant = assistant
        said = {"messages": [{"role": "user", "content": "the guitar", "id": "m1"}]}
        self._run = {"assistant_id": assistant, "input": said}
        self.found: dict[str, Any] = {}

    def collect(self) -> dict[str, Any]:
        self._ask("info", "GET", "/info")
        self._assistants()
        thread = self._ask("threads.create", "POST", "/threads", {})["thread_id"]
        self._runs(f"/threads/{thread}")
        self._threads(f"/threads/{thread}")
        self._store()
        self._crons()
        self._ask("runs.wait without a thread", "POST", "/runs/wait", self._run)
        self._protocol(f"/threads/{thread}")
        self._ask("threads.delete", "DELETE", f"/threads/{thread}")
        return self.found

    def _ask(self, name: str, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = self._http.request(method, path, json=body, **more)
        is_json = "json" in answer.headers.get("content-type", "") and answer.content.strip()
        body = answer.json() if is_json else None
        self.found[name] = {f"status {answer.status_code}": {}, "body": body}
        return body

    def _assistants(self) -> None:
        [found, *_] = self._ask("assistants.search", "POST", "/assistants/search", {})
        place = f"/assistants/{found['assistant_id']}"
        for name in ("", "/schemas", "/graph", "/subgraphs"):
            self._ask(f"assistants.get{name}", "GET", place + name)
        self._ask("assistants.count", "POST", "/assistants/count", {})

    def _runs(self, thread: str) -> None:
        modes = ["values", "messages-tuple", "updates"]
        self._hear("runs.stream", f"{thread}/runs/stream", {**self._run, "stream_mode": modes})
        run = self._ask("runs.create", "POST", f"{thread}/runs", self._run)["run_id"]
        self._ask("runs.join", "GET", f"{thread}/runs/{run}/join")
        self._ask("runs.get", "GET", f"{thread}/runs/{run}")
        self._ask("runs.list", "GET", f"{thread}/runs")
        self._ask("runs.wait", "POST", f"{thread}/runs/wait", self._run)
        self._ask("runs.cancel, ended", "POST", f"{thread}/runs/{run}/cancel")
        self._ask("runs.get, missing", "GET", f"{thread}/runs/{_OTHER}")
        wrong = {**self._run, "assistant_id": "nobody"}
        self._ask("runs.create, no such assistant", "POST", f"{thread}/runs", wrong)
        self._ask("runs.create, no body", "POST", f"{thread}/runs", {})

    def _threads(self, thread: str) -> None:
        self._ask("threads.get", "GET", thread)
        self._ask("threads.update", "PATCH", thread, {"metadata": {"topic": "music"}})
        self._ask("threads.search", "POST", "/threads/search", {})
        self._ask("threads.count", "POST", "/threads/count", {})
        self._ask("threads.state", "GET", f"{thread}/state")
        self._ask("threads.history", "POST", f"{thread}/history", {})
        self._ask("threads.get, missing", "GET", f"/threads/{_OTHER}")

    def _store(self) -> None:
        name = {"namespace": ["memories", self._assistant], "key": "music"}
        value = {"value": {"content": "Plays the guitar."}}
        self._ask("store.put", "PUT", "/store/items", {**name, **value})
        params = {"namespace": ".".join(name["namespace"]), "key": "music"}
        self._ask("store.get", "GET", "/store/items", params=params)
        prefix = {"namespace_prefix": ["memories"]}
        self._ask("store.search", "POST", "/store/items/search", prefix)
        self._ask("store.namespaces", "POST", "/store/namespaces", {})
        self._ask("store.delete", "DELETE", "/store/items", name)

    def _crons(self) -> None:
        body = {**self._run, "schedule": "0 9 * * *"}
        cron = self._ask("crons.create", "POST", "/runs/crons", body)
        self._ask("crons.search", "POST", "/runs/crons/search", {})
        self._ask("crons.count", "POST", "/runs/crons/count", {})
        if isinstance(cron, dict) and "cron_id" in cron:
            self._ask("crons.delete", "DELETE", f"/runs/crons/{cron['cron_id']}")

    def _protocol(self, thread: str) -> None:
        command = {"id": 1, "method": "run.start", "params": self._run}
        self._ask("commands run.start", "POST", f"{thread}/commands", command)
        channels = {"channels": ["values", "messages", "lifecycle"]}
        self._hear("stream/events", f"{thread}/stream/events", channels)
        command = {"id": 2, "method": "state.get", "params": {}}
        self._ask("commands state.get", "POST", f"{thread}/commands", command)

    def _hear(self, name: str, path: str, body: Any) -> None:
        """The last event of each kind, up to the end of a run."""
        with self._http.stream("POST", path, json=body) as stream:
            for event, data in events(stream.iter_lines()):
                inner = data.get("params", {}).get("data") if isinstance(data, dict) else None
                kind = inner.get("event", "") if isinstance(inner, dict) else ""
                self.found[f"{name} {event} {kind}".rstrip()] = data
                if kind in {"completed", "failed"}:
                    break


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
    *addresses, assistant = sys.argv[1:]
    both = []
    for address in addresses:
        with httpx.Client(base_url=address, timeout=60) as http:
            both.append(Answers(http, assistant).collect())
    theirs, ours = both
    sys.stdout.write("| request | field | LangGraph | Segue |\n|---|---|---|---|\n")
    for name in sorted(theirs.keys() | ours.keys()):
        rows = [*differences(shape(theirs.get(name, {})), shape(ours.get(name, {})))]
        if name not in theirs:
            rows = [("all of it", _MISSING, "yes")]
        elif name not in ours:
            rows = [("all of it", "yes", _MISSING)]
        for place, official, own in rows:
            sys.stdout.write(f"| {name} | {place} | {official} | {own} |\n")


if __name__ == "__main__":
    main()
