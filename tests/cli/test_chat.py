"""`segue chat` without a server: in a pipe, and in a terminal."""

import asyncio
import fcntl
import os
import pty
import signal
import termios
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from segue.cli.chat import resume_command
from segue.cli.chat.screen import Terminal
from segue.journal.journal import Journal
from segue.journal.records import Decision
from segue.runtime.clock import SystemClock
from segue.settings import Settings
from segue.stores import open_journal
from tests.cli.conftest import Segue
from tests.cli.in_process import chatting, serving
from tests.cli.programs import PATIENCE, SEGUE, environment, running, write_config

pytestmark = pytest.mark.anyio

GRAPHS = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt


def asks(state):
    size = interrupt("Which size?")
    colour = interrupt({"question": "Which colour?", "choices": ["blue", "red"]})
    return {"messages": [AIMessage(f"One {size} {colour} one.")]}


def breaks(state):
    raise RuntimeError("The kiln exploded.")


def graph_of(node):
    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return graph


asking, breaking = graph_of(asks), graph_of(breaks)
"""
# Nothing answers when it asks where the cursor is.
TERMINAL = {"TERM": "xterm", "NO_COLOR": "1", "PROMPT_TOOLKIT_NO_CPR": "1"}
CONFIG = """
retries = 0
max_attempts = 1
[agents.clerk]
graph = "own_graphs:asking"
[agents.potter]
graph = "own_graphs:breaking"
"""


async def test_lines_of_a_pipe_are_answered_one_after_the_other(tmp_path: Path) -> None:
    """Each line waits for the answer before it; the end of the input ends the chat with 0, and so
    does the second Ctrl-C. `--thread` goes on as the same user, with the new answer alone.
    """
    config = write_config(tmp_path, delay=0.02)
    # A second message would be refused while the first is being answered.
    config.write_text(f"double_texting = 'reject'\n{config.read_text('utf-8')}", encoding="utf-8")
    async with running(tmp_path, "chat", "--user", "sam") as chat:
        await chat.say("I want to learn the guitar.\nI play the piano.\n")
        chat.hang_up()
        assert await chat.ended() == 0
    first, second = chat.printed.splitlines()
    assert first.startswith("Ada: ")
    assert "guitar" in first
    assert "piano" in second
    told = chat.complained.decode()
    thread = told.rpartition("--thread ")[2].strip()
    assert thread.isdigit(), told
    assert f"Continue with: segue chat --user sam --thread {thread}\n" in told

    write_config(tmp_path, delay=0.5)
    async with running(tmp_path, "chat", "--thread", thread) as again:
        await again.say("Thanks, I like to talk about that.")
        await again.until(r"^Ada: \w+")
        again.send(signal.SIGINT)
        await again.until(r"\n\(Stopped\.\)\n")
        again.send(signal.SIGINT)
        assert await again.ended() == 0
    assert again.printed.count("Ada: ") == 1
    assert "You are chatting with Ada as sam. " in again.complained.decode()


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--user", "The user of thread 'talk' is 'ann', and --user is 'eve'."),
        ("--agent", "The agent of thread 'talk' is 'ada', and --agent is 'eve'."),
    ],
)
async def test_a_thread_is_gone_on_with_only_by_its_own(
    segue: Segue, tmp_path: Path, flag: str, words: str
) -> None:
    """Nobody speaks in another one's name, or to another agent than they think."""
    write_config(tmp_path)
    settings = Settings(database=str(tmp_path / "segue-data"))
    async with open_journal(settings, make=True) as journal:
        now = SystemClock().now()
        await journal.threads.create("talk", agent_id="ada", user_id="ann", now=now)
    result = await asyncio.to_thread(segue, "chat", "--thread", "talk", flag, "eve")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"Error: {words}")


def test_the_resume_command_has_all_flags_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key and an address that may hold a password are left for the user to fill in."""
    monkeypatch.setenv("SEGUE_KEY", "sgu_known")
    here = resume_command(None, None, "ann lee", Path("my.toml"), "data")
    assert here == "segue chat --user 'ann lee' --config my.toml --database data"
    for address in ("postgresql://me:word@db/segue", "user=me password=word"):
        assert resume_command(None, None, None, None, address) == "segue chat --database …"
    url = "http://127.0.0.1:8000"
    assert (
        resume_command(url, "sgu_other", "bo", None, None)
        == f"segue chat --url {url} --key … --user bo"
    )
    assert resume_command(url, "sgu_known", None, None, None) == f"segue chat --url {url}"


async def test_a_terminal_shows_what_was_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes back sees where they were."""
    write_config(tmp_path)
    async with chatting(monkeypatch, tmp_path) as chat:
        chat.say("I want to learn the guitar.")
        chat.say(None)
        assert await chat.ended() == 0
    thread = chat.notes.printed.rpartition("--thread ")[2].strip()
    async with chatting(monkeypatch, tmp_path, is_live=True, thread=thread) as again:
        shown = await again.until(r"^you: I want to learn the guitar\.\nAda: .+\n")
        assert shown.start() == 0


