"""Batches that the model is told in part."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from segue.core.calls import calls_of
from segue.core.text import cut_text
from segue.core.tokens import estimate_tokens
from segue.core.window import ShortenedViews, shorten
from segue.testing.providers import request_problems
from tests.histories import calling, result

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def cost(view: list[BaseMessage]) -> int:
    return sum(map(estimate_tokens, view))


def told(room: int, *view: BaseMessage) -> ShortenedViews:
    return shorten([list(view)], room, cost)


@pytest.mark.parametrize("length", [64, 100, 1_000])
def test_a_text_keeps_both_ends(length: int) -> None:
    """The mark says how many characters are missing between them."""
    text = "".join(f"{n} " for n in range(5_000))
    cut = cut_text(text, length)
    head, missing, tail = cut.partition(f" [… {len(text) - length:,} characters left out …] ")
    assert missing
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head + tail) == length


def test_a_text_is_not_cut_for_a_few_characters() -> None:
    """A mark that is as long as what it stands for would only take words away."""
    assert cut_text("x" * 90, 64) == "x" * 90
    assert len(cut_text("x" * 200, 64)) < 200


def test_the_longest_texts_are_cut_first() -> None:
    """A short question stays whole beside the long answer to it."""
    found = told(1_000, HumanMessage("Why?"), AIMessage("Because. " * 2_000))
    assert found.tokens <= 1_000
    [[question, answer]] = found.views
    assert question.text == "Why?"
    assert len(answer.text) > 2_000


def test_a_call_keeps_its_result() -> None:
    """Long arguments and results are cut, and each call is still followed by its result."""
    call = calling("a", "b")
    call.tool_calls[0]["args"] = {"text": "x" * 9_000, "lines": ["y" * 9_000], "n": 1}
    view = [HumanMessage("Go."), call, result("a", "r" * 9_000), result("b"), AIMessage("Done.")]
    found = told(2_000, *view)
    assert found.tokens <= 2_000
    [cut] = found.views
    assert request_problems(cut) == []
    args = calls_of(cut[1])[0].args
    assert (args["n"], len(args["text"]) < 3_000, len(args["lines"][0]) < 3_000) == (1, True, True)
    assert "characters left out" in cut[2].text
    assert call.tool_calls[0]["args"]["text"] == "x" * 9_000


def test_many_calls_leave_with_their_results() -> None:
    """Where calls alone are too much, what was said stays and the tool traffic goes."""
    rounds = [m for n in range(200) for m in (calling(f"c{n}", text="Hm."), result(f"c{n}"))]
    found = told(1_200, HumanMessage("Go."), *rounds, AIMessage("Done."))
    [cut] = found.views
    assert request_problems(cut) == []
    assert [m.text for m in cut] == ["Go.", *["Hm."] * 200, "Done."]
    assert "tool calls are left out" in found.how


def test_a_picture_gives_way_to_its_name() -> None:
    """The words beside it stay; where there is room, the picture does, too."""
    words = {"type": "text", "text": "Look at this."}
    content: list[str | dict[Any, Any]] = [words, PICTURE]
    view = [HumanMessage(content), AIMessage("Nice. " * 400)]
    [[seen, _]] = told(500, *view).views
    assert seen.content == [words, {"type": "text", "text": "[a picture, left out]"}]
    [[seen, _]] = told(2_100, *view).views
    assert seen.content != content
    assert told(2_500, *view).views == [view]


def test_arguments_of_any_depth_are_cut() -> None:
    """What a model wrote in a loop stops no request."""
    nested: dict[str, Any] = {"a": "x" * 5_000}
    for _ in range(400):
        nested = {"a": nested}
    call = AIMessage("", tool_calls=[{"name": "find", "args": nested, "id": "a"}])
    found = told(900, HumanMessage("Go."), call, result("a"), AIMessage("Done."))
    assert found.tokens <= 900


def test_what_cannot_fit_is_as_short_as_it_gets() -> None:
    """No room at all gives the shortest form, which its caller may leave out."""
    found = told(0, HumanMessage("q" * 5_000), AIMessage("a" * 5_000))
    assert [len(m.text) < 110 for m in found.views[0]] == [True, True]
    assert found.tokens == cost(found.views[0])
