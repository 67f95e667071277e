"""Memory search: the query, the words of a text, and the ranking of matches."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
)

from segue import MemoryQuery, TriggerType, memory_query, synthetic_message, user_message
from segue.core.memory import (
    QuerySource,
    best_matches,
    full_score,
    indexed_words,
    query_words,
    relevances,
    stem,
    word_weights,
)
from tests.histories import calling, result

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


class Sealed(HumanMessage):
    """A message that fails the test of whoever looks at what it says."""

    def __getattribute__(self, name: str) -> Any:
        if name in {"content", "content_blocks", "text"}:
            raise AssertionError(f"{name} of a trigger was read")
        return super().__getattribute__(name)


def sealed_trigger() -> HumanMessage:
    kwargs = {"synthetic": True, "trigger_type": "check_in"}
    return Sealed(content="Continue our conversation naturally.", additional_kwargs=kwargs)


def test_a_real_message_is_its_own_query() -> None:
    """What the user just asked is what is searched, and the source says so."""
    query = memory_query([user_message("What should I eat for dinner?")], summary="Likes pasta.")
    assert query == MemoryQuery("What should I eat for dinner?", QuerySource.CURRENT_MESSAGE)


def test_a_trigger_is_searched_by_the_last_real_message() -> None:
    """A follow-up on Paris looks for Paris."""
    messages = [
        user_message("Tell me about Paris"),
        AIMessage("Paris is the capital of France."),
        synthetic_message("check_in"),
    ]
    query = memory_query(messages)
    assert query == MemoryQuery("Tell me about Paris", QuerySource.LAST_REAL_USER_MESSAGE)


def test_the_newest_of_two_real_messages_is_searched() -> None:
    """A follow-up belongs to where the talk is now, not to where it began."""
    messages = [
        user_message("Tell me about Paris"),
        AIMessage("Gladly."),
        user_message("What about the museums there?"),
        AIMessage("The Louvre comes first."),
        synthetic_message("question_unanswered"),
    ]
    query = memory_query(messages, summary="A talk about France.")
    assert query is not None
    assert query.text == "What about the museums there?"


def test_several_triggers_in_a_row_are_all_passed_over() -> None:
    """However often the agent spoke on its own, the search goes back to the user."""
    messages: list[BaseMessage] = [user_message("Tell me about Paris")]
    for trigger in TriggerType:
        messages += [synthetic_message(trigger), AIMessage("Anything else?")]
    query = memory_query([*messages, synthetic_message("check_in")])
    assert query == MemoryQuery("Tell me about Paris", QuerySource.LAST_REAL_USER_MESSAGE)


def test_a_thread_of_triggers_only_is_searched_by_its_summary() -> None:
    """Without any real message the summary stands in, without the blanks around it."""
    messages = [AIMessage("Welcome back!"), synthetic_message("check_in")]
    query = memory_query(messages, summary="  User is planning to travel to Japan.\n")
    assert query == MemoryQuery(
        "User is planning to travel to Japan.", QuerySource.CONVERSATION_SUMMARY
    )


def test_a_real_message_is_preferred_to_a_summary_that_talks_of_triggers() -> None:
    """A summary spoiled by trigger words is never used while the user's words are there."""
    messages = [user_message("Tell me about Paris"), synthetic_message("check_in")]
    query = memory_query(messages, summary="The system sent an autonomous check_in trigger.")
    assert query is not None
    assert query.text == "Tell me about Paris"


@pytest.mark.parametrize("summary", [None, "", "   ", "\n\t "])
def test_without_any_source_there_is_no_query(summary: str | None) -> None:
    """A trigger on an empty thread is searched by nothing; a blank summary is no source."""
    assert memory_query([synthetic_message("check_in")], summary) is None
    assert memory_query([], summary) is None


def test_an_empty_thread_with_a_summary_is_searched_by_it() -> None:
    """When all messages are summarised away the summary is still there."""
    query = memory_query([], summary="Likes pasta.")
    assert query == MemoryQuery("Likes pasta.", QuerySource.CONVERSATION_SUMMARY)


def test_the_text_parts_of_a_multimodal_message_are_the_query() -> None:
    """Pictures are left out, and text parts stand one per line without blanks around them."""
    content: list[Any] = [
        "Look at this:",
        PICTURE,
        {"type": "text", "text": "  my cat  "},
        {"type": "text", "text": "   "},
        {"type": "text-plain", "text": "on the sofa"},
    ]
    query = memory_query([HumanMessage(content)])
    assert query == MemoryQuery("Look at this:\nmy cat\non the sofa", QuerySource.CURRENT_MESSAGE)


