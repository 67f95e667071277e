"""What `Invisibility` remembers of the messages whose metadata it removed."""

import gc
import weakref
from typing import Any

import pytest
from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage

from segue import SnowflakeGenerator, stamp, user_message
from segue.agent.middleware import Invisibility
from segue.agent.scripted import ScriptedChatModel

pytestmark = pytest.mark.anyio


async def sent(part: Invisibility, *messages: BaseMessage) -> list[BaseMessage]:
    """The messages of a request as the model gets them."""
    seen: list[BaseMessage] = []

    async def handler(request: ModelRequest[Any]) -> ModelResponse[Any]:
        seen.extend(request.messages)
        return ModelResponse(result=[AIMessage("I see.")])

    given: list[Any] = [*messages]
    model = ScriptedChatModel(script=["I see."])
    await part.awrap_model_call(ModelRequest(model=model, messages=given), handler)
    return seen


async def test_a_message_is_stripped_once_and_forgotten_with_its_last_reader() -> None:
    """A picture of 10 MB stays in memory only as long as a batch holds it."""
    part = Invisibility()
    [stamped] = stamp([user_message("Hi!")], SnowflakeGenerator(node=1))
    plain = user_message("Hello!")
    first, second = await sent(part, stamped, plain), await sent(part, stamped, plain)
    assert not first[0].additional_kwargs
    assert all(a is b for a, b in zip(first, second, strict=True))
    held = [weakref.ref(each) for each in (stamped, plain, first[0])]
    del stamped, plain, first, second
    gc.collect()
    assert [each() for each in held] == [None, None, None]
