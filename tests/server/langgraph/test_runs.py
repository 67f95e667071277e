"""Runs with the real client of the SDK: sent, streamed, waited for, joined, cancelled."""

import pytest

from segue.simulate.world import Stage
from tests.runtime.scenes import lines
from tests.server.langgraph.scenes import ASSISTANT, said, texts, wired

pytestmark = pytest.mark.anyio


async def test_a_run_streams_its_values_and_its_words(stage: Stage) -> None:
    """The state with the message, the reply in pieces, and the state with the reply."""
    async with wired(stage, models={"guide": lines("Oslo, I think.")}) as (_, _site, client):
        thread = await client.threads.create()
        created: list[str] = []
        parts = [
            part
            async for part in client.runs.stream(
                thread["thread_id"],
                ASSISTANT,
                input=said("Where?", "m1"),
                stream_mode=["values", "messages-tuple", "updates"],
                on_run_created=lambda run: created.append(run["run_id"]),
            )
        ]
        assert [parts[0].event, parts[-1].event] == ["metadata", "end"]
        assert created == [parts[0].data["run_id"]]
        states = [texts(part.data) for part in parts if part.event == "values"]
        assert states[0][0] == "Where?"
        assert states[-1] == ["Where?", "Oslo, I think."]
        first = next(part for part in parts if part.event == "values").data["messages"][0]
        assert (first["id"], first["type"]) == ("m1", "human")
        chunks = [part.data[0] for part in parts if part.event == "messages"]
        assert "".join(chunk["content"] for chunk in chunks) == "Oslo, I think."
        assert {chunk["id"] for chunk in chunks} == {parts[-2].data["messages"][-1]["id"]}
