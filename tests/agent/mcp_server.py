"""MCP servers for tests, each a program: a real one, and ones that misbehave.

`python mcp_server.py real`, or `python -I -S mcp_server.py KIND`. Those that misbehave speak the
protocol by hand, so that they can break it, and start within milliseconds.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

NOTES = "A note about the garden."


def real() -> Any:
    """A server of the official SDK."""
    from mcp.server.fastmcp import FastMCP  # noqa: PLC0415 - the others must start fast

    server = FastMCP("notes", log_level="ERROR")

    @server.tool()
    def read(topic: str) -> str:
        """Read the note about a topic."""
        return NOTES if topic == "garden" else f"No note about {topic}."

    @server.tool()
    def secret() -> str:
        """Tell the secret that the environment has."""
        return os.environ.get("NOTES_SECRET", "none")

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ValueError("out of paper")

    @server.tool()
    async def nap() -> str:
        """Never answer."""
        await asyncio.sleep(1_000)
        return "awake"

    @server.tool(name="odd name/ü")
    def odd() -> list[str]:
        """Have a name that no provider takes."""
        return ["one", "two"]

    return server


TOOL = {"name": "read", "description": "Read.", "inputSchema": {"type": "object"}}


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def send(message: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}))


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


class Misbehaving:
    """Answers by hand; `kind` says what it does wrong, `folder` is where it leaves traces."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.tools = [TOOL]

    def run(self) -> None:
        starts = self.folder / "starts"
        with starts.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if self.kind == "never_ready" or (self.kind == "dies_later" and self.starts() > 1):
            self.hang()
        if self.kind == "chatty":
            write("Welcome!\n{not json\n\x00\xff")
        if self.kind == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for line in sys.stdin:
            message = json.loads(line)
            if "id" in message:
                self.answer(message["id"], message["method"], message.get("params") or {})
        if self.kind == "deaf":
            self.hang()

    def starts(self) -> int:
        return len((self.folder / "starts").read_text().splitlines())

    def answer(self, number: int, method: str, params: dict[str, Any]) -> None:
        if method == "initialize":
            version = params["protocolVersion"]
            info = {"name": self.kind, "version": "1"}
            self.say(
                number,
                {
                    "protocolVersion": version,
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": info,
                },
            )
        elif method == "tools/list":
            self.say(number, self.listed(params))
        elif method == "tools/call":
            self.say(number, self.called(params))

    def listed(self, params: dict[str, Any]) -> Any:
        if self.kind == "endless_pages":
            return {"tools": [TOOL], "nextCursor": str(int(params.get("cursor") or 0) + 1)}
        if self.kind == "bad_tools":
            return {
                "tools": [
                    TOOL,
                    {**TOOL, "description": "The same name again."},
                    {**TOOL, "name": "no_object", "inputSchema": {"type": "string"}},
                    {**TOOL, "name": "list", "inputSchema": {"type": "object", "properties": []}},
                    {**TOOL, "name": "long", "inputSchema": wide_schema()},
                    {**TOOL, "name": "x" * 500, "description": "y" * 100_000},
                ]
            }
        if self.kind == "many_tools":
            return {
                "tools": [{**TOOL, "name": f"t{n}", "description": "z" * 900} for n in range(99)]
            }
        if self.kind == "wrong_list":
            return {"tools": "all of them"}
        return {"tools": self.tools}

    def called(self, params: dict[str, Any]) -> Any:
        match self.kind:
            case "dies" | "dies_later":
                os._exit(1)
            case "hangs":
                self.hang()
            case "hangs_once" if self.starts() == 1:
                self.hang()
            case "wrong_result":
                return {"content": "just text"}
            case "huge":
                return text("start" + "x" * 3_000_000 + "end")
            case "only_data":
                return {"content": [], "structuredContent": {"sky": "blue"}}
            case "too_huge":
                return text("x" * 9_000_000)
            case "changing":
                self.tools = [TOOL, {**TOOL, "name": "write"}]
                send({"method": "notifications/tools/list_changed"})
        return text(f"{self.kind} says hello to {params.get('arguments')}")

    def hang(self) -> None:
        """Deaf to everything but SIGKILL."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)

    def say(self, number: int, result: Any) -> None:
        send({"id": number, "result": result})


def wide_schema() -> dict[str, Any]:
    properties = {f"p{n}": {"type": "string", "description": "q" * 100} for n in range(500)}
    return {"type": "object", "properties": properties}


if __name__ == "__main__":
    if sys.argv[1] == "real":
        real().run()
    else:
        Misbehaving(sys.argv[1], Path(sys.argv[2])).run()
