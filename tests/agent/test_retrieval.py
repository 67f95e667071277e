"""What the agent remembers in a reply: whose words are searched, what is told, what is logged."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from segue import synthetic_message
from segue.agent.checkpoints.store import Checkpoints
from segue.agent.middleware import Invisibility
from segue.agent.retrieval import MemorySource, RetrieveMemories
from segue.agent.scripted import ScriptedChatModel
from segue.core.memory import QuerySource
from segue.events import MemoriesRecalled
from segue.journal.journal import Journal
from segue.journal.memories import FoundMemory
from segue.settings.agents import MemoryConfig
from segue.telemetry import FIELDS
from tests.agent.meanings import Meanings, book_of
from tests.agent.session import THREAD, Session

pytestmark = pytest.mark.anyio

TOPICS = Meanings(
    project="work",
    report="work",
    vacation="travel",
    Lisbon="travel",
    sea="travel",
    pizza="food",
    server="infrastructure",
    check="infrastructure",
    incomplete="infrastructure",
)
FACTS = (
    "The report for the Berlin project is due in May.",
    "Dreams of a week by the sea in Lisbon.",
    "Loves pizza with mushrooms.",
    "The server sends a check and follow up when a job is incomplete.",
)


def told(request: Sequence[BaseMessage]) -> str:
    """What the system message says about the user."""
    [system] = [m for m in request if isinstance(m, SystemMessage)]
    _, _, memories = system.text.partition("What you remember about the user:")
    return memories.partition("\n\nNow: ")[0]


async def begin(
    journal: Journal,
    checkpoints: Checkpoints,
    *script: Any,
    source: MemorySource | None = None,
    **memory: Any,
) -> tuple[Session, ScriptedChatModel]:
    """A session whose agent knows the facts."""
    book = book_of(journal, TOPICS)
    for fact in FACTS:
        await book.remember("guide", "ada", fact)
    model = ScriptedChatModel(script=list(script))
    config = MemoryConfig.parse({"limit": 1} | memory, "memory")
    session = await Session.begin(
        journal, checkpoints, model, memories=source or book, memory=config
    )
    return session, model


async def test_a_follow_up_remembers_what_the_talk_was_about(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """A check-in searches with the user's last words, so the unfinished project is found."""
    session, model = await begin(journal, checkpoints, "Oh no.", "How is the project going?")
    await session.say("My work project is still not finished.")
    events = await session.nudge("task_incomplete")
    assert told(model.seen[-1]).strip() == f"- {FACTS[0]}"
    [recalled] = [event for event in events if isinstance(event, MemoriesRecalled)]
    assert recalled.source is QuerySource.LAST_REAL_USER_MESSAGE


