"""A model that sums up: what it is asked, and how its failures are told."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage

from segue.agent import summariser
from segue.agent.scripted import ScriptedChatModel
from segue.agent.summariser import ModelSummariser, load_summariser
from segue.core.metadata import KEYS
from segue.errors import UsageError
from segue.runtime.model_failures import ModelFailure
from segue.simulate.world import plain_agent

pytestmark = pytest.mark.anyio

RETOLD = '[{"from": "user", "text": "I am \\"Ann\\"."}]'


async def test_the_model_gets_the_summary_so_far_and_what_is_new() -> None:
    """As JSON, in one message without metadata, after instructions that name the length."""
    model = ScriptedChatModel(script=["  They met.\n"])
    assert await ModelSummariser(model).summarise('So "far"', RETOLD, 100) == "They met."
    [[instructions, asked]] = model.seen
    assert "at most 70 words" in instructions.text
    assert json.loads(asked.text) == {
        "summary": 'So "far"',
        "conversation": [{"from": "user", "text": 'I am "Ann".'}],
    }
    assert not KEYS & asked.additional_kwargs.keys()


class RateLimitError(Exception):
    """As a provider's client names it."""


@pytest.mark.parametrize(
    ("line", "kind", "retryable"),
    [
        (RateLimitError("Ann said so"), "rate_limit", True),
        (ValueError("Ann said so"), "unknown", False),
        (UsageError("Ann said so"), "usage", False),
        ("", "empty", True),
        (AIMessage("", tool_calls=[{"name": "x", "args": {}, "id": "1"}]), "empty", True),
    ],
)
async def test_whatever_fails_is_told_without_quoting_anybody(
    line: Any, kind: str, retryable: bool
) -> None:
    """With its kind, and whether to try again."""
    with pytest.raises(ModelFailure) as caught:
        await ModelSummariser(ScriptedChatModel(script=[line])).summarise("", RETOLD, 100)
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
    assert "Ann" not in str(caught.value)


async def test_a_model_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """And may be asked again."""

    async def hang(messages: list[BaseMessage]) -> str:
        del messages
        await asyncio.Event().wait()
        return "never"

    model = ScriptedChatModel(script=hang)
    monkeypatch.setattr(summariser, "_TIME_LIMIT", timedelta(milliseconds=1))
    with pytest.raises(ModelFailure) as caught:
        await ModelSummariser(model).summarise("", "[]", 9)
    assert (caught.value.kind, caught.value.retryable) == ("timeout", True)


def test_a_graph_without_a_model_says_what_to_set() -> None:
    """There is none that could be asked."""
    agent = plain_agent().model_copy(update={"graph": object()})
    with pytest.raises(UsageError, match=r"set compression\.model"):
        load_summariser(agent)
