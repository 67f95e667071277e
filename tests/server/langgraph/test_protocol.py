"""The event protocol with the real client: commands, subscriptions over SSE and WebSocket."""

from typing import Literal

import pytest

from segue.simulate.world import Stage
from tests.runtime.scenes import lines
from tests.server.langgraph.scenes import ASSISTANT, said, texts, wired

pytestmark = pytest.mark.anyio
Transport = Literal["sse", "websocket"]


@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_a_run_is_heard_by_its_messages_and_its_output(
    stage: Stage, transport: Transport
) -> None:
    """On a thread that the run itself creates."""
    async with (
        wired(stage, models={"guide": lines("Oslo, I think.")}) as (_, _site, client),
        client.threads.stream(assistant_id=ASSISTANT, transport=transport) as thread,
    ):
        await thread.run.start(input=said("Where?", "m1"))
        heard = [message async for message in thread.messages]
        assert [await message.text for message in heard] == ["Oslo, I think."]
        assert texts(await thread.output) == ["Where?", "Oslo, I think."]
