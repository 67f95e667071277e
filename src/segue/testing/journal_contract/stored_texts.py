"""Texts that a model or a person wrote, in every place that takes one.

Half an emoji and a NUL come out of models and clipboards. Where a database cannot hold them they
are replaced as `storable` does it; they never stop a step.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from segue.core.messages import user_message
from segue.core.text import storable
from segue.errors import UsageError
from segue.journal.memories import NewMemory
from segue.journal.records import Decision, TimerState
from segue.testing.journal_contract.chat import HOUR, Chat
from segue.testing.journal_contract.fidelity import TEXTS

ODD = "half \ud83d and\x00 NUL 🙂"


async def title(chat: Chat) -> str | None:
    return (await chat.journal.threads.update("chat", title=ODD)).title


async def summary(chat: Chat) -> str:
    batch = await chat.exchange()
    saved = await chat.journal.summaries.save("chat", ODD, [batch], ids=chat.ids, now=chat.now)
    return saved.text


async def turn_error(chat: Chat) -> str | None:
    accepted = await chat.say()
    await chat.journal.turns.fail(await chat.take_turn(), ODD, ids=chat.ids, now=chat.now)
    return (await chat.journal.turns.get(accepted.turn.id)).error


async def withdrawal(chat: Chat) -> str | None:
    turn = await chat.follow_up()
    await chat.journal.turns.withdraw(await chat.take_turn(), ODD, ids=chat.ids, now=chat.now)
    return (await chat.journal.turns.get(turn.id)).error


async def text_so_far(chat: Chat) -> str | None:
    await chat.say()
    await chat.journal.turns.save_draft(await chat.take_turn(), "m-1", ODD)
    partial = (await chat.journal.feed.read("chat")).drafts.get("chat")
    return None if partial is None else partial.text


async def timer_reason(chat: Chat) -> str | None:
    return (await chat.arm(reason=ODD)).reason


async def postponement(chat: Chat) -> str | None:
    await chat.arm()
    lease = await chat.take_timer()
    timer = await chat.journal.timers.postpone(lease, chat.now + HOUR, ODD, now=chat.now)
    return timer.state_reason


async def suppression(chat: Chat) -> str | None:
    await chat.arm()
    lease = await chat.take_timer()
    timer = await chat.journal.timers.close(
        lease, TimerState.SUPPRESSED, ODD, ids=chat.ids, now=chat.now
    )
    return timer.state_reason


async def effect_error(chat: Chat) -> str | None:
    await chat.queue_effect()
    effect = await chat.journal.effects.retry(await chat.take_effect(), ODD, retry_at=None)
    return effect.error


async def evidence(chat: Chat) -> str | None:
    await chat.queue_effect()
    await chat.journal.effects.complete(await chat.take_effect(), ODD)
    [effect] = await chat.journal.effects.list_of("chat")
    return effect.evidence


async def memory(chat: Chat) -> str:
    new = NewMemory("guide", "ada", "fact", ODD)
    return (await chat.journal.memories.put(new, ids=chat.ids, now=chat.now)).content


PLACES: dict[str, Callable[[Chat], Awaitable[str | None]]] = {
    "a title": title,
    "a summary": summary,
    "a turn's error": turn_error,
    "why a turn was withdrawn": withdrawal,
    "the text so far": text_so_far,
    "a timer's reason": timer_reason,
    "why a timer was put off": postponement,
    "why a timer was closed": suppression,
    "an effect's error": effect_error,
    "an effect's evidence": evidence,
    "a memory": memory,
}


@pytest.mark.parametrize("place", PLACES)
async def test_odd_letters_stop_no_step(chat: Chat, place: str) -> None:
    """The text is stored, with a replacement for what cannot be."""
    assert await PLACES[place](chat) in (ODD, storable(ODD))


async def settings(chat: Chat, values: dict[str, Any]) -> object:
    return (await chat.journal.threads.update("chat", settings=values)).settings


async def user_settings(chat: Chat, values: dict[str, Any]) -> object:
    await chat.journal.users.update_settings("ada", values, now=chat.now)
    return await chat.journal.users.get_settings("ada")


async def turn_payload(chat: Chat, values: dict[str, Any]) -> object:
    return (await chat.say(payload=values)).turn.payload


async def given_answer(chat: Chat, values: dict[str, Any]) -> object:
    asked = await chat.ask_back()
    turn = await chat.journal.inbox.answer(asked.id, values, ids=chat.ids, now=chat.now)
    return turn.payload["answer"]


async def ending(chat: Chat, values: dict[str, Any]) -> object:
    await chat.say()
    lease = await chat.take_turn()
    await chat.finish(lease, says=values)
    return (await chat.journal.turns.get(lease.turn.id)).ending


async def timer_payload(chat: Chat, values: dict[str, Any]) -> object:
    return (await chat.arm(payload=values)).payload


async def effect_payload(chat: Chat, values: dict[str, Any]) -> object:
    await chat.queue_effect(**values)
    return (await chat.take_effect()).effect.payload


async def facts(chat: Chat, values: dict[str, Any]) -> object:
    reasons = tuple(values.values())
    made = Decision(
        chat.ids.next(), "chat", "gates", "allow", reasons, values, None, None, chat.now
    )
    await chat.journal.decisions.record(made)
    [read] = await chat.journal.decisions.list_of("chat")
    assert read.reasons == reasons
    return read.facts


async def memory_metadata(chat: Chat, values: dict[str, Any]) -> object:
    new = NewMemory("guide", "ada", "fact", "A fact.", values)
    return (await chat.journal.memories.put(new, ids=chat.ids, now=chat.now)).metadata


VALUES: dict[str, Callable[[Chat, dict[str, Any]], Awaitable[object]]] = {
    "a thread's settings": settings,
    "a user's settings": user_settings,
    "what comes along with a message": turn_payload,
    "a person's answer": given_answer,
    "what the end of a turn says": ending,
    "a timer's payload": timer_payload,
    "an effect's payload": effect_payload,
    "a decision's facts": facts,
    "a memory's metadata": memory_metadata,
}


@pytest.mark.parametrize("place", VALUES)
async def test_values_read_back_the_same_whatever_texts_they_hold(chat: Chat, place: str) -> None:
    """What is stored as JSON keeps every letter, odd ones too."""
    assert await VALUES[place](chat, dict(TEXTS)) == TEXTS


async def test_a_message_with_odd_letters_is_listed_and_found(chat: Chat) -> None:
    """Title, preview and search work with what can be shown of a text."""
    message = user_message("Is it open?").model_copy(update={"content": ODD})
    await chat.journal.inbox.accept("chat", message, ids=chat.ids, now=chat.now)
    [thread] = await chat.journal.threads.list_of("ada")
    assert thread.title is not None
    assert thread.title.startswith("half")
    assert thread.preview == thread.title
    [found] = await chat.journal.search.find("ada", "half")
    assert found.text == storable(ODD.strip())


HALF = "half \ud83d"


NAMED: dict[str, Callable[[Chat], Awaitable[object]]] = {
    "a new thread": lambda chat: chat.journal.threads.create(
        HALF, agent_id="guide", user_id="ada", now=chat.now
    ),
    "a thread": lambda chat: chat.journal.threads.get(HALF),
    "a user": lambda chat: chat.journal.threads.list_of(HALF),
    "a user with settings": lambda chat: chat.journal.users.update_settings(HALF, {}, now=chat.now),
    "a client's message": lambda chat: chat.say(client_message_id=HALF),
    "a message": lambda chat: chat.journal.inbox.accept(
        "chat", user_message("Is it open?", id=HALF), ids=chat.ids, now=chat.now
    ),
    "a memory": lambda chat: chat.journal.memories.put(
        NewMemory("guide", "ada", HALF, "A fact."), ids=chat.ids, now=chat.now
    ),
}


async def test_an_id_that_no_database_takes_is_refused(chat: Chat) -> None:
    """A name is never changed silently: half an emoji in it is the caller's error."""
    for step in NAMED.values():
        with pytest.raises(UsageError):
            await step(chat)
    assert await chat.messages() == []
    assert await chat.journal.turns.list_of("chat") == []
