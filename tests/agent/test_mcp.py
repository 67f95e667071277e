"""Tools of MCP servers: real ones over stdio and HTTP, and ones that die, hang and lie."""

import asyncio
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.graph import START, MessagesState, StateGraph

from segue.agent.mcp.server import Toolbox, tool_name
from segue.agent.middleware import McpTools, mcp_tools
from segue.compose import Overrides
from segue.errors import UsageError
from segue.facade import Segue
from segue.settings import Settings, load_settings
from segue.settings.agents import AgentConfig
from segue.settings.mcp import McpConfig
from segue.testing.world import ScriptedChatModel
from tests.agent.mcp_server import NOTES, real

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(__file__).with_name("mcp_server.py"))
# For what is meant to succeed; a machine may be busy.
PATIENCE = 100.0
# Accepted by OpenAI, Anthropic and Google.
VALID = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,62}")


def stdio(kind: str, folder: Path, **more: Any) -> McpConfig:
    args = [PROGRAM, "real"] if kind == "real" else ["-I", "-S", PROGRAM, kind, str(folder)]
    limits = {"connect_time": PATIENCE, "call_time": PATIENCE}
    return McpConfig.parse({"command": sys.executable, "args": args, **limits, **more}, "notes")


@asynccontextmanager
async def toolbox(config: McpConfig, max_tokens: int = 100_000) -> AsyncIterator[Toolbox]:
    async with Toolbox({"notes": config}, max_tokens).open() as opened:
        yield opened


async def call(tool: BaseTool, **args: Any) -> ToolMessage:
    given = {"type": "tool_call", "id": "c1", "name": tool.name, "args": args}
    result: ToolMessage = await tool.ainvoke(given)
    return result


async def one_tool(box: Toolbox) -> BaseTool:
    """Its only tool, even if the first attempt to connect was too slow on a busy machine."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await box.tools()):  # noqa: ASYNC110 - another process is watched
            await asyncio.sleep(0.02)
    [tool] = found
    return tool


async def until(is_true: Callable[[], bool], patience: float = PATIENCE) -> None:
    async with asyncio.timeout(patience):
        while not is_true():  # noqa: ASYNC110 - other processes are watched
            await asyncio.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def started(folder: Path) -> list[int]:
    """The process ids of all starts of a server that misbehaves."""
    file = folder / "starts"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


async def check_all_ended(folder: Path) -> None:
    """SIGKILL takes a moment on a busy machine."""
    await until(lambda: not any(map(is_running, started(folder))))
    assert started(folder)


async def test_tools_of_a_program_are_named_by_server_and_work(tmp_path: Path) -> None:
    """With the official SDK on the other end: results, errors of the tool, and a secret."""
    config = stdio("real", tmp_path, env={"NOTES_SECRET": "s3cret"})
    assert "s3cret" not in repr(config)
    async with toolbox(config) as box:
        tools = {tool.name: tool for tool in await box.tools()}
        assert list(tools) == [
            *("notes__read", "notes__secret", "notes__fail", "notes__nap", "notes__odd_name__")
        ]
        assert tools["notes__read"].description == "Read the note about a topic."
        assert (await call(tools["notes__read"], topic="garden")).content == NOTES
        assert (await call(tools["notes__secret"])).content == "s3cret"
        assert (await call(tools["notes__odd_name__"])).content == "one\ntwo"
        failed = await call(tools["notes__fail"])
        assert failed.status == "error"
        assert "out of paper" in failed.text


@pytest.mark.parametrize("name", ["config", "run_manager", "runtime", "self", "args", "kwargs"])
async def test_an_argument_of_any_name_reaches_the_server(tmp_path: Path, name: str) -> None:
    """Also of a name that LangChain uses for its own arguments."""
    async with toolbox(stdio("echo", tmp_path)) as box:
        result = await call(await one_tool(box), **{name: "v"})
    assert result.text == f"echo says hello to {{'{name}': 'v'}}"


async def test_a_result_of_data_alone_is_not_lost(tmp_path: Path) -> None:
    """Servers should repeat their data as text, but not all do."""
    async with toolbox(stdio("only_data", tmp_path)) as box:
        assert (await call(await one_tool(box))).text == '{"sky": "blue"}'


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def port() -> Iterator[int]:
    """A port that no other program gets, while a server of this test may come and go."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@asynccontextmanager
