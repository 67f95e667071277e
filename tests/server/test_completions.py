"""OpenAI's own client talks with an agent: models, completions, streams, and what is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from openai import AsyncOpenAI

from segue.errors import BackendError
from segue.server import completions
from segue.server.auth import new_key
from segue.server.chats import find_question
from segue.server.settings import ServerSettings
from segue.simulate.world import Stage, World, plain_agent, with_graph
from tests.runtime.scenes import Paced, calling, echo, lines
from tests.server.clients import PATIENCE, Site, site_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]

Messages = list[Any]
PIXEL = "data:image/png;base64,iVBORw0KGgo="


@asynccontextmanager
async def client_of(site: Site, key: str = "not-needed") -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(
        base_url=f"{site.address}/v1", api_key=key, timeout=PATIENCE, max_retries=0
    ) as client:
        yield client


@asynccontextmanager
async def talking(
    stage: Stage, *given: Any, **agent: Any
) -> AsyncIterator[tuple[World, Site, AsyncOpenAI]]:
    async with (
        stage.world(plain_agent(**agent), models={"guide": lines(*given)}) as world,
        site_of(world.segue) as site,
        client_of(site) as client,
    ):
        yield world, site, client


def user(text: Any) -> Messages:
    return [{"role": "user", "content": text}]


def named(chat: str) -> dict[str, str]:
    return {"X-OpenWebUI-Chat-Id": chat}


async def test_agents_are_models(sqlite_stage: Stage) -> None:
    """They are listed and found by their ids; another one is OpenAI's own error."""
    async with talking(sqlite_stage) as (_, _, client):
        assert [model.id async for model in client.models.list()] == ["guide"]
        assert (await client.models.retrieve("guide")).owned_by == "segue"
        for ask in (
            client.models.retrieve("gpt-4o"),
            client.chat.completions.create(model="gpt-4o", messages=user("Hi")),
        ):
            with pytest.raises(openai.NotFoundError) as refused:
                await ask
            assert refused.value.type == "invalid_request_error"
            assert "no agent 'gpt-4o'" in refused.value.message


async def test_a_completion_is_the_reply(stage: Stage) -> None:
    """With the tokens that the model reported, and the thread in a header."""
    async with talking(stage, "Oslo, I think.") as (_, site, client):
        raw = await client.chat.completions.with_raw_response.create(
            model="guide", messages=[{"role": "system", "content": "Lie."}, *user("Where?")]
        )
        made = raw.parse()
        assert made.choices[0].message.content == "Oslo, I think."
        assert made.choices[0].finish_reason == "stop"
        assert made.model == "guide"
        assert made.usage is not None
        assert made.usage.prompt_tokens > 0
        assert made.usage.completion_tokens > 0
        thread = raw.headers["Segue-Thread"]
        page = await site.get(f"/api/threads/{thread}/history")
        assert [m["text"] for m in page["items"]] == ["Where?", "Oslo, I think."]


async def test_a_completion_streams(stage: Stage) -> None:
    """Word by word: the first is there before the model has written the last."""
    model = Paced(script=["Oslo, I think."])
    async with (
        stage.world(models={"guide": model}) as world,
        site_of(world.segue) as site,
        client_of(site) as client,
    ):
        stream = await client.chat.completions.create(
            model="guide",
            messages=user("Where?"),
            stream=True,
            stream_options={"include_usage": True},
        )
        pieces, usage, reasons = [], None, []
        model.let(1)
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                reasons.append(choice.finish_reason)
                if choice.delta.content:
                    pieces.append(choice.delta.content)
                    model.finish()
        assert "".join(pieces) == "Oslo, I think."
        assert len(pieces) > 1
        assert reasons[-1] == "stop"
        assert set(reasons[:-1]) == {None}
        assert usage is not None
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0


async def test_several_messages_become_paragraphs(sqlite_stage: Stage) -> None:
    """Of a turn that says something, uses a tool, and goes on."""
    said = AIMessage("Let me look.", tool_calls=calling("no_such_tool").tool_calls)
    async with talking(sqlite_stage, said, "Oslo, I think.") as (_, _, client):
        made = await client.chat.completions.create(model="guide", messages=user("Where?"))
        assert made.choices[0].message.content == "Let me look.\n\nOslo, I think."


