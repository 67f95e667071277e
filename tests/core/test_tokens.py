"""Estimating what a message costs."""

from langchain_core.messages import AIMessage, HumanMessage

from segue.core.messages import shown_content
from segue.core.tokens import PER_MEDIA_BLOCK, PER_MESSAGE, estimate_text, estimate_tokens
from tests.histories import calling

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}


def test_text_costs_about_a_token_per_four_letters() -> None:
    """Plain English is counted by its length, rounded up."""
    assert estimate_text("abcd" * 10) == 10
    assert estimate_text("abcde") == 2
    assert estimate_text("") == 0


def test_other_scripts_cost_more_per_letter() -> None:
    """Text outside ASCII is counted by its bytes, since tokenizers split it finer."""
    assert estimate_text("漢字" * 10) == 15
    assert estimate_text("漢字" * 10) > estimate_text("ab" * 10)


def test_a_lone_surrogate_can_be_counted() -> None:
    """Broken text from a client does not stop the count."""
    assert estimate_text("\ud800") > 0


def test_a_picture_has_a_flat_price() -> None:
    """A picture costs the same however long its base64 is."""
    assert estimate_tokens(HumanMessage([PICTURE])) == PER_MEDIA_BLOCK + PER_MESSAGE


def test_calls_are_counted_with_their_arguments() -> None:
    """A message that only calls tools is not free, and longer arguments cost more."""
    short = calling("a")
    long = AIMessage("", tool_calls=[{"name": "look_up", "args": {"q": "x" * 400}, "id": "a"}])
    assert estimate_tokens(short) > PER_MESSAGE
    assert estimate_tokens(long) > estimate_tokens(short) + 90


def test_a_call_in_a_block_is_counted_once() -> None:
    """The parsed call and its block cost as much as the parsed call alone."""
    parsed = {"name": "look_up", "args": {"n": 0}, "id": "a"}
    block = {"type": "tool_use", "name": "look_up", "input": {"n": 0}, "id": "a"}
    both = AIMessage([block], tool_calls=[parsed])
    assert estimate_tokens(both) == estimate_tokens(AIMessage("", tool_calls=[parsed]))


def test_a_long_text_file_is_not_a_picture() -> None:
    """Words inside a file block are counted as words."""
    block = {"type": "file", "source_type": "text", "text": "word " * 10_000}
    assert estimate_tokens(HumanMessage([block])) > 12_000


def test_odd_arguments_can_be_counted() -> None:
    """Sets, huge numbers, odd keys and deep nesting cost something and stop nothing."""
    deep: dict[str, object] = {}
    for _ in range(3_000):
        deep = {"d": deep}
    for args in ({"s": {"b", "a"}}, {"n": 10**5_000}, {"m": {(1, 2): 3}}, deep):
        message = AIMessage("", tool_calls=[{"name": "f", "args": args, "id": "a"}])
        assert estimate_tokens(message) > PER_MESSAGE


def test_reasoning_and_unknown_blocks_are_counted() -> None:
    """Blocks that are neither text nor media cost by their size."""
    thought = {"type": "thinking", "thinking": "x" * 400, "signature": "s"}
    strange = {"type": "novelty", "data": "x" * 400}
    assert estimate_tokens(AIMessage([thought])) > 100
    assert estimate_tokens(AIMessage([strange])) > 100


def test_a_block_whose_type_is_not_a_text_is_counted() -> None:
    """A graph of one's own may store any JSON; its messages are counted and shown all the same."""
    strange = AIMessage([{"type": ["text"], "text": "x" * 400}, "Hello"])
    assert estimate_tokens(strange) > 100
    assert shown_content(strange) == ["Hello"]
