"""LangGraph apps of the old kind, with the official savers: what they leave behind is migrated."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from segue.agent.scripted import Line, ScriptedChatModel

Saver = BaseCheckpointSaver[Any]
Input = str | Sequence[BaseMessage]


class OutageError(Exception):
    """What ends a run in the middle."""


def calling(*whats: str) -> AIMessage:
    calls = [
        {"name": "look_up", "args": {"what": what}, "id": f"call_{n}"}
        for n, what in enumerate(whats)
    ]
    return AIMessage("", tool_calls=calls)


@dataclass
class App:
    """An agent with a tool, on one saver."""

    saver: Saver
    # The tool finds everything but this.
    missing: str | None = None

    def say(self, thread: str, words: Input, *script: Line, **metadata: str) -> None:
        """One run of the graph, which may break off with an `OutageError`."""
        config = self._config(thread, metadata)
        self._graph(script).invoke({"messages": _given(words)}, config)

    async def asay(self, thread: str, words: Input, *script: Line, **metadata: str) -> None:
        config = self._config(thread, metadata)
        await self._graph(script).ainvoke({"messages": _given(words)}, config)

    def break_off(self, thread: str, words: Input, *script: Line, **metadata: str) -> None:
        """A run that dies in its tool when it looks for `nothing`, with its calls open."""
        self.missing = "nothing"
        try:
            self.say(thread, words, *script, **metadata)
        except OutageError:
            self.missing = None
            return
        raise AssertionError("It did not break off.")

    def go_on(self, thread: str, *script: Line) -> None:
        """A run that was cut off goes on."""
        self._graph(script).invoke(None, self._config(thread, {}))

    def messages(self, thread: str) -> list[BaseMessage]:
        state = self._graph(()).get_state(self._config(thread, {}))
        return list(state.values["messages"])

    def first_seen(self, thread: str) -> dict[str, datetime]:
        """When each message was first part of the state, as LangGraph tells it."""
        states = [*self._graph(()).get_state_history(self._config(thread, {}))]
        seen: dict[str, datetime] = {}
        for state in reversed(states):
            for message in state.values.get("messages", ()):
                seen.setdefault(message.id, datetime.fromisoformat(state.created_at))
        return seen

    def _graph(self, script: Sequence[Line]) -> Any:
        model = ScriptedChatModel(script=list(script))

        def look_up(what: str) -> str:
            """Look something up."""
            if what == self.missing:
                raise OutageError
            return f"found {what}"

        return create_agent(model, [look_up], checkpointer=self.saver)

    @staticmethod
    def _config(thread: str, metadata: dict[str, str]) -> RunnableConfig:
        # One tool after the other: of two at once, a failure may lose what the other found.
        named = {"thread_id": thread}
        return {"configurable": named, "metadata": metadata, "max_concurrency": 1}


def _given(words: Input) -> Any:
    return [("user", words)] if isinstance(words, str) else list(words)


@contextmanager
def sqlite_app(path: Path) -> Iterator[App]:
    with SqliteSaver.from_conn_string(str(path)) as saver:
        yield App(saver)


@contextmanager
def postgres_app(address: str) -> Iterator[App]:
    with PostgresSaver.from_conn_string(address) as saver:
        saver.setup()
        yield App(saver)


def tell_old_stories(app: App) -> None:
    """Two users' threads: tools, an old marker, and runs that broke off in a tool."""
    app.say("trip", "Hello!", "Hi Ann!", user_id="ann")
    app.say("trip", "[AUTONOMOUS_FOLLOWUP: check_in]", "Still there?", user_id="ann")
    app.say("trip", "Rome, please.", calling("Rome"), "Rome it is.", user_id="ann")
    app.break_off("order", "Find both.", calling("a", "nothing"), user_id="bob")
    app.say("order", "Hello?", "Yes?", user_id="bob")
    app.break_off("cut", "Find these.", calling("b", "nothing"), user_id="bob")
