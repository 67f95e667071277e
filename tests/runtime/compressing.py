"""What the tests of compression share: a small window, long talks, and a model that sums up."""

import json
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage

from segue.agent.scripted import Line, ScriptedChatModel
from segue.journal.effects import Effect
from segue.journal.records import Summary
from segue.runtime.compressor import COMPRESS
from segue.settings.agents import AgentConfig
from segue.simulate.world import World, plain_agent

# Of these tokens, 2,400 are the trigger and 1,200 the target, if nothing else is set.
WINDOW = 4_000
# What one exchange costs at most.
EXCHANGE = 230


def small_agent(id: str = "guide", **compression: Any) -> AgentConfig:
    """An agent with a small window that never speaks first."""
    return plain_agent(
        id,
        context_tokens=WINDOW,
        autonomy={"enabled": False},
        compression={"keep": 2, **compression},
    )


def is_summary(request: list[BaseMessage]) -> bool:
    return isinstance(request[0], SystemMessage) and "You keep the summary" in request[0].text


def faithful(given: dict[str, Any]) -> str:
    """A summary that has all that it was given, word for word."""
    said = [f"{line['from']} said: {line['text']}" for line in given["conversation"]]
    return "\n".join(filter(None, [given["summary"], *said]))


class Speaker:
    """The script of a model that answers shortly, and sums up line by line, then faithfully."""

    def __init__(self, *summaries: Line) -> None:
        self._left = list(summaries)
        # What it was given to sum up.
        self.asked: list[dict[str, Any]] = []

    def __call__(self, messages: list[BaseMessage]) -> Any:
        if not is_summary(messages):
            return "I see."
        self.asked.append(json.loads(messages[-1].text))
        line = self._left.pop(0) if self._left else faithful(self.asked[-1])
        return line(messages) if callable(line) else line

    @property
    def model(self) -> ScriptedChatModel:
        return ScriptedChatModel(script=self)


def words(number: int) -> str:
    """Something to say that costs about 200 tokens, and is unlike all else."""
    return f"Fact {number} is the number {number * 7919}." + " It is so." * 78


async def talk(world: World, thread: str, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await world.say(thread, words(number))


async def summaries(world: World, thread: str) -> list[Summary]:
    """The newest summary and those before it, newest first; they are gone from the thread."""
    found: list[Summary] = []
    while newest := await world.journal.summaries.find(thread):
        found.append(newest)
        await world.journal.summaries.undo(newest)
    return found


async def effects(world: World, thread: str) -> list[Effect]:
    """The wishes to compress a thread, newest first."""
    found = await world.journal.effects.list_of(thread, limit=1_000)
    return [effect for effect in found if effect.kind == COMPRESS]