async def test_vacation_plans_bring_travel_memories(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """Two minutes after a question about a vacation nothing about servers comes to mind."""
    session, model = await begin(journal, checkpoints, "Sure.", "Still thinking about Lisbon?")
    await session.say("Can you help me with my vacation?")
    session.now += timedelta(minutes=2)
    await session.nudge("check_in")
    assert told(model.seen[-1]).strip() == f"- {FACTS[1]}"


async def test_a_follow_up_finds_what_the_users_own_message_finds(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """The same words bring the same memories, whether the user or a timer made the agent speak."""
    session, model = await begin(journal, checkpoints, "Yes.", *["Hm."] * 3, limit=3)
    await session.say("Is pizza good for a vacation?")
    for trigger in ("check_in", "question_unanswered", "waiting_for_decision"):
        await session.nudge(trigger)
    assert told(model.seen[0])
    assert {told(request) for request in model.seen} == {told(model.seen[0])}


async def test_in_a_thread_of_triggers_the_summary_is_searched(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """When the user's words are archived, their summary stands for them."""
    session, model = await begin(journal, checkpoints, "Sure.", "Still thinking of it?")
    await session.say("Can you help me?")
    [batch] = await session.batches()
    await journal.summaries.save(
        THREAD, "They planned a vacation.", [batch.id], ids=session.ids, now=session.now
    )
    events = await session.nudge("check_in")
    assert told(model.seen[-1]).strip() == f"- {FACTS[1]}"
    [recalled] = [event for event in events if isinstance(event, MemoriesRecalled)]
    assert recalled.source is QuerySource.CONVERSATION_SUMMARY


async def test_a_trigger_on_an_empty_thread_is_one_error_and_still_answered(
    journal: Journal, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is searched, an operator is told of the misconfiguration, the thread stays usable."""
    session, model = await begin(journal, checkpoints, "Hello there!", "Sure.")
    TOPICS.texts.clear()
    with caplog.at_level(logging.INFO):
        await session.nudge("check_in")
    [error] = [r for r in caplog.records if r.levelno >= logging.ERROR]
    for word in ("empty thread", "misconfiguration", THREAD, "guide", "check_in"):
        assert word in error.getMessage()
    fields = getattr(error, FIELDS)
    assert (fields["kind"], fields["thread_id"]) == ("empty_thread", THREAD)
    assert (fields["trigger_type"], fields["count"]) == ("check_in", 1)
    assert TOPICS.texts == []
    assert await session.history() == ["Hello there!"]
    await session.say("My vacation begins!")
    assert told(model.seen[-1]).strip() == f"- {FACTS[1]}"


async def test_where_a_query_comes_from_is_logged(
    journal: Journal, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    """DEBUG says that a trigger was met and whose words are used, INFO that they are a fallback;
    source, query and message are fields.
    """
    session, _ = await begin(journal, checkpoints, "Sure.", "Well?")
    await session.say("Can you help me with my vacation? " + "It will be long. " * 10)
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="segue.agent"):
        await session.nudge("check_in", reason="a silence")
    [info] = [r.getMessage() for r in caplog.records if r.levelno >= logging.INFO]
    assert "Memory query used fallback strategy due to synthetic trigger" in info
    by_kind = {each["kind"]: each for r in caplog.records if (each := getattr(r, FIELDS, None))}
    [asked, nudge] = [batch.messages[0] for batch in await session.batches()]
    where = {"thread_id": THREAD, "agent_id": "guide", "trigger_type": "check_in"}
    chosen = {**where, "source": "last_real_user_message", "message_id": asked.id}
    assert (
        by_kind["synthetic_message_detected"].items() >= {**where, "message_id": nudge.id}.items()
    )
    assert by_kind["memory_query"].items() >= chosen.items()
    assert by_kind["memory_query_fell_back"].items() >= chosen.items()
    query = by_kind["memory_query"]["query"]
    assert query == asked.text[:50]
    assert "query" not in by_kind["memory_query_fell_back"]


async def test_no_words_of_the_user_are_logged_above_debug(
    journal: Journal, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    """What people say is theirs, also when things fail."""
    session, _ = await begin(journal, checkpoints, "Sure.", ValueError("swordfish"), "Well?")
    with caplog.at_level(logging.INFO):
        await session.say("The password is swordfish.")
        await session.say("I said swordfish.")
        await session.nudge()
    assert caplog.records
    assert "swordfish" not in caplog.text


async def test_a_users_own_question_is_no_fallback(
    journal: Journal, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    """In normal operation there is no INFO and no ERROR line about memory."""
    session, _ = await begin(journal, checkpoints, "Sure.")
    with caplog.at_level(logging.INFO):
        await session.say("Can you help me with my vacation?")
    assert [r for r in caplog.records if not r.name.startswith("segue.runtime")] == []


class Slow:
    """A memory search that takes its time, or does not work."""

    def __init__(self, memories: MemorySource, seconds: float | None) -> None:
        self._memories = memories
        self._seconds = seconds

    async def search(self, agent_id: str, user_id: str, text: str) -> list[FoundMemory]:
        if self._seconds is None:
            raise OSError(agent_id, user_id, text)
        await asyncio.sleep(self._seconds)
        return await self._memories.search(agent_id, user_id, text)


# Shorter and longer than the limit that is used where none is set.
@pytest.mark.parametrize("seconds", [None, 1, 60])
async def test_a_reply_does_not_wait_for_memories_that_do_not_come(
    journal: Journal,
    checkpoints: Checkpoints,
    seconds: float | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A search that fails or takes longer than its limit is a reply without, and a warning."""
    source = Slow(book_of(journal, TOPICS), seconds)
    session, model = await begin(journal, checkpoints, "Sure.", source=source, time_limit=0.05)
    await session.say("Do you know about my pizza?")
    assert await session.history() == ["Do you know about my pizza?", "Sure."]
    assert told(model.seen[-1]) == ""
    [warning] = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "within 0.05 s" in warning.getMessage()
    assert "pizza" not in warning.getMessage()


async def test_a_search_that_keeps_to_its_limit_is_waited_for(
    journal: Journal, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes a moment, and its finds are told without a warning."""
    source = Slow(book_of(journal, TOPICS), 0.1)
    session, model = await begin(journal, checkpoints, "Sure.", source=source, time_limit=60)
    await session.say("Do you know about my pizza?")
    assert FACTS[2] in told(model.seen[-1])
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_memories_stay_within_their_budget(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """One that is too long is left out, a shorter one behind it is told."""
    session, model = await begin(journal, checkpoints, "Sure.", limit=3, max_tokens=8)
    book = book_of(journal, TOPICS)
    await book.remember("guide", "ada", "There is a lot to talk about: " + "more, " * 50)
    await session.say("Let us talk about pizza!")
    assert told(model.seen[-1]).strip() == f"- {FACTS[2]}"


async def test_memories_are_told_again_at_the_second_model_call(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """What the model knew when it called a tool it still knows when it reads the result."""
    calls = [{"name": "forget", "args": {"key": "x"}, "id": "c", "type": "tool_call"}]
    model = ScriptedChatModel(script=[AIMessage("", tool_calls=calls), "Done."])
    book = book_of(journal, TOPICS)
    await book.remember("guide", "ada", FACTS[2])
    session = await Session.begin(journal, checkpoints, model, memories=book)
    TOPICS.texts.clear()
    await session.say("Forget it, I want pizza.")
    assert [FACTS[2] in told(request) for request in model.seen] == [True, True]
    assert TOPICS.texts == ["Forget it, I want pizza."]


async def test_memories_are_told_and_not_stored(journal: Journal, checkpoints: Checkpoints) -> None:
    """They are in the model call alone: not in the journal, and not in the next request."""
    session, model = await begin(journal, checkpoints, "Sure.", "Sure.")
    await session.say("Pizza!")
    await session.say("Vacation!")
    assert FACTS[2] in told(model.seen[0])
    assert FACTS[2] not in repr(model.seen[1])
    assert not [b for b in await session.batches() for m in b.messages if FACTS[2] in m.text]


async def test_the_system_prompt_is_the_same_in_a_follow_up(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """A trigger changes nothing in the persona: there is one system message, and it is the same
    but for the clock at its end.
    """
    session, model = await begin(journal, checkpoints, "Sure.", "Well?")
    await session.say("Pizza!")
    await session.nudge()
    first, second = ([m for m in seen if isinstance(m, SystemMessage)] for seen in model.seen)
    assert [len(first), len(second)] == [1, 1]
    assert first[0].text.partition("Now: ")[0] == second[0].text.partition("Now: ")[0]


async def test_the_agent_can_remember_and_forget(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """The tools keep facts for the user of the run, and tell the model what became of them."""
    book = book_of(journal, TOPICS)

    def call(name: str, **args: Any) -> AIMessage:
        return AIMessage("", tool_calls=[{"name": name, "args": args, "id": name}])

    model = ScriptedChatModel(
        script=[
            call("remember", content="Is allergic to nuts.", key="allergy"),
            "I will keep that in mind.",
            call("forget", key="allergy"),
            "Forgotten.",
            call("remember", content=" "),
            "I could not.",
        ]
    )
    session = await Session.begin(journal, checkpoints, model, memories=book)
    await session.say("I am allergic to nuts.")
    [memory] = await journal.memories.list_of("guide", "ada")
    assert (memory.key, memory.content) == ("allergy", "Is allergic to nuts.")
    await session.say("No, I am not.")
    assert await journal.memories.list_of("guide", "ada") == []
    await session.say("Remember!")
    assert "Not remembered" in (await session.last_batch()).messages[2].text
    assert (await session.last_batch()).is_complete


class Whose:
    thread_id, agent_id, user_id = "chat", "guide", "ada"


async def test_the_middleware_works_in_anybodys_agent(journal: Journal) -> None:
    """Outside of Segue, memories and invisibility need no more than to know whose they are."""
    book = book_of(journal, TOPICS)
    for fact in FACTS:
        await book.remember("guide", "ada", fact)
    model = ScriptedChatModel(script=["Lisbon?"])
    memories = RetrieveMemories(book, MemoryConfig(limit=1), whose=lambda _: Whose())
    agent: Any = create_agent(
        model, system_prompt="You are kind.", middleware=[memories, Invisibility()]
    )
    trigger = synthetic_message("check_in", "a silence")
    await agent.ainvoke({"messages": [HumanMessage("My vacation!"), AIMessage("Nice."), trigger]})
    assert told(model.seen[0]).strip() == f"- {FACTS[1]}"
    assert "synthetic" not in repr(model.seen[0])
