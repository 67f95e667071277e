"""The clock in what real clients of the providers send: the end of the one system message."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, SystemMessage

from segue import SnowflakeGenerator
from segue.agent.build import build_graph
from segue.agent.checkpoints.store import Checkpoints
from segue.agent.langgraph_agent import LangGraphAgent
from segue.agent.middleware import Invisibility, TellTime
from segue.agent.scripted import ScriptedChatModel
from segue.core.autonomy.local_time import LocalClock
from segue.errors import UsageError
from segue.journal.journal import Journal
from segue.runtime.run import Run
from segue.settings.agents import AgentConfig, MemoryConfig
from tests.agent.meanings import Meanings, book_of
from tests.agent.session import START, THREAD, Session
from tests.providers.clients import PROVIDERS, Client
from tests.providers.recorder import Recorder

pytestmark = pytest.mark.anyio

FACT = "Loves pizza with mushrooms."
SUMMARY = "They talked about dinner."
PROMPT = "You are a cook."
MAY_WRITE = (
    "You may write to the user first; such messages reach them without a question of theirs."
)


@pytest.fixture(params=PROVIDERS)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    provider = PROVIDERS[request.param]
    with Recorder() as recorder, provider.connect(recorder.url) as model:
        yield Client(model, recorder, provider.problems)


def system_of(body: dict[str, Any]) -> str:
    """The system text of a request, wherever its provider has it; there is only one."""
    if "systemInstruction" in body:
        [part] = body["systemInstruction"]["parts"]
        return str(part["text"])
    if "system" in body:
        return str(body["system"])
    given = body.get("messages") or body["input"]
    [text] = [each["content"] for each in given if each.get("role") in ("system", "developer")]
    return str(text)


async def talk(journal: Journal, checkpoints: Checkpoints) -> ScriptedChatModel:
    """Two turns, a minute apart, of an agent with a summary and memories."""
    book = book_of(journal, Meanings(pizza="food"))
    await book.remember("guide", "ada", FACT)
    model = ScriptedChatModel(script=["Hi.", "Sure.", "Of course."])
    session = await Session.begin(
        journal,
        checkpoints,
        model,
        memories=book,
        memory=MemoryConfig(limit=1),
        system_prompt=PROMPT,
    )
    await journal.users.update_settings("ada", {"time_zone": "Europe/Berlin"}, now=START)
    await session.say("Hello.")
    [greeting] = await journal.messages.list_live_batches(THREAD)
    await journal.summaries.save(THREAD, SUMMARY, [greeting], ids=session.ids, now=session.tick())
    await session.say("I want pizza.")
    session.now += timedelta(minutes=1)
    await session.say("More pizza!")
    return model


async def test_the_clock_ends_the_one_system_message(
    journal: Journal, checkpoints: Checkpoints, client: Client
) -> None:
    """Behind prompt, summary and memories; a minute later all before it has the same bytes."""
    model = await talk(journal, checkpoints)
    requests = [client.send(seen) for seen in model.seen[-2:]]
    assert [client.problems(request.body) for request in requests] == [[], []]
    texts = [system_of(request.body) for request in requests]
    before = (
        f"{PROMPT}\n\nSummary of the conversation so far:\n{SUMMARY}\n\n"
        f"What you remember about the user:\n- {FACT}\n\n"
    )
    assert texts == [
        f"{before}Now: Friday, 15 January 2027, 09:0{minute} (Europe/Berlin).\n{MAY_WRITE}"
        for minute in (0, 1)
    ]


async def test_all_calls_of_a_run_get_the_same_clock(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """What was sent before a tool ran is sent again, byte for byte, so that caches hit."""
    calls = [{"name": "look", "args": {}, "id": "c", "type": "tool_call"}]
    model = ScriptedChatModel(script=[AIMessage("", tool_calls=calls), "Done."])
    session = await Session.begin(journal, checkpoints, model, tools=())

    def look() -> str:
        """Look for a long time."""
        session.now += timedelta(minutes=5)
        return "found"

    config = AgentConfig(id="guide", tools=(look,))
    session.agent = LangGraphAgent(config, build_graph(config, model=model), checkpoints)
    await session.say("Look!")
    first, second = (seen[0].text for seen in model.seen)
    assert "Now: Friday, 15 January 2027, 08:00 (UTC)." in first
    assert second == first


async def test_a_run_without_a_journal_has_only_the_clock_that_it_is_given(
    checkpoints: Checkpoints,
) -> None:
    """The user's time is not known there."""
    model = ScriptedChatModel(script=["Hi.", "Hi."])
    config = AgentConfig(id="guide", system_prompt=PROMPT)
    agent = LangGraphAgent(config, build_graph(config, model=model), checkpoints)
    ids = SnowflakeGenerator(node=1)
    for clock in (None, LocalClock(START, "Asia/Tokyo")):
        run = Run.of("Hello.", ids, agent_id="guide", clock=clock)
        assert [event async for event in agent.run(run)]
    [without, with_clock] = (seen[0].text for seen in model.seen)
    assert without == PROMPT
    assert with_clock == f"{PROMPT}\n\nNow: Friday, 15 January 2027, 17:00 (Asia/Tokyo)."


async def test_the_clock_counts_in_the_token_budget(checkpoints: Checkpoints) -> None:
    """A message that just fits without the clock does not fit with it."""
    config = AgentConfig(id="guide", system_prompt="", context_tokens=200)
    model, ids = ScriptedChatModel(script=["Hi."]), SnowflakeGenerator(node=1)
    agent = LangGraphAgent(config, build_graph(config, model=model), checkpoints)
    fitting = Run.of("word " * 110, ids, agent_id="guide")
    assert [event async for event in agent.run(fitting)]
    clock = LocalClock(START, "UTC", may_write_first=True, silent_for=timedelta(days=1))
    too_long = Run.of("word " * 110, ids, agent_id="guide", clock=clock)
    with pytest.raises(UsageError, match="The request needs about"):
        [event async for event in agent.run(too_long)]


async def test_a_system_message_of_blocks_keeps_them(checkpoints: Checkpoints) -> None:
    """One of them may tell the provider how much of the request to cache."""
    block = {"type": "text", "text": PROMPT, "cache_control": {"type": "ephemeral"}}
    model, ids = ScriptedChatModel(script=["Hi."]), SnowflakeGenerator(node=1)
    prompt = SystemMessage([block])
    graph = create_agent(model, system_prompt=prompt, middleware=[TellTime(), Invisibility()])
    config = AgentConfig(id="guide", graph=graph)
    agent = LangGraphAgent(config, build_graph(config), checkpoints)
    run = Run.of("Hello.", ids, agent_id="guide", clock=LocalClock(START, "UTC"))
    assert [event async for event in agent.run(run)]
    now = {"type": "text", "text": "Now: Friday, 15 January 2027, 08:00 (UTC)."}
    assert model.seen[0][0].content == [block, now]
    assert prompt.content == [block]
