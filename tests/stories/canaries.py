"""A cast with canaries: words that no user may ever see, in every place that nobody may see.

Each trigger's prompts, what deciders say, and what an agent says to itself hold a word that occurs
nowhere else; whoever finds `CANARY` in front of a user has found a leak.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt

from segue.core.autonomy.decide import Plan
from segue.core.batch import Batch
from segue.core.messages import CONTINUATION_PROMPT
from segue.core.triggers import EVENT_PROMPT, REMINDER_ASK_PROMPT, REMINDER_PROMPT, TriggerType
from segue.runtime.delivery import WebhookTarget
from segue.runtime.planning import DeciderResult
from segue.settings.agents import AgentConfig
from segue.simulate.world import plain_agent, with_graph
from tests.stories.scenes import PATIENCE

CANARY = "zq7canary"
REASON, WORDS = f"{CANARY}_reason", f"{CANARY}_words"
DECISION, PROSE = f"{CANARY}_decision", f"{CANARY}_prose"
GOING_ON = f"{CANARY}_going_on"
# What programs and events bring: prompt, reason, data, and the prompt of a trigger of one's own.
REQUESTED = f"{CANARY}_requested"
REQUEST: dict[str, Any] = {
    "prompt": f"Ask kindly about {REQUESTED}_prompt.",
    "reason": f"{REQUESTED}_reason",
    "data": {f"{REQUESTED}_name": [f"{REQUESTED}_value"]},
}
EVENT_DATA = {"parcel": f"{REQUESTED}_parcel"}
# Fixed texts that only the model reads.
HIDDEN = (REMINDER_PROMPT, REMINDER_ASK_PROMPT, EVENT_PROMPT, "facts, not instructions")

PROMPTS: dict[TriggerType, list[str]] = {
    trigger: [f"Say hello again, kindly {CANARY}_{trigger.value}_{n}." for n in range(2)]
    for trigger in TriggerType
}

Act = str | AIMessage | Callable[[list[BaseMessage]], Any]


async def decider(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> DeciderResult:
    """Wants one follow-up after the other, each for another reason, and talks too much."""
    del batch, earlier
    trigger = list(TriggerType)[facts["consecutive"] % len(TriggerType)]
    return DeciderResult(Plan(trigger, PATIENCE, REASON), REASON, WORDS)


def is_trigger(message: BaseMessage) -> bool:
    """Whether a request ends with the words of a trigger; only a test can know them."""
    hidden = (CANARY, *HIDDEN)
    return isinstance(message, HumanMessage) and any(words in message.text for words in hidden)


class Actor:
    """A model's script: an act for each follow-up, and small talk otherwise."""

    def __init__(self) -> None:
        self.acts: deque[Act] = deque()

    def __call__(self, messages: list[BaseMessage]) -> Any:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            return "That is what I found."
        if last.text == CONTINUATION_PROMPT:
            return "I looked again."
        if is_trigger(last):
            act = self.acts.popleft() if self.acts else "How are things?"
            return act(messages) if callable(act) else act
        if "look into" in last.text:
            return calling("continue_later", {"after_seconds": 5, "reason": GOING_ON})
        return "I am fine."


def calling(tool: str, args: dict[str, Any]) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool, "args": args, "id": f"of-{tool}"}])


def quoting(tool: str, args: Callable[[str], dict[str, Any]]) -> Act:
    """A model that calls a tool with what it was asked."""
    return lambda messages: calling(tool, args(messages[-1].text))


def failing(name: str) -> Act:
    """A model that fails and, as providers do, quotes what it was asked."""

    def fail(messages: list[BaseMessage]) -> Any:
        return type(name, (Exception,), {})(f"cannot answer {[m.text for m in messages]}")

    return fail


def deciding() -> Callable[[list[BaseMessage]], Any]:
    """A model that decides about its own follow-ups: in words, in a call, and in nonsense."""
    args = {"follow_up": True, "trigger": "check_in", "delay_seconds": 60, "reason": DECISION}
    answers: Iterator[Any] = iter(
        [
            calling("decide_follow_up", args),
            AIMessage(PROSE),
            calling("decide_follow_up", {**args, "trigger": DECISION}),
            ValueError(PROSE),
        ]
    )

    def speak(messages: list[BaseMessage]) -> Any:
        is_decision = isinstance(messages[0], SystemMessage) and "You decide" in messages[0].text
        return next(answers, "") if is_decision else "Well done."

    return speak


def asking(state: MessagesState) -> dict[str, Any]:
    """A graph that asks a person before it does anything, and breaks when it goes first."""
    last = state["messages"][-1]
    if is_trigger(last):
        raise ValueError(f"cannot answer {last.text}")
    if "table" in last.text:
        return {"messages": [AIMessage(f"Booked: {interrupt('For eight?')}")]}
    return {"messages": [AIMessage("You are welcome.")]}


def cast(webhook: WebhookTarget) -> list[AgentConfig]:
    """Five agents that all write to the same user."""
    variants = {
        trigger.value: [
            {"name": f"{trigger.value}-{n}", "text": text, "weight": n + 1}
            for n, text in enumerate(texts)
        ]
        for trigger, texts in PROMPTS.items()
    }
    delays = {trigger.value: PATIENCE.total_seconds() for trigger in TriggerType}
    policy = {"cooldown": 0, "max_consecutive": 100, "max_per_day": 10_000, "backoff": 1.0}
    autonomy = {"prompts": variants, "delays": delays, "policy": policy}
    triggers = {"parcel": {"prompt": f"Tell me of {REQUESTED}_trigger.", "delay": "1s"}}
    reminders = {"shelf_life": 1}
    asked = {**autonomy, "decider": "none", "triggers": triggers, "reminders": reminders}
    hook = {"url": webhook.url, "secret": webhook.secret, "all_replies": True}
    own = {"decider": "tests.stories.canaries:decider"}
    builder = StateGraph(MessagesState)
    builder.add_node("asking", asking)
    builder.add_edge(BEGIN, "asking")
    waiter = plain_agent("waiter", autonomy=autonomy, webhook=hook)
    return [
        plain_agent(
            "guide",
            autonomy={**autonomy, **own},
            webhook=hook,
            continuations=2,
            may_ask=("atlas",),
            memory={"embedder": "local"},
        ),
        plain_agent("coach", autonomy={**autonomy, "decider": "model"}, webhook=hook),
        with_graph(waiter, builder.compile()),
        plain_agent("atlas", autonomy=autonomy, webhook=hook),
        plain_agent("clerk", autonomy=asked, webhook=hook, memory={"embedder": "local"}),
    ]
