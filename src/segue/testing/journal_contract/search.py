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
    """Own words and the agent's are found, with the thread and the place of the message."""
    await chat.exchange("Is the lighthouse open?", "The lighthouse is closed.")
    await chat.exchange("And the mill?", "Open until six.")
    results = await journal.search.find("ada", "lighthouse")
    assert {f.text for f in results} == {"Is the lighthouse open?", "The lighthouse is closed."}
    assert {f.thread_id for f in results} == {"chat"}
    stored = {m.id: (m.text, m.type, position(m)) for m in await chat.messages()}
    assert all(stored[f.message_id] == (f.text, f.role, f.position) for f in results)


async def test_upper_and_lower_case_are_the_same_to_a_search(journal: Journal, chat: Chat) -> None:
    """A person need not remember how a word was written."""
    await chat.say("Is the Lighthouse open?")
    assert await found(journal, "LIGHTHOUSE") == ["Is the Lighthouse open?"]


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
    """Neither a trigger's words nor a tool's are found."""
    await chat.follow_up()
    lease = await chat.take_turn()
    call = AIMessage("", tool_calls=[{"name": "lookup", "args": {"q": "tide"}, "id": "call_1"}])
    await chat.write(lease, call, ToolMessage("high tide", tool_call_id="call_1"))
    await chat.finish(lease, AIMessage("Are you there?"))
    assert await found(journal, TRIGGER_PROMPTS["check_in"]) == []
    assert await found(journal, "tide lookup call_1 check_in") == []
    assert await found(journal, "there") == ["Are you there?"]


async def test_a_user_who_typed_a_triggers_words_finds_them(journal: Journal, chat: Chat) -> None:
    """The same words are found where a person said them."""
    words = TRIGGER_PROMPTS["check_in"]
    await chat.follow_up()
    await chat.say(words)
    assert await found(journal, words) == [words]


async def test_a_search_stays_with_its_user(journal: Journal, chat: Chat) -> None:
    """Nobody finds another user's messages."""
    bobs = await chat.another("bobs", user_id="bob")
    await bobs.say("Is the lighthouse open?")
    assert await found(journal, "lighthouse") == []
    assert await found(journal, "lighthouse", user_id="bob") == ["Is the lighthouse open?"]


async def test_a_search_can_stay_in_one_thread(journal: Journal, chat: Chat) -> None:
    """With a thread named, messages of others are left out."""
    second = await chat.another("second")
    await chat.say("Is the lighthouse open?")
    await second.say("The lighthouse, please.")
    assert {f.thread_id for f in await journal.search.find("ada", "lighthouse")} == {
        "chat",
        "second",
    }
    [one] = await journal.search.find("ada", "lighthouse", thread_id="second")
    assert one.thread_id == "second"


async def test_what_agents_asked_each_other_is_found_only_where_it_was_said(chat: Chat) -> None:
    """A person finds own conversations; a nested thread is searched when it is named."""
    nested = await chat.another(nested_id("chat", "clerk"), agent_id="clerk")
    await nested.say("Is the lighthouse open?")
    assert await found(chat.journal, "lighthouse") == []
    [one] = await chat.journal.search.find("ada", "lighthouse", thread_id=nested.thread_id)
    assert one.thread_id == "chat/clerk"


async def test_a_search_returns_at_most_its_limit(journal: Journal, chat: Chat) -> None:
    """A word that is everywhere does not return everything."""
    for n in range(4):
        await chat.say(f"Lighthouse {n}")
    assert len(await journal.search.find("ada", "lighthouse", limit=3)) == 3


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


async def test_a_query_without_words_finds_nothing(journal: Journal, chat: Chat) -> None:
    """Signs alone are a valid query that matches no message."""
    await chat.say("Is it open?")
    results = {text: await found(journal, text) for text in WORDLESS}
    assert results == {text: [] for text in WORDLESS}


async def test_signs_around_a_word_do_not_hide_it(journal: Journal, chat: Chat) -> None:
    """What commands a search engine means nothing to a person, who is looking for a word."""
    await chat.say("Is it open?")
    results = {text: await found(journal, text) for text in AROUND_A_WORD}
    assert results == {text: ["Is it open?"] for text in AROUND_A_WORD}


async def test_a_query_may_be_long(journal: Journal, chat: Chat) -> None:
    """A whole page pasted into the search field is a valid query."""
    await chat.say("Is it open?")
    results = {kind: await found(journal, text) for kind, text in LONG.items()}
    assert results == {kind: ["Is it open?"] if "open" in LONG[kind] else [] for kind in LONG}
