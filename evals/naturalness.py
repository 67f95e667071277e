"""Whether follow-ups sound natural: `python -m evals.naturalness`.

The local model continues the same conversations in two ways: with the content marker of older
systems, and with Segue's natural prompts. A detector counts the replies that mention the trigger or
the system. It matches phrases, and the model is tiny: only the difference between the two counts.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import sqrt
from types import MappingProxyType
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from bench.table import print_columns, progress
from segue import TriggerType, synthetic_message
from segue.agent.local import LocalChatModel
from segue.core.metadata import strip_metadata
from segue.core.speech.guard import Machinery, find_machinery
from segue.settings.agents import AgentConfig

# Not the seeds with which the detector's phrases were collected.
SEEDS: Final = (11, 12)
MAX_SECONDS: Final = 7 * 60
EXAMPLES: Final = 6

# The user starts, the agent writes last, then there is silence.
CONVERSATIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "pizza night": (
            "I'm planning a pizza night with three friends on Friday.",
            "That sounds like fun! What do they like on their pizza?",
            "Two like mushrooms, and Sam wants pepperoni.",
            "Then half mushrooms, half pepperoni could make everybody happy.",
        ),
        "small talk": (
            "Hey, how are you?",
            "I'm well, thank you! How was your day?",
            "A bit long, but okay. I went for a run by the river in the evening.",
            "A run by the river sounds like a good end to a long day.",
        ),
        "programming language": (
            "I'm thinking about learning a new programming language.",
            "Nice! Which one do you have in mind, and what would you build with it?",
        ),
        "project report": (
            "I need to write a project report by Friday.",
            "What is it about, and how far are you?",
            "It's about the new solar roof. I only have a title so far.",
            "A title is a start. Shall we sketch the outline together?",
        ),
        "react or vue": (
            "Should I use React or Vue for my new shop?",
            "Both work well. Do you know one of them already?",
            "A little Vue, from a course.",
            "Then Vue may be the quicker way. Which one feels better to you?",
        ),
        "vacation": (
            "We'd like to go to Italy in September, but not to a big city.",
            "Umbria is quiet and lovely then. Do you prefer hills or the sea?",
            "The sea, and good food of course.",
            "Then look at the Cilento coast. Shall I suggest a few villages?",
        ),
        "sick cat": (
            "My cat hasn't eaten since yesterday.",
            "I'm sorry to hear that. Is she drinking, and does she seem to be in pain?",
            "She drinks a little and sleeps a lot.",
            "If she doesn't eat by tonight, I'd call the vet.",
        ),
        "job interview": (
            "I have an interview at the bank tomorrow and I'm so nervous.",
            "That's understandable. What worries you most?",
            "That they ask about the gap in my résumé.",
            "Let's prepare two honest sentences about it. What did you do in that time?",
        ),
        "birthday gift": (
            "What can I give my father for his 70th birthday? He has everything.",
            "Maybe time instead of things: a day trip, or a photo book?",
            "A photo book could be nice. I have hundreds of pictures.",
            "Then start with ten pictures that tell a story. Do you have a favourite?",
        ),
        "moving": (
            "We move on the 30th and I haven't packed a single box.",
            "Then let's start small. Which room do you use least?",
            "The study, mostly books.",
            "Books first, in small boxes. Can you do three boxes tonight?",
        ),
        "guitar": (
            "I've been trying to learn the F chord for weeks.",
            "Everybody hates that one! Have you tried the small version with four strings?",
            "No, how does that go?",
            "You leave out the two lowest strings. Try it slowly, and tell me how it sounds.",
        ),
        "train or plane": (
            "Berlin to Vienna: would you take the train or the plane?",
            "The night train is comfortable, the plane is quicker. What matters more to you?",
            "Price, to be honest.",
            "Then compare both for a Tuesday. Shall we decide when you have the prices?",
        ),
        "sourdough": (
            "My sourdough bread is always flat. What am I doing wrong?",
            "Maybe it rises too long. How warm is your kitchen?",
            "About 26 degrees.",
            "That's warm. Try four hours instead of eight, and have a look at it in between.",
        ),
    }
)

Ask = Callable[[TriggerType], BaseMessage]
ARMS: Final[Mapping[str, Ask]] = MappingProxyType(
    {
        "marker in the content": lambda t: HumanMessage(f"[AUTONOMOUS_FOLLOWUP: {t.value}]"),
        "natural prompt": synthetic_message,
    }
)


@dataclass(frozen=True)
class Sample:
    arm: str
    conversation: str
    trigger: TriggerType
    reply: str
    leak: Machinery | None


def request_of(conversation: tuple[str, ...], question: BaseMessage) -> list[BaseMessage]:
    """The request: the default system prompt, the conversation, and a trigger's prompt."""
    messages: list[BaseMessage] = [SystemMessage(AgentConfig(id="eval").system_prompt)]
    for index, text in enumerate(conversation):
        messages.append(AIMessage(text) if index % 2 else HumanMessage(text))
    return strip_metadata([*messages, question])


