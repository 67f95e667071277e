"""Graphs as others write them: they know nothing of Segue. Their models follow a plan, and each has
a tool or a node `hold`, which notes that it ran, and which a test can let hang.
"""

import operator
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from deepagents import create_deep_agent
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, TodoListMiddleware
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

from segue.agent.scripted import ScriptedChatModel

HELD = "SEGUE_TEST_HELD"
HANGS = "hangs"

Call = tuple[str, dict[str, Any]]


@tool
def hold() -> str:
    """Note that this ran; hang while there is a file that says so."""
    if (folder := os.environ.get(HELD)) is None:
        return "held"
    with (Path(folder) / "held.log").open("a") as log:
        log.write("held\n")
    while (Path(folder) / HANGS).exists():
        time.sleep(0.05)
    return "held"


def model(plans: Mapping[str, Sequence[Call]], answer: Callable[[list[str]], str]) -> Any:
    """A model that makes the calls planned for the last human message, one by one."""

    def script(messages: list[BaseMessage]) -> AIMessage:
        asked = max(n for n, message in enumerate(messages) if isinstance(message, HumanMessage))
        done = [str(m.text) for m in messages[asked:] if isinstance(m, ToolMessage)]
        planned = plans.get(messages[asked].text, plans.get("*", ()))
        if len(done) < len(planned):
            name, args = planned[len(done)]
            call = {"name": name, "args": args, "id": f"{name}-{asked}-{len(done)}"}
            return AIMessage("", tool_calls=[call])
        return AIMessage(answer(done))

    return ScriptedChatModel(script=script)


def deep_agent() -> Any:
    """Writes a file and a list of tasks in the first turn, and reads the file in all others."""
    todo = {"content": "Buy flour", "status": "pending"}
    read: Call = ("read_file", {"file_path": "/notes.txt"})
    plans: dict[str, Sequence[Call]] = {
        "one": [
            ("write_file", {"file_path": "/notes.txt", "content": "flour"}),
            ("write_todos", {"todos": [todo]}),
        ],
        "two": [
            ("edit_file", {"file_path": "/notes.txt", "old_string": "flour", "new_string": "oil"}),
            ("hold", {}),
            read,
        ],
        "*": [read],
    }

    def answer(done: list[str]) -> str:
        return "oil" if "oil" in done[-1] else "flour" if "flour" in done[-1] else "nothing"

    return create_deep_agent(model(plans, answer), [hold], middleware=[TodoListMiddleware()])


def supervisor() -> Any:
    """A supervisor that lets an agent do the second turn's work."""
    # The result of the handover is the first of its results.
    cooking: dict[str, Sequence[Call]] = {"two": [("handover", {}), ("hold", {})]}
    cook = create_agent(model(cooking, lambda done: f"cooked {done[-1]}"), [hold], name="cook")
    plans: dict[str, Sequence[Call]] = {"two": [("transfer_to_cook", {})]}
    chief = model(plans, lambda done: f"served {len(done)}")
    return create_supervisor([cook], model=chief).compile()


def swarm() -> Any:
    """The first turn hands the conversation over to Bob, who keeps it."""
    to_bob = create_handoff_tool(agent_name="bob")
    alice = create_agent(
        model({"one": [("transfer_to_bob", {})]}, lambda _: "alice"), [to_bob], name="alice"
    )
    bob = create_agent(model({"two": [("hold", {})]}, lambda _: "bob"), [hold], name="bob")
    return create_swarm([alice, bob], default_active_agent="alice").compile()


@task
def held() -> str:
    return str(hold.invoke({}))


@entrypoint()
def workflow(inputs: list[BaseMessage], *, previous: int | None = None) -> Any:
    """Counts its turns."""
    if inputs[-1].text == "two":
        held().result()
    count = (previous or 0) + 1
    return entrypoint.final(value=AIMessage(f"turn {count}"), save=count)


class Notes(MessagesState):
    notes: Annotated[list[str], operator.add]


def _note(state: Notes) -> dict[str, Any]:
    return {"notes": [state["messages"][-1].text[:5]]}


