"""A long story with canaries in all that is said behind the user's back: none of them ever sings.

Four agents follow up for all four reasons, go on by themselves, ask each other, fail, are stopped,
overtaken, withdrawn and restarted; then every place from which a user or a log can learn anything
is searched. That the canaries are where they belong, with the model and in the journal, is checked
too: a story in which they were nowhere would show nothing.
"""

from dataclasses import replace
from itertools import chain

import pytest
from langchain_core.messages import BaseMessage

from segue.core.triggers import TriggerType
from segue.events import MessageStored, QuestionAsked, TurnCancelled, TurnFailed
from segue.journal.memories import MemorySearch
from segue.journal.records import Decision, TurnKind, TurnState
from segue.simulate.world import Stage, World
from segue.telemetry import configure_logging
from tests.agent.meanings import Meanings
from tests.runtime.receiver import Receiver
from tests.stories.canaries import (
    CANARY,
    DECISION,
    GOING_ON,
    HIDDEN,
    PROMPTS,
    REASON,
    REQUESTED,
    WORDS,
)
from tests.stories.scenes import listening
from tests.stories.tale import FACT, Tale, leaks, logged

pytestmark = pytest.mark.anyio


async def pages(world: World, thread: str) -> list[object]:
    """All of a history, page by page, from the end to the beginning."""
    found: list[object] = []
    page = await world.segue.history(thread, limit=3)
    found.append(page)
    while page.before is not None:
        page = await world.segue.history(thread, limit=3, before=page.before)
        found.append(page)
    return found


def without_words(decision: Decision) -> Decision:
    """A decision but for what the decider itself said, which is for operators."""
    return replace(decision, facts={k: v for k, v in decision.facts.items() if k != "words"})


async def all_threads(world: World) -> list[str]:
    threads = await world.journal.threads.list_of("ann", limit=100, with_nested=True)
    return [thread.id for thread in threads]


async def shown(tale: Tale, world: World) -> dict[str, str]:
    """Every place from which a user can learn something, as one text each."""
    journal, segue = world.journal, world.segue
    threads = await all_threads(world)
    queries = [CANARY, WORDS, "hello again kindly", "fine", *chain(*PROMPTS.values()), *HIDDEN]
    replays = []
    for thread in threads:
        async with listening(world, thread) as listener:
            pass
        replays.append(listener)
    events = [event for listener in (*tale.heard, *replays) for event in listener.events]
    search = MemorySearch("guide", "ann", CANARY, limit=100, threshold=0.0)
    places: dict[str, object] = {
        "events": events,
        "messages as JSON": [
            e.message.model_dump_json() for e in events if isinstance(e, MessageStored)
        ],
        "replays": [listener.events for listener in replays],
        "stored events": [await journal.feed.read(thread, limit=10_000) for thread in threads],
        "history": [await pages(world, thread) for thread in threads],
        "search": [await journal.search.find("ann", query, limit=100) for query in queries],
        "thread list": await journal.threads.list_of("ann", limit=100, with_nested=True),
        "why": [await segue.why(thread, limit=10_000) for thread in threads],
        "why in words": [
            str(reason) for thread in threads for reason in await segue.why(thread, limit=10_000)
        ],
        "follow-ups": [await segue.list_follow_ups(thread, limit=10_000) for thread in threads],
        "turns": [await journal.turns.list_of(thread, limit=10_000) for thread in threads],
        "effects": [await journal.effects.list_of(thread, limit=10_000) for thread in threads],
        "decisions": [
            without_words(decision)
            for thread in threads
            for decision in await journal.decisions.list_of(thread, limit=10_000)
        ],
        "memories": [
            await journal.memories.list_of("guide", "ann"),
            await journal.memories.search(search),
        ],
        "summaries": [await journal.summaries.find(thread) for thread in threads],
        "reminders": await segue.list_reminders("ann"),
        "export": b"".join([line async for line in segue.export("ann")]).decode(),
        "user": await journal.users.get_settings("ann"),
        "webhooks": [(path, str(headers), body) for path, headers, body in tale.receiver.got],
    }
    return {
        name: found if isinstance(found, str) else repr(found) for name, found in places.items()
    }


