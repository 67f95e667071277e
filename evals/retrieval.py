"""How well memories are found: `python -m evals.retrieval`.

155 questions of five people about the 323 messages that they wrote before, in one store, on the
path of a real turn: `memory_query`, `MemoryBook`, and the journal on both databases. R@k is the
share of questions whose answer is among the first k memories.
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
from segue.agent.embedders import Embedder, load_embedder
from segue.agent.memory import MemoryBook
from segue.core.triggers import TriggerType
from segue.journal.journal import Journal
from segue.journal.sqlite import SqliteJournal
from segue.settings.agents import MemoryConfig

AGENT = "assistant"
DEPTHS = (1, 5, 10)
WEIGHTS = tuple(n / 10 for n in range(11))
NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)

Ranking = dict[str, list[str]]


@dataclass(frozen=True)
class EvalQuestion:
    id: str
    user: str
    text: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Data:
    """The messages of each person, by id, and their later questions."""

    messages: dict[str, dict[str, str]]
    questions: list[EvalQuestion]


@dataclass(frozen=True)
class RetrievalReport:
    """The figures of one database; `same`: the share of rankings that a trigger does not change."""

    ranking: Ranking
    recalls: dict[str, list[float]]
    by_weight: dict[float, list[float]]
    same: float
    foreign: float


class CachedEmbedder:
    """Embeds each text once, since the eval repeats its queries."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dimension = embedder.name, embedder.dimension
        self.threshold = embedder.threshold
        self._embedder = embedder
        self._cache: dict[str, list[float]] = {}

    async def embed_query(self, text: str) -> list[float]:
        if text not in self._cache:
            self._cache[text] = await self._embedder.embed_query(text)
        return self._cache[text]

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        for text in texts:
            if text not in self._cache:
                [self._cache[text]] = await self._embedder.embed_documents([text])
        return [self._cache[text] for text in texts]


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
        EvalQuestion(q["id"], q["scenario"], q["query"], frozenset(q["evidence"]))
        for q in lines("queries.jsonl")
    ]
    return Data(messages, questions)


async def fill(book: MemoryBook, data: Data) -> None:
    """Store every message as a memory of its author."""

    async def remember(user: str, facts: dict[str, str]) -> None:
        for key, text in facts.items():
            kept = await book.remember(AGENT, user, text, key)
            if kept.memory.key != key:
                raise RuntimeError(f"{key} was merged into {kept.memory.key}.")

    await asyncio.gather(*(remember(user, facts) for user, facts in data.messages.items()))


async def rank(
    book: MemoryBook,
    questions: Iterable[EvalQuestion],
    conversation: Callable[[EvalQuestion], list[BaseMessage]],
) -> Ranking:
    """The keys found at the end of each conversation, best first."""
    ranking = {}
    for question in questions:
        query = memory_query(conversation(question))
        if query is None:
            raise RuntimeError(f"{question.id} has no query.")
        found = await book.search(AGENT, question.user, query.text)
        ranking[question.id] = [memory.memory.key for memory in found]
    return ranking


def as_message(question: EvalQuestion) -> list[BaseMessage]:
    return [user_message(question.text)]


def with_follow_up(question: EvalQuestion, trigger: TriggerType) -> list[BaseMessage]:
    """The agent answered, the user was silent, and a timer fired."""
    return [user_message(question.text), AIMessage("Let me see."), synthetic_message(trigger)]


def as_trigger(question: EvalQuestion) -> list[BaseMessage]:  # noqa: ARG001 - that is the point
    """The query of a system that takes the last human message for the user's."""
    return [user_message(str(synthetic_message(TriggerType.CHECK_IN).content))]


def recalls(ranking: Ranking, questions: Sequence[EvalQuestion]) -> list[float]:
    return [
        sum(bool(q.evidence & set(ranking[q.id][:depth])) for q in questions) / len(questions)
        for depth in DEPTHS
    ]


def foreign_share(ranking: Ranking, data: Data) -> float:
    """The share of other people's memories among the first five of every question."""
    finds = [(q.user, key) for q in data.questions for key in ranking[q.id][:5]]
    return sum(key not in data.messages[user] for user, key in finds) / len(finds)


async def evaluate(
    journal: Journal, embedder: Embedder, data: Data, weights: Iterable[float] = WEIGHTS
) -> RetrievalReport:
    ids, embedder = SnowflakeGenerator(node=1), CachedEmbedder(embedder)

    def book(**settings: Any) -> MemoryBook:
        # No timeout, so that a busy machine does not change the figures.
        config = MemoryConfig(limit=max(DEPTHS), time_limit=timedelta(minutes=5), **settings)
        return MemoryBook(journal.memories, embedder, ids=ids, clock=lambda: NOW, config=config)

    hybrid, questions = book(), data.questions
    await fill(hybrid, data)
    ranking = await rank(hybrid, questions, as_message)
    triggered = [
        await rank(hybrid, questions, partial(with_follow_up, trigger=trigger))
        for trigger in TriggerType
    ]
    by_weight = {
        weight: recalls(await rank(book(text_weight=weight), questions, as_message), questions)
        for weight in {0.0, 1.0, *weights}
    }
    by_trigger = await rank(hybrid, questions, as_trigger)
    return RetrievalReport(
        ranking,
        {
            "words and meaning": recalls(ranking, questions),
            "words alone": by_weight[1.0],
            "meaning alone": by_weight[0.0],
            "query from a trigger's prompt": recalls(by_trigger, questions),
        },
        by_weight,
        sum(other[q.id] == ranking[q.id] for other in triggered for q in questions)
        / (len(triggered) * len(questions)),
        foreign_share(ranking, data),
    )


def print_reports(reports: dict[str, RetrievalReport], embedder: str) -> None:
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


def agreement(one: RetrievalReport, other: RetrievalReport) -> float:
    """The share of questions with the same first five memories in the same order."""
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
        raise SystemExit("The data is missing; set SEGUE_DATA to its folder.")
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