@pytest.mark.parametrize("is_remote", [False, True])
async def test_a_stop_that_was_understood_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_remote: bool
) -> None:
    """In one line that says how to undo it; the words that it names do undo it."""
    write_config(tmp_path)
    async with AsyncExitStack() as stack:
        url = None
        if is_remote:
            url = (await stack.enter_async_context(serving(monkeypatch, tmp_path, port=0))).address
        chat = await stack.enter_async_context(chatting(monkeypatch, tmp_path, url=url))
        chat.say("I play the piano.")
        chat.say("Not now, write to me tomorrow.")
        zone = r"(\w+/\w+|[A-Z]+|[+-]\d+)"
        until = rf"before \d{{4}}-\S+ [\d:]+ {zone}\. To undo this, write: "
        await chat.until(rf"^\(No agent writes to you first {until}")
        chat.say("Stop writing to me.")
        told = await chat.until(r"^\(Agents no longer write to you first\. .*write: \"(.+)\"\)\n")
        chat.say(told[1])
        await chat.until(r"^\(Agents may write to you first\.\)\n")
        chat.say(None)
        assert await chat.ended() == 0
    assert sum(line.startswith("(") for line in chat.output.printed.splitlines()) == 3


async def test_ctrl_c_stops_the_answer_and_then_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen of the answer stays; the second one ends the chat with 0."""
    write_config(tmp_path, delay=0.5)
    async with chatting(monkeypatch, tmp_path) as chat:
        chat.say("I want to learn the guitar.")
        await chat.until(r"^Ada: \w+")
        chat.keyboard.interrupt()
        await chat.until(r"\n\(Ctrl-C again leaves\.\)\n\(Stopped\.\)\n")
        assert "guitar?" not in chat.output.printed
        assert chat.output.printed.count("Ada: ") == 1
        chat.keyboard.interrupt()
        assert await chat.ended() == 0


async def test_the_agent_asks_before_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next line is the answer to its question, and not a message."""
    write_graphs(tmp_path, monkeypatch)
    async with chatting(monkeypatch, tmp_path, agent="clerk") as chat:
        chat.say("A vase, please.")
        await chat.until(r"^\(The agent asks: Which size\?\)\n")
        chat.say("large")
        await chat.until(r"^\(The agent asks: Which colour\? \(blue, red\)\)\n")
        chat.say("blue")
        await chat.until(r"^clerk: One large blue one\.\n")
        chat.say(None)
        assert await chat.ended() == 0


async def test_an_answer_that_fails_is_told_in_plain_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the error's own, which may hold anything; and a script learns by the exit code."""
    write_graphs(tmp_path, monkeypatch)
    async with chatting(monkeypatch, tmp_path, agent="potter") as chat:
        chat.say("A vase, please.")
        chat.say(None)
        assert await chat.ended() == 1
    [line] = chat.output.printed.splitlines()
    assert line.startswith("(")
    assert "kiln" not in line


def write_graphs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings with agents of `own_graphs`, which Python finds."""
    (folder / "own_graphs.py").write_text(GRAPHS, encoding="utf-8")
    (folder / "segue.toml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)


async def test_a_terminal_shows_words_above_the_line_that_is_typed(tmp_path: Path) -> None:
    """A prompt, who is writing, the answer; a follow-up comes while a line is half typed, wrapped
    at words, and the line is there again after it. Ctrl-C asks first then; SIGTERM leaves the
    terminal as it was.
    """
    write_config(tmp_path, delay=0.02)
    async with at_terminal(tmp_path, "chat") as (terminal, process):
        await terminal.until("you>")
        terminal.type("I want to learn the guitar.\r")
        await terminal.until("Ada is writing…")
        await terminal.until("And how do you feel about the guitar?\r\n")
        await terminal.until("you>")
        terminal.type("half a li")
        await terminal.until("Did my answer about the guitar help, or shall we look\r\n")
        await terminal.until("at it from another side?\r\n")
        await terminal.until("you> half a li")
        terminal.type("\x03")
        await terminal.until("(Ctrl-C again leaves.)")
        await terminal.until("you> half a li")
        process.terminate()
        await terminal.until("Continue with: segue chat --thread")
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
        assert terminal.is_as_before()


async def test_no_follow_up_comes_while_the_user_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chat reports it, so the gates put a due follow-up off."""
    write_config(tmp_path, typing_hold="1h")
    settings = Settings(database=str(tmp_path / "segue-data"))
    async with chatting(monkeypatch, tmp_path, is_live=True) as chat:
        chat.say("I want to learn the guitar.")
        await chat.until(r"^Ada: .+\n")
        chat.keyboard.report_typing()
        async with asyncio.timeout(PATIENCE), open_journal(settings) as journal:
            [thread] = await journal.threads.list_newest()
            while not (found := await _gates(journal, thread.id)):  # noqa: ASYNC110 - the timer
                await asyncio.sleep(0.1)  # worker decides it
        assert found[0].reasons[0] == "The user is typing."


