"""How well memories are found: `python -m evals.retrieval`.

155 questions of five people to the 323 messages that they once wrote, all of them in one store, by
the path that a turn takes: `memory_query`, `MemoryBook`, and the journal on both databases. R@k is
the share of questions with the answer's memory among the first k.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from bench.table import print_columns, progress
from segue import SnowflakeGenerator, memory_query, synthetic_message, user_message
from segue.agent.config import MemoryConfig
from segue.agent.embedders import Embedder, load_embedder
from segue.agent.memory import MemoryBook
from segue.core.triggers import TriggerType
from segue.journal.ports import Journal
from segue.journal.sqlite import SqliteJournal

AGENT = "assistant"
DEPTHS = (1, 5, 10)
WEIGHTS = tuple(n / 10 for n in range(11))
NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)

Ranking = dict[str, list[str]]


@dataclass(frozen=True)
class Question:
    id: str
    user: str
    text: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Data:
    """What each person once wrote, by id, and what they ask later."""

    messages: dict[str, dict[str, str]]
    questions: list[Question]


@dataclass(frozen=True)
class Report:
    """One database, one embedder. `same` counts rankings that a trigger did not change."""

    ranking: Ranking
    recalls: dict[str, list[float]]
    by_weight: dict[float, list[float]]
    same: float
    foreign: float


class Remembering:
    """An embedder that embeds each text once, since an eval asks the same again and again."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dimension = embedder.name, embedder.dimension
        self.threshold = embedder.threshold
        self._embedder = embedder
        self._known: dict[str, list[float]] = {}

    async def embed_query(self, text: str) -> list[float]:
        if text not in self._known:
            self._known[text] = await self._embedder.embed_query(text)
        return self._known[text]

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        for text in texts:
            if text not in self._known:
                [self._known[text]] = await self._embedder.embed_documents([text])
        return [self._known[text] for text in texts]


def find_data() -> Path | None:
    """The folder with the data, if it is there: `SEGUE_DATA`, or beside the project."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SEGUE_DATA", beside)) / "bfcl_memory"
    return folder if (folder / "queries.jsonl").is_file() else None


def load_data(folder: Path) -> Data:
    def lines(name: str) -> list[dict[str, Any]]:
        text = (folder / name).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    messages: dict[str, dict[str, str]] = {}
    for message in lines("messages.jsonl"):
        messages.setdefault(message["scenario"], {})[message["id"]] = message["text"]
    questions = [
        Question(q["id"], q["scenario"], q["query"], frozenset(q["evidence"]))
        for q in lines("queries.jsonl")
    ]
    return Data(messages, questions)


async def fill(book: MemoryBook, data: Data) -> None:
    """Every message is a memory of its writer."""

    async def told(user: str, facts: dict[str, str]) -> None:
        for key, text in facts.items():
            kept = await book.remember(AGENT, user, text, key)
            if kept.memory.key != key:
                raise RuntimeError(f"{key} was taken for {kept.memory.key}.")

    await asyncio.gather(*(told(user, facts) for user, facts in data.messages.items()))


async def rank(
    book: MemoryBook,
    questions: Iterable[Question],
    conversation: Callable[[Question], list[BaseMessage]],
) -> Ranking:
    """The keys that are found at the end of each conversation, the best first."""
    ranking = {}
    for question in questions:
        query = memory_query(conversation(question))
        if query is None:
            raise RuntimeError(f"{question.id} has nothing to search with.")
        found = await book.search(AGENT, question.user, query.text)
        ranking[question.id] = [memory.memory.key for memory in found]
    return ranking


def asked(question: Question) -> list[BaseMessage]:
    return [user_message(question.text)]


def followed_up(question: Question, trigger: TriggerType) -> list[BaseMessage]:
    """The agent answered, the person fell silent, and a timer fired."""
    return [user_message(question.text), AIMessage("Let me see."), synthetic_message(trigger)]


def asked_by_the_trigger(question: Question) -> list[BaseMessage]:  # noqa: ARG001 - that is the point
    """What a system does that takes the last human message for the user's."""
    return [user_message(str(synthetic_message(TriggerType.CHECK_IN).content))]