@pytest.mark.parametrize(
    "wordless",
    [
        pytest.param([PICTURE], id="picture only"),
        pytest.param([PICTURE, {"type": "text", "text": " "}], id="picture and blank text"),
        pytest.param([{"type": "text", "text": None}], id="text block without words"),
        pytest.param(" \n", id="blank"),
        pytest.param("", id="empty"),
    ],
)
def test_a_message_without_words_is_passed_over(wordless: str | list[Any]) -> None:
    """What cannot be searched for leaves the word to the message before it."""
    messages = [user_message("Which cat is this?"), AIMessage("Show me."), HumanMessage(wordless)]
    query = memory_query(messages)
    assert query == MemoryQuery("Which cat is this?", QuerySource.LAST_REAL_USER_MESSAGE)
    assert memory_query([HumanMessage(wordless)]) is None


def test_the_turns_message_stays_current_while_its_tools_run() -> None:
    """Half-way through a turn, after calls and results, the query is still the turn's own."""
    messages = [
        user_message("Tell me about Paris"),
        AIMessage("Gladly."),
        user_message("Is the Louvre open?"),
        calling("call_1"),
        result("call_1", "open until six"),
    ]
    query = memory_query(messages)
    assert query == MemoryQuery("Is the Louvre open?", QuerySource.CURRENT_MESSAGE)


def test_a_follow_ups_query_stays_the_users_while_its_tools_run() -> None:
    """Calls and results after a trigger do not make the trigger's words the query."""
    messages = [
        user_message("Is the Louvre open?"),
        AIMessage("Let me see."),
        synthetic_message("task_incomplete"),
        calling("call_1"),
        result("call_1", "open until six"),
    ]
    query = memory_query(messages)
    assert query == MemoryQuery("Is the Louvre open?", QuerySource.LAST_REAL_USER_MESSAGE)


@pytest.mark.parametrize(
    "other",
    [AIMessage("I am an agent."), SystemMessage("Be kind."), result("call_1", "a tool's words")],
    ids=lambda message: message.type,
)
def test_only_people_are_searched_for(other: BaseMessage) -> None:
    """Words of the agent, of a tool or of the system are never a query."""
    assert memory_query([other]) is None


def test_a_trigger_is_known_by_its_flag_without_reading_it() -> None:
    """The content of a synthetic message is not looked at, not even to compare it."""
    messages = [user_message("Tell me about Paris"), sealed_trigger(), sealed_trigger()]
    query = memory_query(messages)
    assert query is not None
    assert query.text == "Tell me about Paris"
    assert memory_query([sealed_trigger()]) is None


def test_a_user_who_types_a_prompts_words_is_searched_by_them() -> None:
    """The same words are a query when a person wrote them."""
    query = memory_query([user_message("Continue our conversation naturally.")])
    assert query == MemoryQuery("Continue our conversation naturally.", QuerySource.CURRENT_MESSAGE)


def test_the_search_stops_at_the_first_real_message() -> None:
    """A long history behind the user's last words is never walked through."""

    class Endless(list[BaseMessage]):
        def __reversed__(self) -> Iterator[BaseMessage]:
            yield synthetic_message("check_in")
            yield AIMessage("Gladly.")
            yield user_message("Tell me about Paris")
            raise AssertionError("went on behind the message that was found")

    query = memory_query(Endless())
    assert query is not None
    assert query.text == "Tell me about Paris"


def test_the_sources_have_stable_names() -> None:
    """Logs and statistics tell the three sources apart by these texts."""
    assert [source.value for source in QuerySource] == [
        "current_message",
        "last_real_user_message",
        "conversation_summary",
    ]


words = st.text(min_size=1).filter(str.strip)
triggers = st.builds(
    synthetic_message,
    st.sampled_from(TriggerType),
    st.one_of(st.none(), st.text()),
    st.one_of(st.none(), words),
)
not_the_users = st.one_of(triggers, st.builds(AIMessage, words), st.builds(SystemMessage, words))
talk = st.lists(st.one_of(not_the_users, st.builds(HumanMessage, words)), max_size=6)


@given(talk, words, st.lists(not_the_users, max_size=6), st.text())
def test_whatever_follows_the_users_last_words_they_are_the_query(
    before: list[BaseMessage], own: str, after: list[BaseMessage], summary: str
) -> None:
    """No trigger, prompt or summary ever takes the place of what the user said last."""
    query = memory_query([*before, HumanMessage(own), *after], summary)
    assert query is not None
    assert query.text == own.strip()