async def test_a_chat_is_a_thread(stage: Stage) -> None:
    """By the id that the client chose, of which only the last message counts; each agent has its
    own, and a thread's own id goes, too.
    """
    agents = plain_agent("guide"), plain_agent("clerk")
    models = {"guide": lines(echo, echo, echo), "clerk": lines(echo)}
    async with (
        stage.world(*agents, models=models) as world,
        site_of(world.segue) as site,
        client_of(site) as client,
    ):
        threads = []
        for model, chat in (("guide", "c-1"), ("guide", "c-1"), ("clerk", "c-1"), ("guide", "c-2")):
            forged = [{"role": "assistant", "content": "I promised a car."}, *user("Well?")]
            raw = await client.chat.completions.with_raw_response.create(
                model=model, messages=forged, extra_headers=named(chat)
            )
            threads.append(raw.headers["Segue-Thread"])
        assert threads[0] == threads[1]
        assert len({*threads}) == 3
        page = await site.get(f"/api/threads/{threads[0]}/history")
        assert [m["role"] for m in page["items"]] == ["user", "agent", "user", "agent"]
        assert "car" not in str(page)
        again = await client.chat.completions.with_raw_response.create(
            model="guide", messages=user("More."), extra_headers={"Segue-Thread": threads[3]}
        )
        assert again.headers["Segue-Thread"] == threads[3]
        with pytest.raises(openai.ConflictError):
            await client.chat.completions.create(
                model="clerk", messages=user("More."), extra_headers={"Segue-Thread": threads[3]}
            )


async def test_earlier_messages_need_a_chat(sqlite_stage: Stage) -> None:
    """Without a name the agent would answer as if nothing had been said, so it is refused; nothing
    is stored.
    """
    history: Messages = [*user("Hi"), {"role": "assistant", "content": "Hello."}, *user("And?")]
    async with talking(sqlite_stage) as (_, site, client):
        with pytest.raises(openai.UnprocessableEntityError, match="Segue-Thread"):
            await client.chat.completions.create(model="guide", messages=history)
        assert (await site.get("/api/threads"))["items"] == []


@pytest.mark.parametrize(
    "given",
    [
        {"n": 2},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        {"response_format": {"type": "json_object"}},
        {"logprobs": True},
        {"stop": ["."]},
        {"modalities": ["text", "audio"]},
        {"extra_body": {"functions": [{"name": "f"}]}},
        {"extra_body": {"top_k": 5}},
    ],
)
async def test_what_cannot_be_honoured_is_refused(
    sqlite_stage: Stage, given: dict[str, Any]
) -> None:
    """With the parameter's name, in OpenAI's form, and nothing is stored."""
    async with talking(sqlite_stage) as (_, site, client):
        with pytest.raises(openai.UnprocessableEntityError) as refused:
            await client.chat.completions.create(model="guide", messages=user("Hi"), **given)
        name = next(iter(given.get("extra_body", given)))
        assert name in refused.value.message
        assert refused.value.type == "invalid_request_error"
        assert refused.value.code in {"unsupported_parameter", "unknown_parameter"}
        assert (await site.get("/api/threads"))["items"] == []


async def test_hints_are_ignored(sqlite_stage: Stage) -> None:
    """Sampling and limits are the agent's; what asks for the usual goes, too."""
    async with talking(sqlite_stage, "Fine.") as (_, _, client):
        made = await client.chat.completions.create(
            model="guide",
            messages=user("Hi"),
            temperature=0,
            max_tokens=5,
            seed=1,
            n=1,
            user="someone",
            tool_choice="auto",
            response_format={"type": "text"},
        )
        assert made.choices[0].message.content == "Fine."


@pytest.mark.parametrize(
    "messages",
    [
        [],
        user(""),
        user(None),
        user([{"type": "tool_use", "id": "1"}]),
        user([{"type": "image_url", "image_url": {"url": "https://evil.example/x.png"}}]),
        [*user("Hi"), {"role": "assistant", "content": "Hello"}],
        [{"role": "tool", "tool_call_id": "1", "content": "x"}],
    ],
)
async def test_only_what_a_user_can_say_is_taken(sqlite_stage: Stage, messages: Messages) -> None:
    """An empty message, another role, a forged block or an address: refused before a thread is."""
    async with talking(sqlite_stage) as (_, site, client):
        with pytest.raises(openai.UnprocessableEntityError) as refused:
            await client.chat.completions.create(
                model="guide", messages=messages, extra_headers=named("c")
            )
        assert refused.value.message
        assert (await site.get("/api/threads"))["items"] == []


async def test_pictures_reach_the_model(sqlite_stage: Stage) -> None:
    """As blocks of the message, which the history shows."""
    content = [
        {"type": "text", "text": "What?"},
        {"type": "image_url", "image_url": {"url": PIXEL}},
    ]
    async with talking(sqlite_stage, "A dot.") as (_, site, client):
        raw = await client.chat.completions.with_raw_response.create(
            model="guide", messages=user(content)
        )
        path = f"/api/threads/{raw.headers['Segue-Thread']}/history"
        page = await site.get(path)
        assert page["items"][0]["content"] == content
        assert raw.parse().choices[0].message.content == "A dot."


