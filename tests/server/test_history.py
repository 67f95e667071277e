"""A clean history over the running server: what was said, by whom and when, and nothing else.

Both databases, and a second process that finds the same as the first.
"""

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from segue.agent.scripted import ScriptedChatModel
from segue.core.messages import visible_messages
from segue.core.metadata import KEYS, BatchType, MessageMetadata, is_synthetic
from segue.core.triggers import TRIGGER_PROMPTS
from segue.journal.records import NewTimer
from segue.settings.agents import AgentConfig
from segue.simulate.world import Stage, VirtualClock, World
from segue.telemetry import FIELDS
from tests.runtime.scenes import batches_of, calling, lines
from tests.server.clients import Site, site_of
from tests.stories.scenes import PATIENCE, asked_by, eager_agent

pytestmark = pytest.mark.anyio

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
PICTURE = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": PIXEL}},
]


def speak(messages: list[BaseMessage]) -> Any:
    """Uses a tool in silence or with a word, fails, and follows up by its trigger."""
    last = messages[-1]
    if isinstance(last, ToolMessage):
        return "It is in the north."
    if asked_by(messages):
        return "How is it going?"
    if "silently" in last.text:
        return calling("look_up")
    if "aloud" in last.text:
        return calling("look_up", text="One moment.")
    return ValueError("no") if "Fail" in last.text else "Fine."


def agent() -> AgentConfig:
    return eager_agent(policy={"max_consecutive": 2, "max_per_day": 100})


def model() -> dict[str, ScriptedChatModel]:
    return {"guide": ScriptedChatModel(script=speak)}


async def say(world: World, site: Site, thread: str, content: Any) -> str:
    """Say something and let everything happen that follows at once; the message's id."""
    sent = await site.post(f"/api/threads/{thread}/messages", {"content": content})
    await world.clock.settle()
    made: str = sent["message"]["id"]
    return made


async def shown(site: Site, thread: str, **page: Any) -> list[dict[str, Any]]:
    got = await site.get(f"/api/threads/{thread}/history", params={"limit": 200, **page})
    found: list[dict[str, Any]] = got["items"]
    return found


async def stored(world: World, thread: str) -> list[BaseMessage]:
    """All of the journal, batch by batch as it is loaded."""
    batches = [batch.id for batch in await batches_of(world, thread)]
    loaded = [await world.journal.messages.load_batch(thread, batch) for batch in sorted(batches)]
    return [message for batch in loaded for message in batch.messages]


def told(messages: list[dict[str, Any]]) -> list[tuple[str, str, str | None, str | None]]:
    return [(m["role"], m["text"], m["origin"], m["state"]) for m in messages]


async def converse(world: World, site: Site, thread: str) -> list[tuple[Any, ...]]:
    """A conversation with tools, a failure and follow-ups; what should be seen of it, and when."""
    expected: list[tuple[Any, ...]] = []

    def expect(*rows: tuple[str, str, str | None, str | None]) -> None:
        expected.extend((*row, world.clock.now()) for row in rows)

    north = "It is in the north."
    await say(world, site, thread, "Look it up silently.")
    expect(("user", "Look it up silently.", None, "answered"), ("agent", north, "reply", None))
    await world.pass_time(PATIENCE)
    expect(("agent", "How is it going?", "follow_up", None))
    await say(world, site, thread, "Look it up aloud.")
    expect(("user", "Look it up aloud.", None, "answered"))
    expect(("agent", "One moment.", "reply", None), ("agent", north, "reply", None))
    await world.pass_time(PATIENCE)
    expect(("agent", "How is it going?", "follow_up", None))
    await say(world, site, thread, "Fail, please.")
    expect(("user", "Fail, please.", None, "failed"))
    return expected


async def test_history_is_what_was_said_and_nothing_else(stage: Stage) -> None:
    """Before a restart and after it: words, roles, origins, fates and real times."""
    async with stage.world(agent(), models=model()) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        expected = await converse(world, site, thread)
        before = await shown(site, thread)
        assert [(*t, datetime.fromisoformat(m["created_at"])) for t, m in _with(before)] == expected
        [failed] = [m for m in before if m["state"] == "failed"]
        assert failed["error"]
        assert "no" not in failed["error"].split(), "an error's own words may quote anything"
        hidden = [m for m in await stored(world, thread) if m not in visible_messages([m])]
        assert {type(m) for m in hidden} >= {HumanMessage, AIMessage, ToolMessage}
    async with stage.world(agent(), models=model()) as world, site_of(world.segue) as site:
        assert await shown(site, thread) == before
        await say(world, site, thread, "I am moving.")
        await world.pass_time(PATIENCE)
        after = await shown(site, thread)
        assert after[: len(before)] == before
        assert told(after[len(before) :]) == [
            ("user", "I am moving.", None, "answered"),
            ("agent", "Fine.", "reply", None),
            ("agent", "How is it going?", "follow_up", None),
        ]
    text = json.dumps(after)
    for words in (*TRIGGER_PROMPTS.values(), "AUTONOMOUS", "look_up", "synthetic", "tool"):
        assert words not in text