async def sample() -> list[Sample]:
    """Alternates the arms on every case, so that a run that is cut short stays fair."""
    samples: list[Sample] = []
    began = time.monotonic()
    for seed, name in product(SEEDS, CONVERSATIONS):
        if time.monotonic() - began > MAX_SECONDS:
            progress(f"time limit reached after {len(samples)} samples")
            break
        progress(f"seed {seed}, {name}")
        model = LocalChatModel(temperature=0.7, seed=seed, max_tokens=40)
        for trigger, (arm, ask) in product(TriggerType, ARMS.items()):
            reply = await model.ainvoke(request_of(CONVERSATIONS[name], ask(trigger)))
            leak = find_machinery(reply.text)
            samples.append(Sample(arm, name, trigger, reply.text, leak))
    return samples


def interval(hits: int, of: int) -> str:
    """The 95 % confidence interval of the rate (Wilson)."""
    z, share = 1.96, hits / of
    middle = share + z * z / (2 * of)
    spread = z * sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low, high = ((middle + sign * spread) / (1 + z * z / of) for sign in (-1, 1))
    return f"{low:.1%} to {high:.1%}"


def rates(samples: list[Sample]) -> Iterator[tuple[str, ...]]:
    for arm in ARMS:
        mine = [s for s in samples if s.arm == arm]
        leaking = [s for s in mine if s.leak]
        share = f"{len(leaking) / len(mine):.1%}"
        yield (arm, str(len(mine)), str(len(leaking)), share, interval(len(leaking), len(mine)))


def by_trigger(samples: list[Sample]) -> Iterator[tuple[str, ...]]:
    for trigger in TriggerType:
        counts = Counter(s.arm for s in samples if s.trigger is trigger and s.leak)
        yield (trigger.value, *(str(counts[arm]) for arm in ARMS))


def by_kind(samples: list[Sample]) -> Iterator[tuple[str, ...]]:
    """A reply counts by the first leak in it."""
    counts = Counter((s.arm, s.leak.kind) for s in samples if s.leak)
    for kind in sorted({kind for _, kind in counts}):
        yield (kind, *(str(counts[arm, kind]) for arm in ARMS))


def examples(samples: list[Sample]) -> Iterator[tuple[str, ...]]:
    for arm in ARMS:
        leaking = [(s, s.leak) for s in samples if s.arm == arm and s.leak]
        # Spread over the run, not only from the first conversation.
        for s, leak in leaking[:: max(1, len(leaking) // EXAMPLES)][:EXAMPLES]:
            text = " ".join(s.reply.split()).replace("|", "\\|")
            yield (arm, s.conversation, leak.kind, text)


async def main() -> None:
    began = time.monotonic()
    samples = await sample()
    taken = f"{time.monotonic() - began:.0f} s"
    title = f"Replies that mention the trigger, {len(CONVERSATIONS)} conversations, {taken}"
    shown = ("follow-up by", "samples", "leaks", "rate", "95 % interval")
    print_columns(title, shown, list(rates(samples)))
    print_columns("Leaks by trigger", ("trigger", *ARMS), list(by_trigger(samples)))
    print_columns("Leaks by kind", ("kind", *ARMS), list(by_kind(samples)))
    columns = ("follow-up by", "conversation", "leak", "reply")
    print_columns("Examples of leaks", columns, list(examples(samples)))


if __name__ == "__main__":
    asyncio.run(main())
