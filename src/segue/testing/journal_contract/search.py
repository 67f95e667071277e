"""Searching the messages of a user."""

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from segue.core.triggers import TRIGGER_PROMPTS
from segue.journal.journal import Journal
from segue.journal.records import EXCERPT, nested_id
from segue.testing.journal_contract.chat import Chat, position

WORDLESS = [
    "",
    " \n\t",
    '"',
    "'",
    ":*",
    "()",
    "% _ \\ ; -- /* */",
    "🙂",
    "\x00",
    "\ufeff\u202e",
    "\ud83d",
]
AROUND_A_WORD = [
    '"open',
    "'open'",
    "open AND",
    "AND OR NOT NEAR open",
    "NEAR(open, 2)",
    "text:open",
    "open*",
    "^open",
    "-open",
    "!open",
    "open & | <-> !!",
    "(open",
    "'; DROP TABLE messages; -- open",
    "$1 ? :name %s {} open",
    "open 🙂👩‍👩‍👧‍👦",
    "open\x00open",
    "half \ud83d open",
    "open 漢字 ٣ ½ ²",
]
LONG = {
    "many words": "open " + " ".join(f"word{n}" for n in range(2_000)),
    "one word many times": "open " * 2_000,
    "a long word": "x" * 50_000,
}


async def found(journal: Journal, text: str, user_id: str = "ada") -> list[str]:
    return [f.text for f in await journal.search.find(user_id, text)]


async def test_a_search_finds_messages_of_both_sides(journal: Journal, chat: Chat) -> None:
    """In upper and lower case, with the thread and the place of each, at most the limit."""
    await chat.exchange("Is the Lighthouse open?", "The lighthouse is closed.")
    await chat.exchange("And the mill?", "Open until six.")
    results = await journal.search.find("ada", "LIGHTHOUSE")
    assert {f.text for f in results} == {"Is the Lighthouse open?", "The lighthouse is closed."}
    assert {f.thread_id for f in results} == {"chat"}
    stored = {m.id: (m.text, m.type, position(m)) for m in await chat.messages()}
    assert all(stored[f.message_id] == (f.text, f.role, f.position) for f in results)
    assert len(await journal.search.find("ada", "lighthouse", limit=1)) == 1


async def test_the_best_match_comes_first(journal: Journal, chat: Chat) -> None:
    """A message with both words stands before one with either of them, by falling score."""
    for text in ("red mill here", "red boat here", "old boat here", "old house here"):
        await chat.say(text)
    results = await journal.search.find("ada", "red boat")
    assert results[0].text == "red boat here"
    assert {f.text for f in results[1:]} == {"red mill here", "old boat here"}
    scores = [f.score for f in results]
    assert scores == sorted(scores, reverse=True)


async def test_a_search_finds_only_what_a_person_may_see(journal: Journal, chat: Chat) -> None:
    """Neither a trigger's words nor a tool's are found, unless a person typed the same words."""
    words = TRIGGER_PROMPTS["check_in"]
    lease = await chat.running_follow_up()
    call = AIMessage("", tool_calls=[{"name": "lookup", "args": {"q": "tide"}, "id": "call_1"}])
    await chat.write(lease, call, ToolMessage("high tide", tool_call_id="call_1"))
    await chat.finish(lease, AIMessage("Are you there?"))
    assert await found(journal, words) == []
    assert await found(journal, "tide lookup call_1 check_in") == []
    assert await found(journal, "there") == ["Are you there?"]
    await chat.say(words)
    assert await found(journal, words) == [words]


async def test_a_search_stays_with_its_user(chat: Chat) -> None:
    """And in one thread if it is named; a nested thread is searched only then."""
    nested = nested_id("chat", "clerk")
    threads = [chat, await chat.another("second"), await chat.another("bobs", user_id="bob")]
    for each in (*threads, await chat.another(nested, agent_id="clerk")):
        await each.say(f"The lighthouse of {each.thread_id}.")

    async def places(user_id: str, thread_id: str | None = None) -> set[str]:
        hits = await chat.journal.search.find(user_id, "lighthouse", thread_id=thread_id)
        return {hit.thread_id for hit in hits}

    assert await places("ada") == {"chat", "second"}
    assert await places("bob") == {"bobs"}
    assert await places("ada", "second") == {"second"}
    assert await places("ada", nested) == {nested}
    assert await places("ada", "bobs") == set()


async def test_words_inside_blocks_are_found(journal: Journal, chat: Chat) -> None:
    """A message of blocks is found by its text."""
    await chat.say()
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    await chat.finish(
        await chat.take_turn(), AIMessage([{"type": "text", "text": "A lighthouse."}, picture])
    )
    assert [f.text for f in await journal.search.find("ada", "lighthouse")] == ["A lighthouse."]
    assert await journal.search.find("ada", "AAAA") == []


@pytest.mark.parametrize("before", ["", "sand " * 2_000])
@pytest.mark.parametrize("after", ["", " sand" * 2_000])
async def test_a_long_text_is_found_as_an_excerpt(chat: Chat, before: str, after: str) -> None:
    """An excerpt has the match in it, and an ellipsis on each side where more of the text is."""
    await chat.say(f"{before}Lighthouse{after}")
    [hit] = await chat.journal.search.find("ada", "rain lighthouse")
    assert "Lighthouse" in hit.text
    assert len(hit.text.strip("…")) <= EXCERPT
    assert hit.text.startswith("…") == bool(before)
    assert hit.text.endswith("…") == bool(after)


async def test_an_excerpt_starts_at_the_first_of_the_words(journal: Journal, chat: Chat) -> None:
    """Of several words, the one that comes first in the text is shown."""
    await chat.say(f"{'sand ' * 200}mill{' sand' * 200} lighthouse")
    [hit] = await journal.search.find("ada", "lighthouse mill")
    assert "mill" in hit.text
    assert "lighthouse" not in hit.text


async def test_any_text_is_a_valid_query(journal: Journal, chat: Chat) -> None:
    """Signs alone match nothing and hide no word beside them, and a query may be a whole page."""
    await chat.say("Is it open?")
    for text in (*WORDLESS, *AROUND_A_WORD, *LONG.values()):
        assert await found(journal, text) == ["Is it open?"] * ("open" in text), ascii(text)