async def http_server(port: int, seen: list[Any] | None = None) -> AsyncIterator[str]:
    """A server of the official SDK on loopback."""
    app: Any = real().streamable_http_app()

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        if seen is not None and scope["type"] == "http":
            seen.append(dict(scope["headers"]))
        await app(scope, receive, send)

    config = uvicorn.Config(noted, port=port, log_config=None, timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]  # pytest has its own
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        await task


async def test_tools_over_http_survive_a_restart_of_the_server(port: int) -> None:
    """While it is away, a call gets an error result; afterwards the same tool works."""
    seen = list[Any]()
    given = {
        "url": f"http://127.0.0.1:{port}/mcp",
        "headers": {"Authorization": "Bearer t0ken"},
        "connect_time": PATIENCE,
        "call_time": 3,
    }
    config = McpConfig.parse(given, "notes")
    assert "t0ken" not in repr(config)
    async with toolbox(config) as box:
        async with http_server(port, seen):
            async with asyncio.timeout(PATIENCE):
                while not await box.tools():  # noqa: ASYNC110 - the server's start is watched
                    await asyncio.sleep(0.02)
            tools = {tool.name: tool for tool in await box.tools()}
            read = tools["notes__read"]
            assert (await call(read, topic="garden")).content == NOTES
            assert "did not answer within 3s" in (await call(tools["notes__nap"])).text
            assert (await call(read, topic="garden")).content == NOTES
            assert seen[0][b"authorization"] == b"Bearer t0ken"
        away = await call(read, topic="garden")
        assert (away.status, "failed" in away.text) == ("error", True)
        async with http_server(port):
            async with asyncio.timeout(PATIENCE):
                while (await call(read, topic="garden")).content != NOTES:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)