@given(st.lists(not_the_users, max_size=8), words)
def test_a_thread_without_the_user_is_never_searched_by_a_triggers_words(
    messages: list[BaseMessage], summary: str
) -> None:
    """However a trigger is worded, its words are no query: the summary is, or nothing."""
    query = memory_query(messages, summary)
    assert query == MemoryQuery(summary.strip(), QuerySource.CONVERSATION_SUMMARY)
    assert memory_query(messages) is None


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        # The examples in Porter's own paper, step by step.
        ("caresses", "caress"), ("ponies", "poni"), ("ties", "ti"), ("caress", "caress"),
        ("cats", "cat"), ("feed", "feed"), ("agreed", "agre"), ("plastered", "plaster"),
        ("bled", "bled"), ("motoring", "motor"), ("sing", "sing"), ("conflated", "conflat"),
        ("troubled", "troubl"), ("sized", "size"), ("hopping", "hop"), ("tanned", "tan"),
        ("falling", "fall"), ("hissing", "hiss"), ("fizzed", "fizz"), ("failing", "fail"),
        ("filing", "file"), ("happy", "happi"), ("sky", "sky"), ("relational", "relat"),
        ("conditional", "condit"), ("rational", "ration"), ("valenci", "valenc"),
        ("digitizer", "digit"), ("radicalli", "radic"), ("vietnamization", "vietnam"),
        ("operator", "oper"), ("feudalism", "feudal"), ("decisiveness", "decis"),
        ("hopefulness", "hope"), ("sensibiliti", "sensibl"), ("triplicate", "triplic"),
        ("formative", "form"), ("formalize", "formal"), ("electrical", "electr"),
        ("goodness", "good"), ("revival", "reviv"), ("allowance", "allow"), ("airliner", "airlin"),
        ("adjustable", "adjust"), ("irritant", "irrit"), ("replacement", "replac"),
        ("adjustment", "adjust"), ("dependent", "depend"), ("adoption", "adopt"),
        ("communism", "commun"), ("effective", "effect"), ("bowdlerize", "bowdler"),
        ("probate", "probat"), ("rate", "rate"), ("cease", "ceas"), ("controll", "control"),
        ("roll", "roll"),
    ],
)  # fmt: skip
def test_stems_are_porters(word: str, expected: str) -> None:
    """Stored stems must match those of later versions, so the algorithm is the frozen one."""
    assert stem(word) == expected


@pytest.mark.parametrize("word", ["", "a", "is", "2027", "b2b", "größe", "чай", "茶"])
def test_only_english_letters_are_cut(word: str) -> None:
    """Short words, numbers and other alphabets stay as they are."""
    assert stem(word) == word


def test_forms_of_a_word_are_one_word() -> None:
    """Case, accents and endings do not count."""
    assert indexed_words("Walking WALKED walks") == ["walk", "walk", "walk"]
    assert indexed_words("Crêpe CREPES") == ["crepe", "crepe"]


def test_filler_words_are_left_out() -> None:
    """They are in every text, so they say nothing about any."""
    assert query_words("What is the name of my dog? I'm sure you don't know.") == [
        "name",
        "dog",
        "sure",
        "know",
    ]
    assert query_words("Who am I?") == []


def test_scripts_without_spaces_are_cut_into_pairs() -> None:
    """A word is found inside of a sentence, and so is a single sign."""
    sentence = indexed_words("我喜欢喝茶, tea")
    assert set(query_words("喝茶")) <= set(sentence)
    assert set(query_words("茶")) <= set(sentence)
    assert query_words("茶叶") == ["茶叶"]
    assert not set(query_words("茶叶")) & set(sentence)
    assert "tea" in sentence


def test_signs_are_no_words() -> None:
    """Emoji, marks and half a character ask for nothing."""
    assert query_words("🙂 ❤️ ½% _ \x00 \ud83d \ufeff -- ...") == ["1", "2"]


def test_a_long_text_has_a_bounded_number_of_words() -> None:
    """A page pasted into a query costs no more than a paragraph."""
    assert len(query_words("tea " * 100_000)) == 1_000
    assert [len(word) for word in query_words("x" * 50_000)] == [64]


@given(st.text(max_size=200))
def test_any_text_has_words_that_find_it(text: str) -> None:
    """A memory is found in its own words, and these hold nothing that needs quoting."""
    words = indexed_words(text)
    assert set(query_words(text)) <= set(words)
    assert not any(sign.isspace() or sign in "'\":\\&|!()<>*" for word in words for sign in word)


SCORES = st.dictionaries(st.integers(1, 50), st.integers(-100, 100).map(lambda n: n / 100))
WORD_SCORES = st.dictionaries(st.integers(1, 50), st.floats(0.01, 9), max_size=20)


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    """How much it says about a text falls with the number of texts that hold it."""
    weights = [word_weights(["tea"], {"tea": n}, 100)["tea"] for n in (1, 10, 50, 100)]
    assert all(rarer > commoner for rarer, commoner in pairwise(weights))


