"""What the pure core costs: `python -m bench.core`.

Per message, unless a row says otherwise. The requirement allows 5 ms (5,000 µs) per message; the
aim is 50 µs.
"""

import uuid
from collections.abc import Iterator

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately, trim_messages

from bench.table import Row, micros, print_table
from segue import (
    Batch,
    SnowflakeGenerator,
    build_context,
    group_batches,
    is_synthetic,
    memory_query,
    settle,
    stamp,
    strip_metadata,
    synthetic_message,
    visible_messages,
)

BUDGET = 4_000
PREFIX = "[AUTONOMOUS_FOLLOWUP:"


def conversation(messages: int, generator: SnowflakeGenerator) -> list[BaseMessage]:
    """Batches of five messages: a question, two parallel calls with results, a reply."""
    history: list[BaseMessage] = []
    while len(history) < messages:
        calls = [{"name": "find", "args": {"query": "open today"}, "id": i} for i in "ab"]
        history += stamp(
            [
                HumanMessage("Which of the two museums near the station is open today?"),
                AIMessage("", tool_calls=calls),
                ToolMessage("open from ten to six", tool_call_id="a"),
                ToolMessage("closed on Mondays", tool_call_id="b"),
                AIMessage("The first one is open until six; the second is closed on Mondays."),
            ],
            generator,
        )
    return history


def marked(messages: list[BaseMessage]) -> list[BaseMessage]:
    """The peer's filter: look at the text of each message."""
    return [
        m
        for m in messages
        if m.type in ("human", "ai")
        and not (isinstance(m.content, str) and m.content.startswith(PREFIX))
    ]


def per_message(generator: SnowflakeGenerator) -> list[Row]:
    history = conversation(10_000, generator)
    triggers = [m for _ in range(1_000) for m in stamp([synthetic_message("check_in")], generator)]
    mixed = history + triggers
    trigger = triggers[0]
    cycle = [HumanMessage("hello"), AIMessage("hi")]
    [broken] = group_batches(stamp([HumanMessage("hi"), AIMessage("", tool_calls=[])], generator))
    bare = micros(lambda: HumanMessage("Continue our conversation naturally."))
    return [
        Row(
            "synthetic_message",
            micros(lambda: synthetic_message("check_in")),
            "HumanMessage()",
            bare,
        ),
        Row(
            "create + stamp",
            micros(lambda: stamp([synthetic_message("check_in")], generator)),
            "HumanMessage()",
            bare,
        ),
        Row("stamp, a batch of two", micros(lambda: stamp(cycle, generator), units=2)),
        Row(
            "is_synthetic",
            micros(lambda: is_synthetic(trigger)),
            "startswith",
            micros(lambda: isinstance(trigger.content, str) and trigger.content.startswith(PREFIX)),
        ),
        Row(
            f"visible_messages, {len(mixed):,}",
            micros(lambda: visible_messages(mixed), units=len(mixed)),
            "by content",
            micros(lambda: marked(mixed), units=len(mixed)),
        ),
        Row(f"strip_metadata, {len(mixed):,}", micros(lambda: strip_metadata(mixed), len(mixed))),
        Row(
            f"group_batches, {len(history):,}", micros(lambda: group_batches(history), len(history))
        ),
        Row("settle, one batch", micros(lambda: settle(broken))),
        Row("memory_query, 1,000 triggers back", micros(lambda: memory_query(mixed))),
        Row("SnowflakeGenerator.next", micros(generator.next), "uuid4", micros(uuid.uuid4)),
    ]


def per_context(generator: SnowflakeGenerator) -> list[Row]:
    rows = []
    for size in (100, 1_000, 10_000):
        history = conversation(size, generator)
        batches = group_batches(history)[::-1]

        def newest_first(batches: list[Batch] = batches) -> Iterator[Batch]:
            # Rebuilt each time: a batch remembers its state once it was asked for it.
            return (Batch(batch.id, batch.messages) for batch in batches)

        trimmed = micros(
            lambda history=history: trim_messages(  # type: ignore[misc]  # binds the loop's list
                history,
                max_tokens=BUDGET,
                token_counter=count_tokens_approximately,
                start_on="human",
            ),
            rounds=3,
        )
        lazily = micros(lambda: build_context(newest_first(), max_tokens=BUDGET))
        eagerly = micros(lambda history=history: build_context(history, max_tokens=BUDGET))  # type: ignore[misc]  # same
        rows += [
            Row(
                f"build_context, newest-first batches of {size:,}", lazily, "trim_messages", trimmed
            ),
            Row(f"build_context, list of {size:,}", eagerly, "trim_messages", trimmed),
        ]
    return rows


def main() -> None:
    generator = SnowflakeGenerator(node=1)
    print_table("The core, per message", per_message(generator))
    print_table(f"One context with a budget of {BUDGET:,} tokens", per_context(generator))


if __name__ == "__main__":
    main()
