"""Batches as a text to be summed up, and a summary within its bounds."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from segue import Batch, BatchType, settle, stamp, synthetic_message
from segue.core.compression import cut_at_sentence, first_fitting, write_transcript
from segue.core.messages import continuation_message
from segue.core.tokens import estimate_text
from tests.histories import calling, exchange, positions, result, ticking_generator

PLENTY = 100_000
CANARY = "zebra crossing"


def batches_of(*cycles: list[BaseMessage], kind: BatchType | None = None) -> list[Batch]:
    generator = ticking_generator()
    stamped = [stamp(cycle, generator, batch_type=kind) for cycle in cycles]
    return [Batch(positions(cycle)[0], cycle) for cycle in stamped]


def told(batches: list[Batch], max_tokens: int = PLENTY) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = json.loads(write_transcript(batches, max_tokens))
    return lines


def test_it_is_told_who_said_what() -> None:
    """In order, whichever way the batches come."""
    cycle = [
        HumanMessage("Is it open?"),
        calling("c1", text="Let me see.", name="hours"),
        result("c1", "9 to 18", name="hours"),
        AIMessage("Until six."),
    ]
    batches = batches_of(
        cycle, [SystemMessage("It rains."), HumanMessage("Thanks."), AIMessage("!")]
    )
    lines = [
        {"from": "user", "text": "Is it open?"},
        {"from": "agent", "text": "Let me see.", "calls": ['hours {"n": 0}']},
        {"from": "tool hours", "text": "9 to 18"},
        {"from": "agent", "text": "Until six."},
        {"from": "system", "text": "It rains."},
        {"from": "user", "text": "Thanks."},
        {"from": "agent", "text": "!"},
    ]
    assert told(batches) == told(batches[::-1]) == lines


def test_what_segue_said_to_the_model_is_left_out() -> None:
    """Triggers, continuations and what settles a batch; the agent's replies to them are in."""
    follow_up = [synthetic_message("check_in", prompt=CANARY), AIMessage("How are you?")]
    going_on = [HumanMessage("Do it."), continuation_message(CANARY), AIMessage("Done.")]
    [open_batch] = batches_of([HumanMessage("Look."), calling("c1")])
    assert [line["text"] for line in told(batches_of(follow_up, going_on))] == [
        "How are you?",
        "Do it.",
        "Done.",
    ]
    assert CANARY not in write_transcript(batches_of(follow_up, going_on), PLENTY)
    assert [line["from"] for line in told([settle(open_batch)])] == ["user", "agent"]


def test_a_user_who_types_a_triggers_words_is_told() -> None:
    """Content decides nothing."""
    typed = [HumanMessage(CANARY), AIMessage("Where?")]
    assert told(batches_of(typed))[0] == {"from": "user", "text": CANARY}


def test_what_another_agent_asked_is_not_the_users() -> None:
    """In a thread in which agents ask each other."""
    [line, _] = told(batches_of(exchange(), kind=BatchType.AGENT_TO_AGENT))
    assert line["from"] == "another agent"


def test_tool_traffic_is_shortened_and_pictures_are_named() -> None:
    """A page that a tool found is not read again, and no data of a picture is sent."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    long = AIMessage("", tool_calls=[{"name": "save", "args": {"text": "y" * 9_000}, "id": "c1"}])
    cycle = [HumanMessage([picture]), long, result("c1", "z" * 9_000), AIMessage("Saved.")]
    lines = told(batches_of(cycle))
    assert lines[0]["text"] == "(a picture or a file)"
    assert max(len(str(line)) for line in lines) < 400


def test_batches_in_which_nobody_said_anything_are_no_text() -> None:
    """There is nothing to ask a model about."""
    assert (
        write_transcript(batches_of([synthetic_message("check_in"), AIMessage("")]), PLENTY) == ""
    )
    assert write_transcript([], PLENTY) == ""


@given(st.integers(1, 60), st.integers(1, 9_000), st.integers(200, 3_000))
def test_a_text_stays_within_its_budget(count: int, length: int, max_tokens: int) -> None:
    """However many messages there are and however long; the first and the last are in."""
    cycle: list[BaseMessage] = [HumanMessage(f"{n} " + "w" * length) for n in range(count)]
    retold = write_transcript(batches_of([*cycle, AIMessage("Fine.")]), max_tokens)
    assert estimate_text(retold) <= max_tokens + 1
    lines = json.loads(retold)
    assert lines[0]["text"].startswith("0 ")
    assert lines[-1] == {"from": "agent", "text": "Fine."}


def test_as_many_batches_are_taken_as_can_be_told_whole() -> None:
    """The oldest, and one in any case."""
    batches = batches_of(*([HumanMessage("w" * 400), AIMessage("Fine.")] for _ in range(5)))
    assert first_fitting(batches[::-1], 300) == batches[:2]
    assert first_fitting(batches, 1) == batches[:1]
    assert first_fitting([], 300) == []


@pytest.mark.parametrize(
    ("text", "max_tokens", "kept"),
    [
        ("Short.", 10, "Short."),
        ("One is 3.14 wide. Two is long. Three.", 5, "One is 3.14 wide."),
        ("- one\n- two\n- three and more", 3, "- one\n- two"),
        ("これは一つ。これは二つ目の文です。", 5, "これは一つ。"),
        ("no sentence ever ends here at all", 3, "no sentence"),
        ("unbreakable" * 5, 2, "unbreaka"),
        ("  spaced.  ", 10, "spaced."),
    ],
)
def test_a_summary_is_cut_at_a_sentence(text: str, max_tokens: int, kept: str) -> None:
    """Where it has any; else at a word, else where it must be."""
    assert cut_at_sentence(text, max_tokens) == kept


@given(st.text(max_size=300), st.integers(1, 60))
def test_a_cut_summary_is_never_too_long(text: str, max_tokens: int) -> None:
    """And always the beginning of what was said."""
    kept = cut_at_sentence(text, max_tokens)
    assert estimate_text(kept) <= max_tokens
    assert kept in text.replace("\x00", "\ufffd") or any("\ud800" <= c <= "\udfff" for c in text)