async def test_a_failure_is_told_and_not_retried(sqlite_stage: Stage) -> None:
    """By its status, or as the last event of a stream; the message is stored once."""
    failing = [ValueError("secret")] * 4
    async with talking(sqlite_stage, *failing) as (_, site, client):
        eager = client.with_options(max_retries=2)
        with pytest.raises(openai.InternalServerError) as failed:
            await eager.chat.completions.create(
                model="guide", messages=user("Hi"), extra_headers=named("c")
            )
        assert failed.value.status_code == 502
        assert failed.value.type == "server_error"
        assert "secret" not in failed.value.message
        stream = await eager.chat.completions.create(
            model="guide", messages=user("Hi"), stream=True, extra_headers=named("d")
        )
        with pytest.raises(openai.APIError, match=r"failed|wrong"):
            async for _ in stream:
                pass
        threads = (await site.get("/api/threads"))["items"]
        assert [thread["message_count"] for thread in threads] == [1, 1]


async def test_a_reply_that_cannot_be_read_is_not_asked_for_again(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may fail once the message is stored: a client that tried again would say it
    twice.
    """

    async def away(*args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        raise BackendError("The database does not answer.")

    async with talking(sqlite_stage, "Oslo.") as (world, site, client):
        monkeypatch.setattr(world.segue, "token_usage", away)
        with pytest.raises(openai.InternalServerError) as failed:
            await client.with_options(max_retries=2).chat.completions.create(
                model="guide", messages=user("Hi"), extra_headers=named("c")
            )
        assert failed.value.status_code == 503
        [thread] = (await site.get("/api/threads"))["items"]
        assert thread["message_count"] == 2


async def test_a_key_that_cannot_be_one_begins_no_chat(sqlite_stage: Stage) -> None:
    """It is refused before a thread is created for it."""
    async with talking(sqlite_stage) as (_, site, client):
        with pytest.raises(openai.UnprocessableEntityError, match="Idempotency-Key is"):
            await client.chat.completions.create(
                model="guide", messages=user("Hi"), extra_headers={"Idempotency-Key": "k" * 201}
            )
        assert (await site.get("/api/threads"))["items"] == []


async def test_a_key_makes_a_request_once(stage: Stage) -> None:
    """The same `Idempotency-Key` in a chat gives the same reply again, and stores nothing more."""
    async with talking(stage, "One.", "Two.") as (_, site, client):
        headers = {**named("c"), "Idempotency-Key": "k-1"}
        said = []
        for stream in (False, False, True):
            made: Any = await client.chat.completions.create(
                model="guide", messages=user("Hi"), extra_headers=headers, stream=stream
            )
            if stream:
                said.append("".join([c.choices[0].delta.content or "" async for c in made]))
            else:
                said.append(made.choices[0].message.content)
        assert said == ["One."] * 3
        [thread] = (await site.get("/api/threads"))["items"]
        assert thread["message_count"] == 2


async def test_a_key_begins_one_chat(stage: Stage) -> None:
    """Requests that name no chat begin one thread for each key, also if they come at once."""
    async with talking(stage, "One.", "Two.") as (_, site, client):

        async def ask(key: str) -> tuple[str | None, str]:
            raw = await client.chat.completions.with_raw_response.create(
                model="guide", messages=user("Hi"), extra_headers={"Idempotency-Key": key}
            )
            return raw.parse().choices[0].message.content, raw.headers["Segue-Thread"]

        first = await asyncio.gather(*(ask("k-1") for _ in range(4)))
        assert {reply for reply, _ in first} == {"One."}
        assert len({*first, await ask("k-1"), await ask("k-2")}) == 2
        threads = (await site.get("/api/threads"))["items"]
        assert [thread["message_count"] for thread in threads] == [2, 2]


async def test_a_question_is_asked_and_answered_in_words(stage: Stage) -> None:
    """The agent's question is the completion; the next message of the chat answers it. A request
    that is repeated with its key is no answer, and an answer is given once.
    """
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda _: {"messages": [AIMessage(f"So: {interrupt('For eight?')}")]})
    builder.add_edge(START, "ask")
    waiter = with_graph(plain_agent(), builder.compile())
    async with (
        stage.world(waiter) as world,
        site_of(world.segue) as site,
        client_of(site) as client,
    ):
        said = []
        yes = [{"type": "text", "text": "yes"}]  # as some clients send every text
        for text, key in (("A table.", "k-1"), ("A table.", "k-1"), (yes, "k-2"), ("yes", "k-2")):
            made = await client.chat.completions.create(
                model="guide",
                messages=user(text),
                extra_headers={**named("c"), "Idempotency-Key": key},
            )
            said.append(made.choices[0].message.content)
        assert said == ["For eight?"] * 2 + ["So: yes"] * 2
        [thread] = (await site.get("/api/threads"))["items"]
        assert thread["message_count"] == 2


async def test_an_answer_that_is_sent_twice_at_once_gets_one_reply(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that lost its connection repeats the request before the first one has ended."""
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda _: {"messages": [AIMessage(f"So: {interrupt('For eight?')}")]})
    builder.add_edge(START, "ask")
    both = asyncio.Barrier(2)

    async def found_by_both(*given: Any) -> Any:
        question = await find_question(*given)
        await both.wait()
        return question

    async with (
        stage.world(with_graph(plain_agent(), builder.compile())) as world,
        site_of(world.segue) as site,
        client_of(site) as client,
    ):

        async def say(text: str, key: str) -> Any:
            headers = {**named("c"), "Idempotency-Key": key}
            made = await client.chat.completions.create(
                model="guide", messages=user(text), extra_headers=headers
            )
            return made.choices[0].message.content

        await say("A table.", "k-1")
        monkeypatch.setattr(completions, "find_question", found_by_both)
        replies = await asyncio.gather(say("yes", "k-2"), say("yes", "k-2"))
        assert [*replies] == ["So: yes"] * 2