def _reply(state: Notes) -> dict[str, Any]:
    return {"messages": [AIMessage(f"{len(state['notes'])} notes")]}


def subgraphs() -> Any:
    """A graph inside a graph writes to the state that both have."""
    inner = StateGraph(Notes)
    inner.add_node("note", lambda state: {"notes": [state["messages"][-1].text[:5]]})
    inner.add_edge(START, "note")
    compiled = inner.compile()

    def outer_note(state: Notes) -> dict[str, Any]:
        found = compiled.invoke({"messages": state["messages"], "notes": []})
        return {"notes": found["notes"]}

    outer = StateGraph(Notes)
    outer.add_node("outer_note", outer_note)
    outer.add_node("as_node", create_agent(model({}, lambda _: "inside"), name="inner"))
    outer.add_node("reply", _reply)
    outer.add_edge(START, "outer_note")
    outer.add_edge("outer_note", "as_node")
    outer.add_edge("as_node", "reply")
    return outer.compile()


def with_checkpointer() -> Any:
    """A graph that brings a checkpointer."""
    builder = StateGraph(Notes)
    builder.add_sequence([_note, _reply])
    builder.add_edge(START, "_note")
    return builder.compile(checkpointer=InMemorySaver())


def commands() -> Any:
    """Each node says where to go on."""

    def route(state: Notes) -> Command[Any]:
        return Command(goto="reply", update={"notes": [state["messages"][-1].text[:5]]})

    builder = StateGraph(Notes)
    builder.add_node("route", route, destinations=("reply", END))
    builder.add_node("reply", _reply)
    builder.add_edge(START, "route")
    return builder.compile()


def sends() -> Any:
    """Three nodes at once, each with a state of its own."""

    class One(MessagesState):
        word: str

    def work(state: One) -> dict[str, Any]:
        return {"notes": [state["word"]]}

    def fan_out(state: Notes) -> list[Send]:
        del state
        return [Send("work", {"word": word}) for word in ("a", "b", "c")]

    builder = StateGraph(Notes)
    builder.add_node("work", work)
    builder.add_node("reply", _reply)
    builder.add_conditional_edges(START, fan_out, ["work"])
    builder.add_edge("work", "reply")
    return builder.compile()


def custom_events() -> Any:
    """Reports what it does on the stream."""

    def report(state: Notes) -> dict[str, Any]:
        get_stream_writer()({"step": len(state["notes"]) + 1})
        return _note(state)

    builder = StateGraph(Notes)
    builder.add_sequence([report, _reply])
    builder.add_edge(START, "report")
    return builder.compile()


def interrupts() -> Any:
    """Asks two questions at once, and notes the answers."""
    builder = StateGraph(Notes)
    builder.add_node("size", lambda _: {"notes": [interrupt("Which size?")]})
    builder.add_node("crust", lambda _: {"notes": [interrupt("Which crust?")]})
    builder.add_node("reply", _reply)
    for name in ("size", "crust"):
        builder.add_edge(START, name)
    builder.add_edge(["size", "crust"], "reply")
    return builder.compile()


class Counted(AgentState[Any]):
    calls: Annotated[int, operator.add]


class CountCalls(AgentMiddleware[Counted, Any, Any]):
    """Middleware with state of its own, and a tool that writes to it."""

    state_schema = Counted

    def after_model(self, state: Counted, runtime: Any) -> dict[str, Any]:
        del state, runtime
        return {"calls": 1}


@tool
def add_ten(runtime: ToolRuntime[Any, Any]) -> Command[Any]:
    """Count ten calls more."""
    result = ToolMessage("ten more", tool_call_id=runtime.tool_call_id)
    return Command(update={"calls": 10, "messages": [result]})


def with_middleware() -> Any:
    """`create_agent` with middleware: two model calls and ten more in the first turn."""
    said = model({"one": [("add_ten", {})]}, lambda _: "fine")
    return create_agent(said, [add_ten], middleware=[CountCalls()])