async def test_a_terminal_passes_on_what_is_typed() -> None:
    """Each key is reported, Enter sends the line, Ctrl-C keeps it, and Ctrl-D leaves."""
    calls: list[str] = []
    user = SimpleNamespace(
        idle=asyncio.Event(),
        say=lambda text: calls.append(f"say {text}"),
        interrupt=lambda: calls.append("interrupt"),
        report_typing=lambda: calls.append("typing"),
    )
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        terminal = Terminal()
        for typed in ("Hi", "\r", "Yo", "\x03", "\r", "\x04"):
            keys.send_text(typed)
        async with asyncio.timeout(PATIENCE):
            await terminal.read(user)
    assert [call for call, _ in groupby(calls)] == [
        *("typing", "say Hi", "typing", "interrupt", "say Yo")
    ]


async def _gates(journal: Journal, thread_id: str) -> list[Decision]:
    return [d for d in await journal.decisions.list_of(thread_id) if d.kind == "gates"]


async def test_a_terminal_says_that_the_server_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that the agent is writing; what is sent then is answered when it is back."""
    write_config(tmp_path)
    async with AsyncExitStack() as stack:
        async with serving(monkeypatch, tmp_path, port=0) as server:
            chat = await stack.enter_async_context(
                chatting(monkeypatch, tmp_path, is_live=True, url=server.address)
            )
            chat.say("Hello.")
            await chat.until(r"^Ada: .*\n")  # it listens by now
        answered = len(chat.output.printed)
        await chat.until(r"^\[Reconnecting to the server…\]\n")
        chat.say("I play the piano.")
        port = int(server.address.rpartition(":")[2])
        async with serving(monkeypatch, tmp_path, port=port):
            await chat.until(r"^\(The server is back\.\)\n")
            await chat.until(r"^Ada: .*\bpiano\b.*\n")
    away = chat.output.printed[answered:].partition("(The server is back.)")[0]
    assert "is writing" not in away


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--url", "localhost"), "expected http://"),
        (("--url", "http://[::1"), "expected http://"),
        (("--url", "http://localhost:80000"), "expected http://"),
        (("--user", ""), "user_id is ''"),
        (("--url", "http://127.0.0.1:1", "--database", "x"), "settings are the server's"),
        (("--url", "http://127.0.0.1:1"), "does not answer"),
        (("--thread", "nowhere"), "nowhere"),
        (("--agent", "eve"), "Unknown agent 'eve'; the agents are: ada"),
    ],
)
async def test_what_cannot_be_is_told_in_one_line(
    segue: Segue, tmp_path: Path, args: tuple[str, ...], words: str
) -> None:
    """Before anybody has typed anything."""
    write_config(tmp_path)
    # In a thread: the command has a loop of its own.
    result = await asyncio.to_thread(segue, "chat", *args)
    assert result.exit_code in {1, 2}
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert words in line


@asynccontextmanager
async def at_terminal(
    folder: Path, *args: str
) -> AsyncIterator[tuple["_Terminal", asyncio.subprocess.Process]]:
    """Run `segue` at a terminal of its own until the block is left."""
    main, end = pty.openpty()
    termios.tcsetwinsize(main, (24, 60))
    terminal = _Terminal(main)
    process = await asyncio.create_subprocess_exec(
        *SEGUE,
        *args,
        cwd=folder,
        env={**environment(), **TERMINAL},
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(end)
    try:
        yield terminal, process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        terminal.close()


def _own_terminal() -> None:
    """In the new process: what is typed there, Ctrl-C too, is for it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class _Terminal:
    """A person's side of a terminal."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._shown = ""
        self._seen = 0
        self._more = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._before = termios.tcgetattr(number)
        self._loop.add_reader(number, self._read)

    def is_as_before(self) -> bool:
        """Whether it is set as it was before anything ran in it."""
        return termios.tcgetattr(self._number) == self._before

    def type(self, text: str) -> None:
        os.write(self._number, text.encode())

    async def until(self, text: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while text not in self._shown[self._seen :]:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            pytest.fail(f"No {text!r} in {self._shown[self._seen :]!r}")
        self._seen = self._shown.index(text, self._seen) + len(text)

    def close(self) -> None:
        self._loop.remove_reader(self._number)
        os.close(self._number)

    def _read(self) -> None:
        try:
            piece = os.read(self._number, 4096)
        except OSError:  # the program has ended
            self._loop.remove_reader(self._number)
            return
        self._shown += piece.decode(errors="replace")
        self._more.set()