async def test_no_canary_is_ever_seen(
    stage: Stage,
    receiver: Receiver,
    foreseen_meanings: Meanings,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No event, replay, page, find, title, reason, webhook, memory, error or log line holds one."""
    configure_logging("INFO", json=True)
    tale = Tale(stage, receiver)
    await tale.tell()
    async with tale.process() as world:
        places = await shown(tale, world)
        assert_the_story_was_told(tale, places)
        await assert_canaries_are_where_they_belong(tale, world)
    places |= logged(caplog, capsys) | {"memory queries": repr(foreseen_meanings.texts)}
    assert all("follow_up_fired" in places[log] for log in ("fields of the log", "log as JSON"))
    assert leaks(places) == {}


def assert_the_story_was_told(tale: Tale, places: dict[str, str]) -> None:
    """What the story is about did happen, and every place shows some of it."""
    empty = {name for name, text in places.items() if not text.strip("[](){}, None")}
    assert empty <= {"summaries", "user"}
    for event in (MessageStored, QuestionAsked, TurnCancelled, TurnFailed):
        seen = [e for listener in tale.heard for e in listener.events if isinstance(e, event)]
        assert bool(seen) is (event is not TurnFailed), event
    assert "Never to be seen." not in repr(places)
    for place, words in (
        ("history", "Here I am again."),
        ("history", "I looked again."),
        ("history", "Fifty-nine degrees."),
        ("history", "Booked: yes"),
        ("memories", FACT),
        ("webhooks", "How is it going?"),
        ("why", "The agent's own decider chose"),
        ("why", "The deciding model chose check_in."),
        ("why", "answer cannot be used"),
        ("why", "delivered"),
        ("why", "The thread is muted."),
        ("why", "The user is typing."),
        ("history", "It is about your parcel."),
        ("history", "Reminder: water the plants 3"),
        ("export", "It is about your parcel."),
        ("webhooks", "It is about your parcel."),
        ("webhooks", "Reminder: water the plants 3"),
        ("reminders", "see the dentist"),
        ("why", "The user opted out of follow-ups."),
        ("turns", "The user wrote."),
        ("turns", "The reply failed (ValueError)."),
    ):
        assert words in places[place], (place, words)


async def assert_canaries_are_where_they_belong(tale: Tale, world: World) -> None:
    """The model was asked with them, and an operator finds them: the story could have leaked."""
    asked = repr([request[-1].text for model in tale.models.values() for request in model.seen])
    raw: list[BaseMessage] = []
    for thread in await all_threads(world):
        tail = await world.journal.messages.tail(thread, max_tokens=10_000_000)
        raw += [message for batch in tail for message in batch.messages]
    for trigger in TriggerType:
        canary = f"{CANARY}_{trigger.value}"
        assert canary in asked
        assert canary in repr(raw)
    for canary in ("prompt", "reason", "name", "value", "parcel", "trigger"):
        assert f"{REQUESTED}_{canary}" in repr(raw)
    for words in HIDDEN:
        assert words in asked
    assert GOING_ON in repr(raw)
    assert repr(raw).count("Not remembered: this repeats") == 8
    assert repr(raw).count("Not asked: this repeats") == 1
    assert repr(raw).count("This repeats the instruction") == 5
    turns = await world.journal.turns.list_of(tale.threads["guide"], limit=10_000)
    sent = [turn for turn in turns if turn.kind is TurnKind.FOLLOW_UP]
    assert {TurnState.DONE, TurnState.VOID, TurnState.FAILED} <= {turn.state for turn in sent}
    decisions = [
        decision
        for thread in (tale.threads["guide"], tale.threads["coach"])
        for decision in await world.journal.decisions.list_of(thread, limit=10_000)
    ]
    words = repr([decision.facts.get("words") for decision in decisions])
    assert all(canary in words for canary in (REASON, WORDS, DECISION))
    kept = [await world.journal.timers.list_of(t, limit=10_000) for t in tale.threads.values()]
    assert GOING_ON in repr(kept)
