"""Who plays: agents with scripted models and tools whose work can be counted.

What an agent does is in the user's words, `Question q7: three.`, so that a turn that is tried
again does the same; how long it takes is up to the dice. Each tool writes to the ledger when it
begins, with a call id that no other call has.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Annotated, Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall
from langchain_core.tools import BaseTool, InjectedToolCallId, tool

from segue.agent.current import current_run
from segue.agent.scripted import ScriptedChatModel
from segue.core.messages import CONTINUATION_PROMPT
from segue.core.triggers import FIXED_PROMPTS
from segue.runtime.run import Run
from segue.settings.agents import AgentConfig
from tests.chaos.ledger import Ledger, ToolRun

Rounds = Sequence[Sequence[str]]

MAX_CONSECUTIVE: Final = 2
BEGAN_AT: Final = "began_at"
# What a user may ask of each agent: rounds of calls that are made at once, before the answer.
PLANS: Final[Mapping[str, Mapping[str, Rounds]]] = {
    "guide": {
        "plain": (),
        "one": (("note",),),
        "three": (("note", "slow", "flaky"),),
        "rounds": (("note", "flaky"), ("slow", "note")),
        "broken": (),
    },
    "planner": {"twice": (("note", "continue_later"),), "plain": ()},
    "host": {"ask": (("ask_agent", "note"),), "plain": ()},
    "scholar": {"one": (("note",),)},
}
BROKEN: Final = "broken"
ASKED: Final = "scholar"
_QUESTION: Final = re.compile(r"Question (\S+): (\w+)\.")
_FOLLOW_UP: Final = (("note",),)
_LATER_SECONDS: Final = 0.3


def question(token: str, plan: str) -> str:
    """The words that make an agent follow a plan."""
    return f"Question {token}: {plan}."


def planned_rounds(agent: str, text: str) -> int:
    """How often an agent calls tools, at most, before it answers to a text."""
    found = _QUESTION.search(text)
    return len(PLANS[agent][found[2]]) if found else len(_FOLLOW_UP)


def token_of(text: str) -> str | None:
    """Whose question, or whose answer, a text is."""
    found = re.search(r"Question (\S+):|\bto (q\S+) ", text)
    return None if found is None else found[1] or found[2]


@dataclass
class Script:
    """What a model says to a request, after a little while."""

    agent: str
    life: int
    random: Random
    _numbers: "count[int]" = field(default_factory=count)

    async def __call__(self, messages: list[BaseMessage]) -> AIMessage:
        await asyncio.sleep(self.random.uniform(0, 0.25))
        humans = [n for n, m in enumerate(messages) if isinstance(m, HumanMessage)]
        asked = messages[humans[-1]].text
        rounds = sum(
            isinstance(m, AIMessage) and bool(m.tool_calls) for m in messages[humans[-1] :]
        )
        token, plan = self._question(messages)
        calls: Rounds
        if asked.startswith(tuple(FIXED_PROMPTS.values())):
            calls = _FOLLOW_UP if len(humans) % 2 else ()
            closing = f"Still there? I have more to {token} if you like."
        elif asked == CONTINUATION_PROMPT:
            calls, closing = _FOLLOW_UP, f"That was all to {token} for now."
        elif plan == BROKEN:
            raise ValueError("The model is broken.")
        else:
            calls, closing = PLANS[self.agent][plan], f"This is my answer to {token} as I know it."
        if rounds < len(calls):
            return self._call(calls[rounds], token)
        return AIMessage(closing)

    def _question(self, messages: list[BaseMessage]) -> tuple[str, str]:
        texts = [m.text for m in messages if isinstance(m, HumanMessage)]
        found = [match for text in texts for match in _QUESTION.finditer(text)]
        return (found[-1][1], found[-1][2]) if found else ("nobody", "plain")

    def _call(self, names: Sequence[str], token: str) -> AIMessage:
        words = f"I look into it to {token} now." if self.random.random() < 0.5 else ""
        calls = [self._one_call(name, token) for name in names]
        return AIMessage(words, tool_calls=calls)

    def _one_call(self, name: str, token: str) -> ToolCall:
        args: dict[str, Any] = {"text": token}
        if name == "continue_later":
            args = {"after_seconds": _LATER_SECONDS, "reason": f"More to {token}."}
        elif name == "ask_agent":
            args = {"name": ASKED, "text": question(f"{token}-asked", "one")}
        return ToolCall(
            name=name, args=args, id=f"call-{self.life}-{self.agent}-{next(self._numbers)}"
        )


def agents(ledger: Ledger, random: Random, now: Callable[[], datetime]) -> tuple[AgentConfig, ...]:
    """All agents: quick to follow up, and never tired of a user."""
    tools = _tools(ledger, random, now)
    extras: Mapping[str, Mapping[str, Any]] = {
        "planner": {"continuations": 2},
        "host": {"may_ask": (ASKED,)},
    }
    return tuple(
        AgentConfig.parse(
            {
                "id": name,
                "model": "scripted",
                "memory": {"enabled": False},
                "tools": tools,
                "autonomy": _autonomy(),
                **extras.get(name, {}),
            },
            f"agent {name!r}",
        )
        for name in PLANS
    )


def models(life: int, random: Random) -> dict[str, ScriptedChatModel]:
    return {
        name: ScriptedChatModel(
            script=Script(name, life, random), delay=random.uniform(0.005, 0.03), keep=0
        )
        for name in PLANS
    }


def _autonomy() -> dict[str, Any]:
    second = timedelta(seconds=1)
    triggers = ("question_unanswered", "waiting_for_decision", "task_incomplete", "check_in")
    return {
        "delays": dict.fromkeys(triggers, second),
        "policy": {
            "max_consecutive": MAX_CONSECUTIVE,
            "max_per_day": 1_000_000,
            "quiet_hours": None,
            "cooldown": timedelta(0),
            "typing_hold": second / 2,
            "talking_hold": second,
            "min_delay": second / 10,
            "backoff": 1.2,
        },
    }


def _tools(ledger: Ledger, random: Random, now: Callable[[], datetime]) -> tuple[BaseTool, ...]:
    def begin(name: str, call_id: str) -> None:
        run = current_run()
        assert run is not None
        ledger.note_tool(
            ToolRun(
                batch=run.batch.id,
                call_id=call_id,
                tool=name,
                run_began_at=run.notes[BEGAN_AT],
                began_at=now(),
                knew_result=_knows_result(run, call_id),
            )
        )

    @tool
    async def note(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Write something down."""
        begin("note", tool_call_id)
        await asyncio.sleep(random.uniform(0, 0.05))
        return f"Noted {text}."

    @tool
    async def slow(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Do something that takes its time."""
        begin("slow", tool_call_id)
        await asyncio.sleep(random.uniform(0.1, 0.5))
        return f"Took some time for {text}."

    @tool
    async def flaky(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Do something that fails now and then."""
        begin("flaky", tool_call_id)
        if random.random() < 0.4:
            raise OSError("It failed this time.")
        return f"It worked for {text}."

    return note, slow, flaky


def _knows_result(run: Run, call_id: str) -> bool:
    exchanges = run.batch.pairing.exchanges
    return any(e.call.id == call_id and e.result is not None for e in exchanges)