def _with(messages: list[dict[str, Any]]) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    return list(zip(told(messages), messages, strict=True))


async def test_the_list_counts_and_previews_what_is_seen(stage: Stage) -> None:
    """Count, preview and title follow the history, through follow-ups, failures and a restart."""
    async with stage.world(agent(), models=model()) as world, site_of(world.segue) as site:
        quiet = await site.new_thread()
        thread = await site.new_thread()
        await converse(world, site, thread)
        await _assert_listed(site, thread, "user")
        await world.pass_time(PATIENCE * 8)
        await say(world, site, thread, "Look it up silently.")
        await world.pass_time(PATIENCE)
        await _assert_listed(site, thread, "agent")
    async with stage.world(agent(), models=model()) as world, site_of(world.segue) as site:
        await _assert_listed(site, thread, "agent")
        empty = await site.get(f"/api/threads/{quiet}")
        assert (empty["message_count"], empty["preview"], empty["title"]) == (0, None, None)


async def _assert_listed(site: Site, thread: str, role: str) -> None:
    listed = (await site.get("/api/threads"))["items"]
    [entry] = [each for each in listed if each["id"] == thread]
    assert listed[0] == entry  # the one written to last comes first
    messages = await shown(site, thread)
    assert entry["message_count"] == len(messages)
    assert (entry["preview"], entry["preview_role"]) == (messages[-1]["text"], role)
    assert messages[-1]["role"] == role
    assert entry["title"] == messages[0]["text"]


async def test_all_metadata_is_in_the_database_as_it_was_written(stage: Stage) -> None:
    """Loaded before and after a restart, every message is equal in every field; each trigger is
    tagged, and only by its tag it is told from what a user typed.
    """
    async with stage.world(agent(), models=model()) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        await converse(world, site, thread)
        await say(world, site, thread, TRIGGER_PROMPTS["check_in"])
        await world.pass_time(PATIENCE * 8)
        before = await stored(world, thread)
    async with stage.world(agent(), models=model()) as world:
        after = await stored(world, thread)
    assert [m.model_dump() for m in after] == [m.model_dump() for m in before]
    triggers = [m for m in after if m.text in TRIGGER_PROMPTS.values()]
    typed = [m for m in triggers if not is_synthetic(m)]
    assert len(typed) == 1
    assert len(triggers) >= 4
    for message in triggers:
        metadata = MessageMetadata.of(message)
        if is_synthetic(message):
            assert message.additional_kwargs["synthetic"] is True
            assert metadata.trigger_type is not None
            assert metadata.batch_type is BatchType.SYSTEM_TRIGGER
        else:
            assert "synthetic" not in message.additional_kwargs
            assert metadata.batch_type is BatchType.USER_REQUEST
    for message in after:
        metadata = MessageMetadata.of(message)
        assert metadata.position
        assert metadata.batch
        assert metadata.sequence_num is not None
        assert MessageMetadata(**_fields(metadata)) == metadata
    positions = [MessageMetadata.of(m).position or 0 for m in after]
    assert len({*positions}) == len(positions)


def _fields(metadata: MessageMetadata) -> dict[str, Any]:
    return {name: getattr(metadata, name) for name in KEYS}


async def test_pages_lose_nothing_and_repeat_nothing_while_messages_come(stage: Stage) -> None:
    """Back from the end and on from the beginning, with new messages between any two pages."""
    config, models = agent(), model()
    async with stage.world(config, models=models) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        for n in range(4):
            await say(world, site, thread, f"Message {n} silently.")
            await world.pass_time(PATIENCE)
        expected = [m["id"] for m in await shown(site, thread)]
        path = f"/api/threads/{thread}/history"
        page = await site.get(path, params={"limit": 3})
        seen = [m["id"] for m in page["items"]]
        while page["before"]:
            await say(world, site, thread, "One more.")
            page = await site.get(path, params={"limit": 3, "before": page["before"]})
            seen = [m["id"] for m in page["items"]] + seen
            assert seen == expected[-len(seen) :]
        assert seen == expected
    async with stage.world(config, models=model()) as world, site_of(world.segue) as site:
        first = (await shown(site, thread))[0]
        page = await site.get(path, params={"limit": 4, "after": first["position"]})
        ahead = [first["id"]]
        for _ in range(3):
            ahead += [m["id"] for m in page["items"]]
            await say(world, site, thread, "Yet one more.")
            await world.pass_time(PATIENCE)
            after = page["after"] or page["items"][-1]["position"]
            page = await site.get(path, params={"limit": 4, "after": after})
        ahead += [m["id"] for m in page["items"]]
        while page["after"]:
            page = await site.get(path, params={"limit": 4, "after": page["after"]})
            ahead += [m["id"] for m in page["items"]]
            assert len({*ahead}) == len(ahead)
        everything = [m["id"] for m in await shown(site, thread)]
        assert ahead == everything
        assert len({*everything}) == len(everything) > len(expected) + 5