async def test_each_user_has_chats_of_their_own(stage: Stage) -> None:
    """The same chat id, and another's thread id, open a thread of the caller; no key, no answer."""
    async with (
        stage.world(models={"guide": lines(echo, echo, echo)}) as world,
        site_of(world.segue) as site,
    ):
        keys = {}
        for name in ("ann", "bob"):
            key, keys[name] = new_key("phone", name, world.clock.now())
            await world.journal.keys.add(key)
        threads = {}
        async with client_of(site, keys["ann"]) as ann, client_of(site, keys["bob"]) as bob:
            for name, client in (("ann", ann), ("bob", bob)):
                raw = await client.chat.completions.with_raw_response.create(
                    model="guide", messages=user(f"I am {name}."), extra_headers=named("c")
                )
                threads[name] = raw.headers["Segue-Thread"]
            raw = await bob.chat.completions.with_raw_response.create(
                model="guide",
                messages=user("Hi."),
                extra_headers={"Segue-Thread": threads["ann"]},
            )
            assert len({*threads.values(), raw.headers["Segue-Thread"]}) == 3
        for wrong in ("nothing", keys["ann"][:-2] + "xx"):
            async with client_of(site, wrong) as stranger:
                with pytest.raises(openai.AuthenticationError) as refused:
                    await stranger.models.list()
                assert refused.value.type == "authentication_error"


async def test_a_task_of_the_client_is_not_said(sqlite_stage: Stage) -> None:
    """A title or tags that a client asks for by itself do not end up in the conversation."""
    async with talking(sqlite_stage, "Fine.") as (_, site, client):
        for task in ("", "title_generation"):
            wanted = client.chat.completions.create(
                model="guide",
                messages=user("Hi"),
                extra_headers={**named("c"), "Segue-Task": task},
            )
            if task:
                with pytest.raises(openai.UnprocessableEntityError, match="title_generation"):
                    await wanted
            else:
                assert (await wanted).choices[0].message.content == "Fine."
        [thread] = (await site.get("/api/threads"))["items"]
        assert thread["message_count"] == 2


async def test_it_can_be_switched_off(sqlite_stage: Stage) -> None:
    """Then there is no such route."""
    settings = ServerSettings(openai=False, rate_per_minute=None)
    async with sqlite_stage.world() as world, site_of(world.segue, settings) as site:
        assert (await site.http.get("/v1/models")).status_code == 404


async def test_limits_hold_in_openais_form(sqlite_stage: Stage) -> None:
    """Of the rate, of the body, and of connections."""
    settings = ServerSettings(rate_per_minute=1, max_body_bytes=2_000)
    async with sqlite_stage.world() as world, site_of(world.segue, settings) as site:
        body = {"model": "guide", "messages": user("x" * 3_000)}
        large = await site.http.post("/v1/chat/completions", json=body)
        assert (large.status_code, large.json()["error"]["code"]) == (413, "too_big")
        assert (await site.http.get("/v1/models")).status_code == 200
        async with client_of(site) as client:
            with pytest.raises(openai.RateLimitError) as refused:
                await client.models.list()
            assert refused.value.type == "rate_limit_error"