def recalls(ranking: Ranking, questions: Sequence[Question]) -> list[float]:
    return [
        sum(bool(q.evidence & set(ranking[q.id][:depth])) for q in questions) / len(questions)
        for depth in DEPTHS
    ]


def foreign_share(ranking: Ranking, data: Data) -> float:
    """Of the first five finds of every question, those that are another person's."""
    finds = [(q.user, key) for q in data.questions for key in ranking[q.id][:5]]
    return sum(key not in data.messages[user] for user, key in finds) / len(finds)


async def evaluate(
    journal: Journal, embedder: Embedder, data: Data, weights: Iterable[float] = WEIGHTS
) -> Report:
    ids, embedder = SnowflakeGenerator(node=1), Remembering(embedder)

    def book(**settings: Any) -> MemoryBook:
        # How good it is does not depend on how busy the machine is.
        config = MemoryConfig(limit=max(DEPTHS), time_limit=timedelta(minutes=5), **settings)
        return MemoryBook(journal, embedder, ids=ids, clock=lambda: NOW, config=config)

    hybrid, questions = book(), data.questions
    await fill(hybrid, data)
    ranking = await rank(hybrid, questions, asked)
    triggered = [
        await rank(hybrid, questions, partial(followed_up, trigger=trigger))
        for trigger in TriggerType
    ]
    by_weight = {
        weight: recalls(await rank(book(text_weight=weight), questions, asked), questions)
        for weight in {0.0, 1.0, *weights}
    }
    by_trigger = await rank(hybrid, questions, asked_by_the_trigger)
    return Report(
        ranking,
        {
            "words and meaning": recalls(ranking, questions),
            "words alone": by_weight[1.0],
            "meaning alone": by_weight[0.0],
            "asked by a trigger's words instead": recalls(by_trigger, questions),
        },
        by_weight,
        sum(other[q.id] == ranking[q.id] for other in triggered for q in questions)
        / (len(triggered) * len(questions)),
        foreign_share(ranking, data),
    )


def print_reports(reports: dict[str, Report], embedder: str) -> None:
    header = ("database", "search", *(f"R@{depth}" for depth in DEPTHS))
    rows = [
        (name, search, *(f"{share:.3f}" for share in found))
        for name, report in reports.items()
        for search, found in report.recalls.items()
    ]
    print_columns(f"Memories found, 155 questions, embedder {embedder}", header, rows)
    rows = [
        (
            f"{weight:.1f}",
            *(f"{share:.3f}" for r in reports.values() for share in r.by_weight[weight]),
        )
        for weight in WEIGHTS
    ]
    shown = [f"{name} R@{depth}" for name in reports for depth in DEPTHS]
    print_columns("By memory.text_weight", ("weight of words", *shown), rows)
    first = next(iter(reports.values()))
    rows = [
        (name, f"{r.same:.3f}", f"{r.foreign:.3f}", f"{agreement(first, r):.3f}")
        for name, r in reports.items()
    ]
    header = ("database", "same with a trigger", "foreign share of the first 5", "as on the first")
    print_columns("What must not change", header, rows)


def agreement(one: Report, other: Report) -> float:
    """The share of questions with the same first five finds in the same order."""
    same = [one.ranking[q][:5] == other.ranking[q][:5] for q in one.ranking]
    return sum(same) / len(same)


@asynccontextmanager
async def opened(journal: Journal) -> AsyncIterator[Journal]:
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


async def main() -> None:
    folder = find_data()
    if folder is None:
        raise SystemExit("The data are not here; name their folder in SEGUE_DATA.")
    from segue.journal.postgres import PostgresJournal  # noqa: PLC0415 - not needed for the tests
    from segue.testing.postgres import PostgresServer  # noqa: PLC0415 - same

    data, embedder = load_data(folder), load_embedder("local")
    reports = {}
    with tempfile.TemporaryDirectory() as place, PostgresServer.start() as server:
        journals: dict[str, Journal] = {
            "SQLite": SqliteJournal(Path(place) / "journal.db"),
            "PostgreSQL": PostgresJournal(server.create_database()),
        }
        for name, journal in journals.items():
            progress(name)
            async with opened(journal):
                reports[name] = await evaluate(journal, embedder, data)
    print_reports(reports, embedder.name)


if __name__ == "__main__":
    asyncio.run(main())