async def test_pictures_come_back_as_they_were_sent(stage: Stage) -> None:
    """Content in blocks is kept, its text is told, and it is never looked at for what it says."""
    async with stage.world(agent(), models=model()) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        await say(world, site, thread, PICTURE)
        only = [{"type": "image_url", "image_url": {"url": PIXEL}}]
        await say(world, site, thread, only)
        await say(world, site, thread, [{"type": "text", "text": TRIGGER_PROMPTS["check_in"]}])
        await world.pass_time(PATIENCE)
    async with stage.world(agent(), models=model()) as world, site_of(world.segue) as site:
        mine = [m for m in await shown(site, thread) if m["role"] == "user"]
        assert [m["content"] for m in mine[:2]] == [PICTURE, only]
        texts = [m["text"] for m in mine]
        assert texts == ["What is this?", "", TRIGGER_PROMPTS["check_in"]]
        assert {m["state"] for m in mine} == {"answered"}
        assert (await shown(site, thread))[-1]["origin"] == "follow_up"
        entry = await site.get(f"/api/threads/{thread}")
        assert entry["message_count"] == len(await shown(site, thread))


async def test_a_normal_evening_is_told_in_the_log_without_an_error(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """A follow-up leaves traces and a summary that name it by fields, and nothing worse."""
    caplog.set_level(logging.DEBUG, logger="segue")
    async with (
        stage.world(agent(), models={"guide": lines()}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await say(world, site, thread, "Good evening.")
        await world.pass_time(PATIENCE)
        assert len(await shown(site, thread)) == 3
    ours = [record for record in caplog.records if record.name.startswith("segue")]
    assert [r.getMessage() for r in ours if r.levelno >= logging.WARNING] == []
    fields = [getattr(record, FIELDS, {}) for record in ours if record.levelno == logging.INFO]
    assert "follow_up_fired" in [each.get("kind") for each in fields]
    traces = " ".join(r.getMessage() for r in ours if r.levelno == logging.DEBUG)
    assert "ynthetic" in traces
    requests = [r.getMessage() for r in ours if r.name == "segue.server.middleware"]
    assert any(f"GET /api/threads/{thread}/history: 200" in line for line in requests)
    assert not any("limit=" in line or "Good evening" in line for line in requests)


async def test_a_chat_of_old_times_goes_on(sqlite_stage: Stage) -> None:
    """Where the ids of messages are small numbers, an answer can still be streamed."""
    stage = Stage(sqlite_stage.database, VirtualClock(datetime(2011, 5, 1, tzinfo=UTC)))
    async with stage.world(models={"guide": lines()}) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        await say(world, site, thread, "Hello.")
        answer = await site.http.post(
            f"/api/threads/{thread}/messages",
            json={"content": "Still there?"},
            headers={"Accept": "text/event-stream"},
        )
        assert answer.status_code == 200, answer.text
        data = [json.loads(x[6:]) for x in answer.text.splitlines() if x.startswith("data: ")]
        said = [each["message"]["text"] for each in data if each["type"] == "message"]
        assert said == ["Still there?", "Fine."]
        assert [m["created_at"][:10] for m in await shown(site, thread)] == ["2011-05-01"] * 4


async def test_what_a_migration_notes_is_not_shown(sqlite_stage: Stage) -> None:
    """A user who looks at their thread sees their own wishes there."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        noted = {"migrated": {"digest": "x"}, "muted": True}
        await world.journal.threads.update(thread, settings=noted)
        assert (await site.get(f"/api/threads/{thread}"))["preferences"] == {"muted": True}


async def test_why_a_decider_wants_a_follow_up_is_not_shown(stage: Stage) -> None:
    """Its words may quote anything: of a plan the user sees the trigger and the time."""
    async with stage.world() as world, site_of(world.segue) as site:
        thread, parts, now = await site.new_thread(), world.system.deps, world.clock.now()
        planned = NewTimer(thread, now + timedelta(days=1), "check_in", "They sound annoyed.")
        await world.journal.timers.arm(planned, ids=parts.ids, now=now)
        [shown] = await site.list(f"/api/threads/{thread}/follow-ups")
    assert (shown["trigger"], shown["state"], shown["reason"]) == ("check_in", "pending", None)
    assert "annoyed" not in str(shown)
