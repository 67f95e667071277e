"""`segue serve`: what it refuses, and a server that is started, stopped and started again."""

import asyncio
import gc
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from segue.cli.reload import look_at, serve_with_reload, watched_folders
from segue.cli.serve import _greeting
from segue.core.speech.stops import grammars
from segue.errors import DeniedError
from segue.server.app import create_app
from segue.server.serving import EventLoop
from segue.server.settings import ServedSettings, ServerSettings
from segue.settings import Settings
from tests.cli.conftest import Segue
from tests.cli.in_process import chatting, serving
from tests.cli.programs import PATIENCE, running, write_config

HOOK = f"[server.hooks.shop]\nsecret = 'whsec_{'QUJD' * 8}'\n"


def test_a_public_address_needs_a_key(segue: Segue, tmp_path: Path) -> None:
    """It says what to do before it has opened or made anything."""
    write_config(tmp_path)
    result = segue("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - it is refused
    assert result.exit_code == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: The server has no key: anyone who can reach 0.0.0.0")
    assert "`segue keys create`" in line
    assert [path.name for path in tmp_path.iterdir()] == ["segue.toml"]


def test_a_revoked_key_is_none(segue: Segue, tmp_path: Path) -> None:
    """Whoever revoked the last key must not find everything open."""
    write_config(tmp_path)
    words = segue("keys", "create", "laptop").stdout
    assert segue("keys", "revoke", words.split("_")[1]).exit_code == 0
    result = segue("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - it is refused
    assert result.exit_code == 2
    assert "The server has no key" in result.stderr


def test_with_a_key_a_public_address_is_not_refused(segue: Segue, tmp_path: Path) -> None:
    """The next thing is looked at: here an agent that cannot be."""
    (tmp_path / "segue.toml").write_text("[agents.ada]\nmodel = 'nobody:x'\n", encoding="utf-8")
    segue("keys", "create", "laptop")
    result = segue("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - it has a key
    assert result.exit_code == 1
    assert "no provider 'nobody'" in result.stderr


@pytest.mark.anyio
async def test_a_server_that_is_ready_has_loaded_what_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the first requests, and later each full garbage collection, hold up everybody."""
    apps: list[FastAPI] = []

    def watched(*given: Any) -> FastAPI:
        apps.append(create_app(*given))
        return apps[-1]

    monkeypatch.setattr("segue.cli.serve.create_app", watched)
    write_config(tmp_path)
    try:
        async with serving(monkeypatch, tmp_path, port=0):
            assert gc.get_freeze_count() > 10_000
            assert apps[0].openapi_schema is not None
            assert grammars.cache_info().currsize == 1
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("database = 'taken'", "'taken' cannot be made"),
        ("database = 'broken'", "file is not a database"),
        ("database = 'postgresql://nobody@127.0.0.1:1/x'", "PostgreSQL"),
        ("database = 'postgresql://ann:s3cr@t99@127.0.0.1/x'", "address cannot be read"),
        ("[agents.ada]\nmodel = 'nobody:x'", "no provider 'nobody'"),
    ],
)
def test_a_system_that_cannot_open_ends_with_one_line(
    segue: Segue, tmp_path: Path, config: str, words: str
) -> None:
    """And exit code 1; a server that could never answer would help nobody."""
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "journal.db").write_bytes(b"This is no database. " * 100)
    (tmp_path / "segue.toml").write_text(config, encoding="utf-8")
    result = segue("serve", "--port", "0")
    assert result.exit_code == 1
    [line] = [x for x in result.stderr.splitlines() if "[info" not in x]
    assert line.startswith("Error: ")
    assert words in line
    assert "Ready." not in result.stdout
    assert "Segue serves" not in result.stdout
    assert "t99" not in result.output


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("slots = 0", "segue.toml: slots: got 0"),
        ("[server]\nport = 70000", "segue.toml: server.port: got 70000"),
        ("[server]\nhots = 'x'", "did you mean host?"),
        ("database = ", "this is not TOML"),
        (f"{HOOK}agent = 'bob'", "server.hooks.shop.agent: unknown agent 'bob'"),
        (f"{HOOK}trigger = 'evnt'", "has no trigger 'evnt'; did you mean event?"),
    ],
)
def test_wrong_settings_are_told_with_their_place(
    segue: Segue, tmp_path: Path, config: str, words: str
) -> None:
    """In one line, with exit code 2."""
    (tmp_path / "segue.toml").write_text(config, encoding="utf-8")
    result = segue("serve")
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert words in line


def test_flags_override_the_settings(
    segue: Segue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it listens, and `--verbose`. Its event loop forgets what is over."""
    (tmp_path / "segue.toml").write_text("[server]\nport = 1\nhost = 'x'\n", encoding="utf-8")
    served: list[ServerSettings] = []

    async def serve_nothing(settings: ServedSettings) -> int:
        served.append(settings.server)
        assert isinstance(asyncio.get_running_loop(), EventLoop)
        return 0

    monkeypatch.setattr("segue.cli.serve.serve_until_stopped", serve_nothing)
    segue("serve")
    segue("serve", "--host", "::1", "--port", "2", "--verbose")
    assert [(each.host, each.port, each.log_level) for each in served] == [
        ("x", 1, "warning"),
        ("::1", 2, "info"),
    ]


def test_a_port_that_is_taken(segue: Segue, tmp_path: Path) -> None:
    """Is named, with exit code 1 and how to choose another."""
    write_config(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = segue("serve", "--port", str(port))
    assert result.exit_code == 1
    assert f"Cannot listen on 127.0.0.1:{port}" in result.stderr
    assert "--port" in result.stderr


def test_an_agent_with_a_graph_of_its_own_is_not_said_to_have_a_model() -> None:
    """Which model its graph asks, if any, is not in the settings."""
    agents = [{"id": "echo", "graph": "echo:graph"}, {"id": "ada", "model": "scripted"}]
    lines = _greeting(Settings.parse({"agents": agents}, "settings"), "here", "http://x")
    assert "  agents   echo (own graph), ada (scripted)" in lines
    assert not any("deletes" in line for line in lines)


def test_the_greeting_names_what_is_deleted() -> None:
    """An operator sees at the start what retention deletes, and after what time."""
    settings = Settings.parse({"retention": {"older_than": "90d"}}, "settings")
    assert (
        "  deletes  batches with no new message for 90 days; at each start and once a day"
        in _greeting(settings, "here", "http://x")
    )


async def history(address: str) -> list[str]:
    """What was said in the only thread."""
    async with httpx.AsyncClient(base_url=f"{address}/api", timeout=PATIENCE) as client:
        [thread] = (await client.get("/threads")).json()["items"]
        page = (await client.get(f"/threads/{thread['id']}/history")).json()
    return [message["text"] for message in page["items"]]


@pytest.mark.anyio
async def test_a_conversation_outlives_its_server(tmp_path: Path) -> None:
    """Start, talk, silence, follow-up; SIGTERM in the middle of an answer ends the server with 0,
    and the next one gives the whole answer to the same chat.
    """
    config = write_config(tmp_path, delay=0.1)
    async with running(tmp_path, "serve", "--config", str(config), "--port", "0") as server:
        address = (await server.until(r"Segue serves at (http://\S+)\n"))[1]
        await server.until(rf"data +SQLite in {tmp_path}/segue-data\n")
        await server.until(rf"chat +segue chat --url {address}\n")
        await server.until(r"^Ready\.\n")
        async with running(tmp_path, "chat", "--url", address) as chat:
            await chat.say("I want to learn the guitar.")
            await chat.until(r"^Ada: And how do you feel about the guitar\?\n")
            await chat.until(r"^Ada: .*guitar.*\n")  # nobody said anything

            await chat.say("I play the piano.")
            await chat.until(r"^Ada: \w")
            server.send(signal.SIGTERM)
            assert await server.ended() == 0
            assert server.printed.endswith("Stopped.\n")
            await chat.until(r"^\(The connection to the server is lost; trying again\.\)\n")

            port = address.rpartition(":")[2]
            async with running(tmp_path, "serve", "--port", port) as again:
                await again.until(r"^Ready\.\n")
                await chat.until(r"^\(The server is back\.\)\n")
                answer = (await chat.until(r"^Ada: (.*\bpiano\b.*\n)"))[1]
                chat.hang_up()
                assert await chat.ended() == 0
                said = await history(address)
                assert said.count("I play the piano.") == 1
                assert said[3] == "I play the piano."
                assert said[4] == answer.strip()
                again.send(signal.SIGINT)
                assert await again.ended() == 0


@pytest.mark.anyio
@pytest.mark.parametrize("log_level", [None, "info"])
async def test_a_server_is_quiet_unless_it_is_asked_to_talk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    log_level: str | None,
) -> None:
    """A turn and a follow-up that go well are not worth a line, unless one wants to see them."""
    write_config(tmp_path)
    async with serving(monkeypatch, tmp_path, port=0, log_level=log_level) as server:
        async with chatting(monkeypatch, tmp_path, url=server.address) as chat:
            chat.say("I want to learn the guitar.")
            await chat.until(r"^Ada: .*\n(?:.*\n)*Ada: .*\n")
            chat.say(None)
            assert await chat.ended() == 0
        assert await server.stopped() == 0
    lines = capsys.readouterr().err.splitlines()
    assert any("POST /api/threads: 201" in line for line in lines) is bool(log_level)
    assert bool(lines) is bool(log_level)


@pytest.mark.anyio
async def test_a_server_with_keys_lets_in_who_has_one(
    segue: Segue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a public address; a chat without the key is told so, one with it talks; logs are JSON."""
    config = write_config(tmp_path)
    with config.open("a", encoding="utf-8") as file:
        file.write("\n[server]\nhost = '0.0.0.0'\nlog_format = 'json'\nlog_level = 'info'\n")
    key = (await asyncio.to_thread(segue, "keys", "create", "laptop")).stdout.strip()
    async with serving(monkeypatch, tmp_path, port=0) as server:
        port = server.address.rpartition(":")[2]
        url = f"http://127.0.0.1:{port}"
        assert server.address == f"http://0.0.0.0:{port}"
        assert f"\n  chat     segue chat --url {url}\n" in server.printed
        async with chatting(monkeypatch, tmp_path, url=url) as shut:
            with pytest.raises(DeniedError, match="Send a key or token"):
                await shut.ended()
        async with chatting(monkeypatch, tmp_path, url=url, key=key) as chat:
            chat.say("Hello!")
            await chat.until(r"^Ada: .+\n")
            chat.say(None)
            assert await chat.ended() == 0
        assert await server.stopped() == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(line.startswith("{") for line in lines)
    assert key not in "".join(lines)


@pytest.mark.local
@pytest.mark.anyio
async def test_without_settings_the_local_model_talks(tmp_path: Path) -> None:
    """From nothing: SQLite in this folder, a model without a key, and a word about what it is."""
    async with running(tmp_path, "serve", "--port", "0") as server:
        address = (await server.until(r"Segue serves at (http://\S+)\n"))[1]
        await server.until(r"^The model 'local' is a tiny model for trying Segue out")
        await server.until(r"^Ready\.\n")
        async with running(tmp_path, "chat", "--url", address) as chat:
            await chat.say("Hello! What do you like about rivers?")
            await chat.until(r"^companion: \w.+\n")
            chat.hang_up()
            assert await chat.ended() == 0
        server.send(signal.SIGTERM)
        assert await server.ended() == 0
    assert (tmp_path / "segue-data" / "journal.db").exists()


OWN_GRAPH = """
import asyncio
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph


async def answer(state):
    last = state["messages"][-1].text
    while last == "wait" and "VERSION" == "one":
        await asyncio.sleep(0.05)
    return {"messages": [AIMessage(f"VERSION: {last}")]}


graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile()
"""


@pytest.mark.anyio
async def test_changed_code_is_taken_up_without_losing_anything(tmp_path: Path) -> None:
    """The port stays open, a thread goes on, a running turn is resumed by the new code, and code
    that cannot be loaded changes nothing but says why.
    """
    config = "patience = '0s'\n[agents.own]\ngraph = 'own_graph:graph'\nautonomy.enabled = false\n"
    (tmp_path / "segue.toml").write_text(config, encoding="utf-8")
    code = tmp_path / "own_graph.py"
    code.write_text(OWN_GRAPH.replace("VERSION", "one"))
    async with running(tmp_path, "serve", "--port", "0", "--reload") as server:
        address = (await server.until(r"Segue serves at (http://\S+)\n"))[1]
        await server.until(r"^Ready\.\n")
        async with httpx.AsyncClient(base_url=f"{address}/api", timeout=PATIENCE) as client:
            thread = (await client.post("/threads", json={})).json()["id"]

            async def say(text: str) -> None:
                sent = await client.post(f"/threads/{thread}/messages", json={"content": text})
                assert sent.is_success, sent.text

            async def until_said(text: str) -> None:
                async with asyncio.timeout(PATIENCE):
                    while True:
                        page = await client.get(f"/threads/{thread}/history")
                        # 503 while a process stops; a client comes back.
                        if page.is_success and page.json()["items"][-1]["text"] == text:
                            return
                        await asyncio.sleep(0.1)

            await say("hello")
            await until_said("one: hello")
            code.write_text("def (")
            await server.until(r"^Reloading: own_graph.py changed\.\n")
            await server.until(r"^The previous code keeps serving\.\n")
            assert b"SyntaxError: invalid syntax (own_graph.py, line 1)" in server.complained
            await say("still there?")
            await until_said("one: still there?")
            await say("wait")
            code.write_text(OWN_GRAPH.replace("VERSION", "two"))
            await server.until(r"^Ready\.\n")
            await until_said("two: wait")
            said = ["hello", "one: hello", "still there?", "one: still there?", "wait", "two: wait"]
            assert await history(address) == said
        server.send(signal.SIGTERM)
        assert await server.ended() == 0


HANGS = """
import pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(__file__).with_name("hangs").touch()
time.sleep(1_000)
"""
WORKS = """
import pathlib, sys
print("Ready.", flush=True)
pathlib.Path(__file__).with_name("works").touch()
sys.stdin.read()
"""


@pytest.mark.anyio
async def test_code_that_hangs_at_its_start_is_replaced_once_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a module that waits for a server which does not answer."""
    monkeypatch.setattr("segue.cli.reload._GRACE", 0.1)
    code, stop = tmp_path / "code.py", asyncio.Event()
    code.write_text(HANGS)
    look = partial(look_at, tmp_path / "segue.toml", [tmp_path])

    async def until_there(name: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not (tmp_path / name).exists():  # noqa: ASYNC110 - another process is watched
                await asyncio.sleep(0.02)

    with socket.socket() as listener:
        command = [sys.executable, "-I", str(code)]
        run = asyncio.create_task(serve_with_reload(listener.fileno(), stop, look, command))
        await until_there("hangs")
        code.write_text(WORKS)
        await until_there("works")
        stop.set()
        async with asyncio.timeout(PATIENCE):
            assert await run == 0


@pytest.mark.anyio
async def test_a_server_ends_if_the_process_that_reloads_it_was_killed(tmp_path: Path) -> None:
    """Otherwise it would keep the port, and serve old code for ever."""
    write_config(tmp_path)
    async with running(tmp_path, "serve", "--port", "0", "--reload") as server:
        address = (await server.until(r"Segue serves at http://(\S+)\n"))[1]
        await server.until(r"^Ready\.\n")
        server.send(signal.SIGKILL)
        host, _, port = address.partition(":")
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    _, writer = await asyncio.open_connection(host, int(port))
                except ConnectionRefusedError:
                    break
                writer.close()
                await asyncio.sleep(0.1)
        assert await server.ended() == -signal.SIGKILL


def test_code_of_other_folders_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory and packages that the settings name, not what is installed."""
    here, package = tmp_path / "here", tmp_path / "elsewhere" / "brain"
    for folder in (here / ".venv", here / "env", here / "sub", package):
        folder.mkdir(parents=True)
    (here / "env" / "pyvenv.cfg").touch()
    for file in (".venv/a.py", "env/b.py", "sub/c.py", "notes.txt", "segue.toml"):
        (here / file).touch()
    (package / "__init__.py").touch()
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(package.parent)
    agent = {"id": "ada", "graph": "brain.graphs:graph"}
    settings = Settings.parse({"agents": [agent]}, "settings")
    seen = look_at(Path("segue.toml"), watched_folders(settings))
    assert {path.name for path in seen} == {"c.py", "__init__.py", "segue.toml"}
