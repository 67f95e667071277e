"""Texts that a model or a person wrote, in every place that takes one.

Half an emoji and a NUL come out of models and clipboards. Where a database cannot hold them they
are replaced as `storable` does it; they never stop a step.
"""

from collections.abc import Awaitable

import pytest

from segue.core.messages import user_message
from segue.core.text import storable
from segue.errors import UsageError
from segue.journal.memories import NewMemory
from segue.journal.records import TimerState
from segue.testing.journal_contract.chat import AGENT, NOW, USER, Chat
from segue.testing.journal_contract.fidelity import TEXTS

ODD = "half \ud83d and\x00 NUL 🙂"


async def test_odd_letters_stop_no_step(chat: Chat) -> None:
    """The text is stored wherever one is taken, with a replacement for what cannot be."""
    journal, said = chat.journal, list[str | None]()
    said.append((await journal.threads.update("chat", title=ODD)).title)
    said.append((await chat.summarise(ODD, [await chat.exchange()])).text)
    lease = await chat.running_reply()
    await journal.turns.save_draft(lease, "m-1", ODD)
    said.append((await journal.feed.read("chat")).drafts["chat"].text)
    await chat.fail(lease, ODD)
    said.append((await chat.turn(lease.turn.id)).error)
    lease = await chat.running_follow_up()
    await chat.withdraw(lease, ODD)
    said.append((await chat.turn(lease.turn.id)).error)
    said.append((await chat.arm(reason=ODD)).reason)
    said.append((await chat.postpone(await chat.take_timer(), chat.now, ODD)).state_reason)
    closed = await chat.close(await chat.take_timer(), TimerState.SUPPRESSED, ODD)
    said.append(closed.state_reason)
    await chat.queue_effect()
    said.append((await journal.effects.retry(await chat.take_effect(), ODD, retry_at=NOW)).error)
    await journal.effects.complete(await chat.take_effect(), ODD)
    said.append((await journal.effects.list_of("chat"))[0].evidence)
    fact = NewMemory(AGENT, USER, "fact", ODD)
    said.append((await journal.memories.put(fact, ids=chat.ids, now=NOW)).content)
    assert len(said) == 11
    assert {*said} <= {ODD, storable(ODD)}


async def test_values_read_back_the_same_whatever_texts_they_hold(chat: Chat) -> None:
    """What is stored as JSON keeps every letter, odd ones too, in every place that takes values."""
    journal, read = chat.journal, dict[str, object]()
    read["thread"] = (await journal.threads.update("chat", settings=TEXTS)).settings
    read["user"] = await journal.users.update_settings(USER, TEXTS, now=NOW)
    read["user later"] = await journal.users.get_settings(USER)
    read["turn"] = (await chat.say(payload=TEXTS)).turn.payload
    lease = await chat.take_turn()
    await chat.finish(lease, says=TEXTS)
    read["end"] = (await chat.turn(lease.turn.id)).ending
    read["answer"] = (await chat.answer((await chat.ask_back()).id, TEXTS)).payload["answer"]
    await chat.reply()
    read["timer"] = (await chat.arm(payload=TEXTS)).payload
    await chat.queue_effect(**TEXTS)
    read["effect"] = (await chat.take_effect()).effect.payload
    made = chat.decision(reasons=tuple(TEXTS.values()), facts=TEXTS)
    await journal.decisions.record(made)
    [decision] = await chat.decisions()
    read["decision"] = decision.facts
    fact = NewMemory(AGENT, USER, "fact", "A fact.", TEXTS)
    read["memory"] = (await journal.memories.put(fact, ids=chat.ids, now=NOW)).metadata
    assert [place for place, values in read.items() if values != TEXTS] == []
    assert decision.reasons == made.reasons


async def test_a_message_with_odd_letters_is_listed_and_found(chat: Chat) -> None:
    """Title, preview and search work with what can be shown of a text."""
    message = user_message("Is it open?").model_copy(update={"content": ODD})
    await chat.say(message)
    [thread] = await chat.journal.threads.list_of("ada")
    assert thread.title is not None
    assert thread.title.startswith("half")
    assert thread.preview == thread.title
    [found] = await chat.journal.search.find("ada", "half")
    assert found.text == storable(ODD.strip())


HALF = "half \ud83d"


async def test_an_id_that_no_database_takes_is_refused(chat: Chat) -> None:
    """A name is never changed silently: half an emoji in it is the caller's error."""
    journal = chat.journal
    steps: list[Awaitable[object]] = [
        journal.threads.create(HALF, agent_id=AGENT, user_id=USER, now=NOW),
        journal.threads.get(HALF),
        journal.threads.list_of(HALF),
        journal.users.update_settings(HALF, {}, now=NOW),
        chat.say(client_message_id=HALF),
        chat.say(user_message("Is it open?", id=HALF)),
        journal.memories.put(NewMemory(AGENT, USER, HALF, "A fact."), ids=chat.ids, now=NOW),
    ]
    for step in steps:
        with pytest.raises(UsageError):
            await step
    assert await chat.messages() == []
    assert await chat.turns() == []
