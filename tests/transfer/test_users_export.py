"""What a user gets of an export: all that they may see, and nothing that they may not."""

import json
from typing import Any

import pytest

from segue.core.metadata import KEYS
from segue.core.triggers import TRIGGER_PROMPTS
from segue.transfer.export import Scope
from tests.transfer.conftest import NewJournal
from tests.transfer.files import MADE_AT, full, of_user
from tests.transfer.tales import CANARY, EVERYTHING, Tale

pytestmark = pytest.mark.anyio


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize(("user", "other"), [("ada", "Bö"), ("Bö", "ada")])
async def test_a_user_gets_what_they_see_and_no_more(
    new_journal: NewJournal, kind: str, user: str, other: str
) -> None:
    """The words of both sides, memories and wishes; no trigger, no metadata, nobody else's."""
    async with new_journal(kind) as journal:
        await (await Tale(journal).begin()).tell(EVERYTHING)
        assert CANARY in (await full(journal)).decode()
        lines = lines_of(text := await of_user(journal, Scope(user_id=user)))
        threads = await journal.threads.list_of(user)
        shown = [line for line in lines if line["type"] == "message"]
        for thread in threads:
            page = await journal.messages.history(thread.id, limit=1_000)
            told = [line["text"] for line in shown if line["thread_id"] == thread.id]
            assert told == [message.text for message in page.messages]
    assert {line["id"] for line in lines if line["type"] == "thread"} == {t.id for t in threads}
    assert {line["type"] for line in lines} == {
        *("header", "thread", "message", "preferences", "memory", "footer")
    }
    origins = {None, "reply", "follow_up"} if user == "ada" else {None, "reply"}
    assert {line["origin"] for line in shown} == origins
    for hidden in (CANARY, "cook", f'"{other}"', *TRIGGER_PROMPTS.values()):
        assert hidden not in text.decode()
    for line in lines:
        assert not line.keys() & (KEYS - {"position"})
    assert lines[-1]["counts"]["message"] == len(shown)


async def test_only_the_users_own_wishes_are_told(new_journal: NewJournal, kind: str) -> None:
    """What is noted in a thread's settings, such as by a migration, is for operators."""
    async with new_journal(kind) as journal:
        await (await Tale(journal).begin()).tell(EVERYTHING)
        noted = {"muted": True, "migrated": {"mark": "m"}}
        await journal.threads.update("blue", settings=noted)
        await journal.users.update_settings("ada", noted, now=MADE_AT)
        text = await of_user(journal, Scope(user_id="ada"))
        assert b'"migrated"' in await full(journal)
    told = [line["wishes"] for line in lines_of(text) if "wishes" in line]
    assert [wishes for wishes in told if wishes.get("muted")]
    assert b'"migrated"' not in text


async def test_one_thread_comes_without_what_is_the_users(
    new_journal: NewJournal, kind: str
) -> None:
    """Who wants one conversation gets that one."""
    async with new_journal(kind) as journal:
        await (await Tale(journal).begin()).tell(EVERYTHING)
        lines = lines_of(await of_user(journal, Scope(threads=["blue"], user_id="ada")))
        others = lines_of(await of_user(journal, Scope(threads=["blue"], user_id="Bö")))
    assert [line["id"] for line in lines if line["type"] == "thread"] == ["blue"]
    assert {line["type"] for line in lines} == {"header", "thread", "message", "footer"}
    assert [line["type"] for line in others] == ["header", "footer"]


async def test_many_pages_are_told_once_each(new_journal: NewJournal, kind: str) -> None:
    """A thread of many pages comes whole and in order."""
    async with new_journal(kind) as journal:
        await (await Tale(journal).begin()).tell(["say", "answer"] * 220)
        lines = lines_of(await of_user(journal, Scope(user_id="ada")))
    positions = [line["position"] for line in lines if line["type"] == "message"]
    assert len(positions) == 440
    assert positions == sorted(set(positions))