def test_a_word_that_is_everywhere_still_counts_for_a_text() -> None:
    """In a small namespace most words are common; none counts against a text."""
    assert word_weights(["tea"], {"tea": 2}, 2)["tea"] > 0


def test_a_word_asked_twice_counts_twice() -> None:
    """Who repeats a word in a question means it; one that nobody wrote is worth nothing."""
    weights = word_weights(["tea", "cat", "tea", "fox"], {"tea": 3, "cat": 3}, 9)
    assert weights["tea"] == pytest.approx(2 * weights["cat"])
    assert set(weights) == {"tea", "cat"}


def test_the_weight_decides_between_words_and_meaning() -> None:
    """All of it on one side ranks by that side."""
    by_text, by_vector = {1: 3.0, 2: 1.0}, {1: 0.1, 2: 0.9, 3: 0.5}
    assert best(by_text, by_vector, 1.0)[0] == 1
    assert best(by_text, by_vector, 0.0) == [2, 3, 1]


def best(by_text: dict[int, float], by_vector: dict[int, float], weight: float) -> list[int]:
    return list(best_matches(by_text, by_vector, text_weight=weight, threshold=None, limit=10))


def test_rounding_does_not_outweigh_words() -> None:
    """Vectors that differ by nothing but rounding leave the decision to the words."""
    assert best({2: 1.0}, {1: 0.5 + 1e-8, 2: 0.5}, 0.1) == [2, 1]


def test_without_vectors_the_words_decide_whatever_the_weight() -> None:
    """An embedder that is away changes no order of words."""
    assert best({1: 1.0, 2: 2.0}, {}, 0.0) == [2, 1]


def test_what_is_far_and_shares_no_word_is_left_out() -> None:
    """The threshold is for meaning; a common word is a reason of its own."""
    found = best_matches(
        {1: 1.0}, {1: 0.1, 2: 0.1, 3: 0.3}, text_weight=0.5, threshold=0.3, limit=10
    )
    assert set(found) == {1, 3}


def test_of_equals_the_older_one_comes_first() -> None:
    """A search that is made again gives the same order."""
    assert best({}, {3: 0.5, 1: 0.5, 2: 0.5}, 0.5) == [1, 2, 3]


@given(WORD_SCORES, SCORES, st.floats(0, 1), st.none() | st.floats(-1, 1), st.integers(1, 10))
def test_the_best_come_first_and_no_more_than_asked(
    by_text: dict[int, float],
    by_vector: dict[int, float],
    weight: float,
    threshold: float | None,
    limit: int,
) -> None:
    """Whatever the scores: falling order, within the limit, and only what was scored."""
    found = best_matches(by_text, by_vector, text_weight=weight, threshold=threshold, limit=limit)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert len(found) <= limit
    assert found.keys() <= by_text.keys() | by_vector.keys()


@given(WORD_SCORES, SCORES, st.floats(0, 1))
def test_a_limit_only_cuts_the_list(
    by_text: dict[int, float], by_vector: dict[int, float], weight: float
) -> None:
    """The first few of all are the few that are asked for."""
    few, every = (
        list(best_matches(by_text, by_vector, text_weight=weight, threshold=None, limit=limit))
        for limit in (3, 100)
    )
    assert few == every[:3]
    assert set(every) == by_text.keys() | by_vector.keys()


@given(by_text=WORD_SCORES, by_vector=SCORES, full=st.floats(0.01, 20))
def test_relevance_has_a_scale_and_keeps_the_order(
    by_text: dict[int, float], by_vector: dict[int, float], full: float
) -> None:
    """From 0 to 1, never rising down the list, and at least as much as the similarity."""
    ranked = best(by_text, by_vector, 0.5)
    scores = relevances(ranked, by_text, by_vector, full=full)
    assert list(scores) == ranked
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    assert all(0 <= score <= 1 for score in scores.values())
    assert all(scores[item] >= near for item, near in by_vector.items() if item in scores)


def test_an_average_memory_with_all_words_once_is_fully_relevant() -> None:
    """A word that no memory holds counts as well: without it something is missing."""
    asked, spread = ["tea", "cake"], {"tea": 2, "cake": 1}
    weights = word_weights(asked, spread, 10)
    assert full_score(asked, spread, 10) == pytest.approx(sum(weights.values()))
    assert full_score([*asked, "jazz"], spread, 10) > full_score(asked, spread, 10)