LIES = {
    "html": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nHi!\n",
    "refusal": b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
    "nonsense": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[[",
    "no http": b"220 mail.example.org ESMTP\r\n",
    "nothing": b"",
    "endless": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n",
}


@pytest.mark.parametrize("kind", LIES)
async def test_an_address_that_lies_has_no_tools(kind: str) -> None:
    """Whatever it answers, it is over within its limit, and little of it is in memory."""
    sent, writers, ended = 0, list[asyncio.StreamWriter](), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writers.append(writer)
        await reader.read(10)
        with suppress(ConnectionError):
            writer.write(LIES[kind])
            while kind == "endless" and sent < 60_000_000:
                writer.write(b"x" * 100_000)
                sent += 100_000
                await writer.drain()
            if kind != "nothing":
                writer.close()
        ended.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    # Those that end before their limit may take seconds on a busy machine.
    limit = PATIENCE / 2 if kind in {"endless", "refusal"} else 1.5
    given = {"url": f"http://127.0.0.1:{port}/mcp?key=s3cret", "connect_time": limit}
    try:
        async with asyncio.timeout(PATIENCE), toolbox(McpConfig.parse(given, "notes")) as box:
            if kind == "endless":
                await ended.wait()  # cut off by the client, not by the limit of connecting
            else:
                assert await box.tools() == []
            assert box.servers[0].tools == ()
            assert "s3cret" not in str(box.servers[0].problem)
        if kind == "refusal":
            assert box.servers[0].problem == "It answers with status 401."
        assert sent < 30_000_000
    finally:
        for writer in writers:
            writer.close()
        server.close()
        await asyncio.sleep(0)


async def test_a_program_that_dies_in_a_call_is_started_again(tmp_path: Path) -> None:
    """The call fails at once, and the next one finds a new process."""
    async with toolbox(stdio("dies", tmp_path)) as box:
        tool = await one_tool(box)
        for starts in (1, 2):
            result = await call(tool)
            assert (result.status, len(started(tmp_path))) == ("error", starts)
            assert "The program has ended. The call may have had effects." in result.text


async def test_a_program_that_is_killed_between_calls_is_not_missed(tmp_path: Path) -> None:
    """The next call waits for the new one and succeeds."""
    async with toolbox(stdio("polite", tmp_path)) as box:
        tool = await one_tool(box)
        assert (await call(tool)).status == "success"
        os.kill(started(tmp_path)[0], signal.SIGKILL)
        await until(lambda: box.servers[0].problem is not None)
        assert (await call(tool)).content == "polite says hello to {}"
        assert len(started(tmp_path)) == 2


async def test_tools_of_a_server_that_does_not_come_back_are_absent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The model is not offered what it cannot use, and the log says why."""
    async with toolbox(stdio("dies_later", tmp_path, connect_time=1)) as box:
        await call(await one_tool(box))
        async with asyncio.timeout(PATIENCE):
            while await box.tools():  # noqa: ASYNC110 - another process is watched
                await asyncio.sleep(0.05)
    assert "MCP server notes cannot be reached, its tools are absent" in caplog.text


async def test_a_call_that_hangs_ends_at_its_limit_and_the_program_is_replaced(
    tmp_path: Path,
) -> None:
    """A program that does not even list its tools any more is killed, deaf as it is."""
    async with toolbox(stdio("hangs_once", tmp_path, connect_time=2, call_time=0.5)) as box:
        tool = await one_tool(box)
        result = await call(tool)
        assert (result.status, "did not answer within" in result.text) == ("error", True)
        async with asyncio.timeout(PATIENCE):  # half a second can be short on a busy machine
            while (await call(tool)).status != "success":
                pass
        assert len(started(tmp_path)) >= 2
        await until(lambda: not is_running(started(tmp_path)[0]))


async def test_a_server_that_never_answers_costs_the_first_run_its_limit_only(
    tmp_path: Path,
) -> None:
    """Opening waits for nothing; later runs do not wait either, though it is tried again."""
    loop, limit = asyncio.get_running_loop(), 3.0
    began = loop.time()
    async with toolbox(stdio("never_ready", tmp_path, connect_time=limit)) as box:
        assert loop.time() - began < limit
        assert await box.tools() == []
        assert loop.time() - began >= limit
        await until(lambda: len(started(tmp_path)) >= 2)
        again = loop.time()
        assert await box.tools() == []
        assert loop.time() - again < limit
    await check_all_ended(tmp_path)


@pytest.mark.parametrize("kind", ["wrong_result", "too_huge"])
async def test_a_result_that_breaks_the_protocol_is_an_error_result(
    kind: str, tmp_path: Path
) -> None:
    async with toolbox(stdio(kind, tmp_path)) as box:
        assert (await call(await one_tool(box))).status == "error"


async def test_a_long_result_loses_its_middle(tmp_path: Path) -> None:
    """A result of 3 MB would fill any window."""
    async with toolbox(stdio("huge", tmp_path, result_chars=1_000)) as box:
        text = (await call(await one_tool(box))).text
        assert len(text) < 1_100
        assert text.startswith("startxxx")
        assert text.endswith("xxxend")
        assert "characters left out" in text


async def test_a_list_that_changes_is_taken_up(tmp_path: Path) -> None:
    async with toolbox(stdio("changing", tmp_path)) as box:
        await call(await one_tool(box))
        async with asyncio.timeout(PATIENCE):
            while len(await box.tools()) < 2:  # noqa: ASYNC110 - another process is watched
                await asyncio.sleep(0.02)
        assert [tool.name for tool in await box.tools()] == ["notes__read", "notes__write"]


async def test_other_output_of_a_program_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not every program keeps its standard output clean; the log names the server, once."""
    async with toolbox(stdio("chatty", tmp_path)) as box:
        assert (await call(await one_tool(box))).status == "success"
    assert caplog.text.count("MCP server notes writes lines that are not messages") == 1
    assert "Welcome" not in caplog.text


async def test_tools_that_no_provider_takes_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Names twice, arguments without names, and descriptions as long as a book."""
    async with toolbox(stdio("bad_tools", tmp_path)) as box:
        tools = await box.tools()
    assert [tool.name[:12] for tool in tools] == ["notes__read", "notes__xxxxx"]
    assert all(VALID.fullmatch(tool.name) for tool in tools)
    assert len(tools[1].description) < 2_100
    assert "4 tools are left out: read, another has this name; no_object, its" in caplog.text


@pytest.mark.parametrize("kind", ["endless_pages", "wrong_list"])
async def test_a_wrong_list_of_tools_ends(kind: str, tmp_path: Path) -> None:
    """Of a list without end the first are taken, of one that is none nothing."""
    async with toolbox(stdio(kind, tmp_path)) as box:
        assert [tool.name for tool in await box.tools()] == (
            ["notes__read"] if kind == "endless_pages" else []
        )


async def test_descriptions_leave_room_for_the_conversation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server with a hundred tools would otherwise fail every turn of a small model."""
    async with toolbox(stdio("many_tools", tmp_path), max_tokens=1_000) as box:
        assert 1 <= len(await box.tools()) < 5
    assert "MCP tools are left out" in caplog.text


async def test_only_the_tools_that_are_named_are_offered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = stdio("bad_tools", tmp_path, tools=["long", "no_object", "gone"])
    async with toolbox(config) as box:
        assert await box.tools() == []
    assert "MCP server notes has no tool gone" in caplog.text


def test_names_are_valid_and_differ() -> None:
    """Whatever a server calls its tools."""
    names = ["read", "a.b", "ü", "1", "", "x" * 64, "x" * 65, "y" * 500, "read file"]
    made = [tool_name("notes", name) for name in names]
    assert all(map(VALID.fullmatch, made))
    assert len(set(made)) == len(made)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "either `command`"),
        ({"command": "x", "url": "http://x"}, "either `command`"),
        ({"url": "ftp://x"}, "starts with 'https://'"),
        ({"url": "http://x", "args": ["y"]}, "`args` is for `command`"),
        ({"command": "x", "headers": {"a": "b"}}, "`headers` is for `url`"),
    ],
)
def test_a_server_is_a_program_or_an_address(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        McpConfig(**given)


@pytest.mark.parametrize("name", ["Files", "a__b", "a_", "1a", "a-b", "x" * 25, ""])
def test_names_of_servers_fit_into_names_of_tools_and_variables(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name an MCP server"):
        AgentConfig.parse({"id": "ada", "mcp": {name: {"command": "x"}}}, "ada")


def test_secrets_come_from_the_environment(tmp_path: Path) -> None:
    """As a table in JSON, since names of variables and headers are not always in capitals."""
    file = tmp_path / "segue.toml"
    file.write_text('[agents.ada.mcp.web]\nurl = "https://example.org/mcp"\n')
    variable = {"SEGUE_AGENTS__ADA__MCP__WEB__HEADERS": '{"Authorization": "Bearer t0ken"}'}
    agent = load_settings(file, variable).agents[0]
    assert agent.mcp["web"].headers["Authorization"].get_secret_value() == "Bearer t0ken"
    assert "t0ken" not in repr(agent)


def calling(name: str) -> ScriptedChatModel:
    """A model that calls a tool once, then repeats the tool's result."""

    def answer(messages: list[Any]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage(f"It says: {messages[-1].text}")
        made = {"name": name, "args": {"topic": "garden"}, "id": "c1"}
        return AIMessage("", tool_calls=[made])

    return ScriptedChatModel(script=answer)


@asynccontextmanager
async def segue_with(folder: Path, model: Any = None, **agent: Any) -> AsyncIterator[Segue]:
    config = AgentConfig(
        **{"id": "ada", "memory": {"enabled": False}, "autonomy": {"decider": "none"}, **agent}
    )
    given = Overrides(models={"ada": model} if model else {})
    settings = Settings(database=str(folder), agents=(config,))
    async with Segue.open(settings, overrides=given) as segue:
        yield segue


async def reply(segue: Segue, text: str = "What about the garden?") -> str:
    return await segue.reply(await segue.create_thread("sam"), text)


async def test_the_built_in_agent_calls_them(tmp_path: Path) -> None:
    """Offered to the model next to its own tools, run, and answered."""
    model = calling("notes__read")
    servers = {"notes": stdio("polite", tmp_path)}
    async with segue_with(tmp_path / "data", model, mcp=servers) as segue:
        said = await reply(segue)
    assert said == "It says: polite says hello to {'topic': 'garden'}"
    await check_all_ended(tmp_path)


@pytest.mark.parametrize("kind", ["dies", "hangs", "wrong_result", "too_huge", "never_ready"])
async def test_whatever_a_server_does_the_turn_ends_with_a_reply(kind: str, tmp_path: Path) -> None:
    """An error result, or an unknown tool; never a turn that failed."""
    config = stdio(kind, tmp_path, connect_time=2, call_time=0.5)
    async with segue_with(
        tmp_path / "data", calling("notes__read"), mcp={"notes": config}
    ) as segue:
        said = await reply(segue)
    assert "failed" in said or "not a valid tool" in said


async def test_an_own_tool_hides_one_of_a_server(tmp_path: Path) -> None:
    """An owner's code cannot be replaced from outside by a name."""

    def notes__read(topic: str) -> str:
        """Read my own notes."""
        return f"my own {topic}"

    config = stdio("polite", tmp_path)
    async with segue_with(
        tmp_path / "data", calling("notes__read"), mcp={"notes": config}, tools=[notes__read]
    ) as segue:
        assert await reply(segue) == "It says: my own garden"


async def test_an_own_graph_of_create_agent_gets_them(tmp_path: Path) -> None:
    graph = create_agent(calling("notes__read"), [], middleware=[McpTools()])
    servers = {"notes": stdio("polite", tmp_path)}
    async with segue_with(tmp_path / "data", graph=graph, mcp=servers) as segue:
        assert await reply(segue) == "It says: polite says hello to {'topic': 'garden'}"


async def test_a_node_of_an_own_graph_gets_them(tmp_path: Path) -> None:
    async def answer(state: MessagesState) -> dict[str, Any]:
        del state
        [tool] = await mcp_tools()
        return {"messages": [AIMessage(str(await tool.ainvoke({"topic": "sea"})))]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    servers = {"notes": stdio("polite", tmp_path)}
    async with segue_with(tmp_path / "data", graph=builder, mcp=servers) as segue:
        assert await reply(segue) == "polite says hello to {'topic': 'sea'}"


async def test_a_model_without_tools_is_refused(tmp_path: Path) -> None:
    """At the start, and not with every reply."""

    class Talker(ScriptedChatModel):
        bind_tools = ScriptedChatModel.__mro__[1].bind_tools  # type: ignore[attr-defined]

    with pytest.raises(UsageError, match="calls no tools"):
        async with segue_with(
            tmp_path / "data", Talker(script=["Hi."]), mcp={"notes": stdio("polite", tmp_path)}
        ):
            pass


KILLED = """
import asyncio, sys
from segue.agent.mcp.server import Toolbox
from segue.settings.mcp import McpConfig

async def main():
    config = McpConfig(command=sys.executable, args=sys.argv[1:], connect_time=100)
    async with Toolbox({"notes": config}, 100_000).open() as box:
        await box.tools()
        print("ready", flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_no_program_outlives_a_segue_that_was_killed(tmp_path: Path) -> None:
    """Not even one that is deaf to the end of its input and to SIGTERM."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, "-I", "-S", PROGRAM, "deaf", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert await process.stdout.readline() == b"ready\n"
    [pid] = started(tmp_path)
    assert is_running(pid)
    process.kill()
    await process.wait()
    try:
        await until(lambda: not is_running(pid), 40)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert len(started(tmp_path)) == 1


def test_the_sdk_does_not_log_what_servers_say() -> None:
    """Its log quotes messages, which may quote the conversation."""
    assert not logging.getLogger("mcp.client.streamable_http").isEnabledFor(logging.ERROR)
