"""Traces: what is one piece of work is one trace, over the running app, and nobody's words are in
it.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from segue import telemetry
from segue.core.snowflake import to_text
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.errors import UsageError
from segue.facade import Segue
from segue.server.app import create_app
from segue.server.serving import open_socket, serving
from segue.server.settings import ServerSettings
from segue.server.tracing import Tracing
from segue.simulate.world import Stage, World, plain_agent
from tests.runtime.receiver import SECRET, Receiver, status
from tests.server.clients import PATIENCE as LONG
from tests.server.clients import Site, frames_until_said
from tests.stories.scenes import PATIENCE, eager_agent, model_of

pytestmark = pytest.mark.anyio

CANARY = "kingfisher-7741"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    """What an exporter got, once the app is closed."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]


@pytest.fixture
def spans() -> Spans:
    return Spans()


@asynccontextmanager
async def traced(world: World, spans: Spans) -> AsyncIterator[Site]:
    """A served world whose traces are kept."""
    settings = ServerSettings(port=0, rate_per_minute=None)
    app = create_app(world.segue, settings, Tracing(spans.exporter))
    async with (
        serving(app, open_socket(settings)) as address,
        httpx.AsyncClient(base_url=address, timeout=LONG) as client,
    ):
        yield Site(address, client)


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    found: int = span.context.span_id
    return found


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


async def test_a_request_its_turn_and_the_model_are_one_trace(stage: Stage, spans: Spans) -> None:
    """Which goes on from the caller's, although the turn is worked on by somebody else."""
    async with (
        stage.world(models={"guide": model_of()}) as world,
        traced(world, spans) as site,
    ):
        thread = await site.new_thread()
        path, body = f"/api/threads/{thread}/messages", {"content": "Where is Oslo?"}
        headers = {"traceparent": CALLER, "X-Request-ID": "mine"}
        await site.post(path, body, headers=headers)
        await world.clock.settle()
        [turn] = await world.journal.turns.list_of(thread)
        await site.get("/healthz")
    [request] = spans.named("POST /api/threads/{thread_id}/messages")
    [worked], [model] = spans.named("turn"), spans.named("model")
    assert parent_of(worked) == id_of(request)
    assert parent_of(model) == id_of(worked)
    assert {trace_of(each) for each in (request, worked, model)} == {CALLER.split("-")[1]}
    assert attributes(request) == {
        "segue.request": "mine",
        "http.request.method": "POST",
        "http.route": "/api/threads/{thread_id}/messages",
        "http.response.status_code": 202,
    }
    assert attributes(worked) == {
        "segue.thread": thread,
        "segue.batch": to_text(turn.batch),
        "segue.turn": to_text(turn.id),
        "segue.agent": "guide",
        "segue.origin": "reply",
    }
    assert attributes(model)["segue.agent"] == "guide"
    assert attributes(model)["gen_ai.usage.output_tokens"]
    assert [span for span in spans.all if "healthz" in span.name] == []


async def test_what_comes_by_a_socket_is_followed_too(sqlite_stage: Stage, spans: Spans) -> None:
    """A frame is the beginning of a trace, as a request is; the socket is not."""
    async with (
        sqlite_stage.world(models={"guide": model_of("Oslo.")}) as world,
        traced(world, spans) as site,
    ):
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws?since=0") as socket:
            await socket.send('{"type": "message", "content": "Where?"}')
            await frames_until_said(socket, "Oslo.")
        await world.clock.settle()
    [frame], [worked] = spans.named("frame"), spans.named("turn")
    assert parent_of(worked) == id_of(frame)
    assert parent_of(frame) is None


async def test_timers_and_webhooks_are_followed_and_no_trigger_is_in_any_span(
    stage: Stage, spans: Spans, receiver: Receiver
) -> None:
    """Nor anybody's words: the trigger's, the user's, the agent's, or those of what failed."""
    receiver.answer = status(410)
    own = {trigger.value: f"Ask about the {CANARY}." for trigger in TriggerType}
    webhook = {"url": receiver.target.url, "secret": SECRET}
    agent = eager_agent(prompts=own).model_copy(
        update={"webhook": plain_agent(webhook=webhook).webhook}
    )
    model = model_of("I saw it.", f"The {CANARY}?", ValueError(CANARY))
    async with (
        stage.world(agent, models={"guide": model}) as world,
        traced(world, spans) as site,
    ):
        thread = await site.new_thread()
        await site.post(f"/api/threads/{thread}/messages", {"content": f"A {CANARY}!"})
        await world.clock.settle()
        await world.pass_time(PATIENCE)
        await site.post(f"/api/threads/{thread}/messages", {"content": "Yes."})
        await world.clock.settle()
        assert any(CANARY in message.text for message in model.seen[1])
    [timer] = spans.named("timer")
    assert attributes(timer)["segue.trigger"] == "check_in"
    assert [event.name for event in timer.events][-1] == "follow_up_fired"
    [hook] = spans.named("webhook")
    assert attributes(hook)["segue.thread"] == thread
    assert hook.status.status_code is StatusCode.ERROR
    origins = [attributes(span)["segue.origin"] for span in spans.named("turn")]
    assert origins == ["reply", "follow_up", "reply"]
    assert spans.named("turn")[2].status.status_code is StatusCode.ERROR
    told = "".join(span.to_json() for span in spans.all)
    assert thread in told
    for words in (CANARY, "I saw it", "hush", *TRIGGER_PROMPTS.values()):
        assert words not in told


async def test_an_error_that_goes_through_a_span_leaves_its_name_alone(spans: Spans) -> None:
    """Its words and its traceback may quote anybody."""
    tracing = Tracing(spans.exporter)
    async with tracing.running():
        with pytest.raises(ValueError, match=CANARY), telemetry.span("turn"):
            raise ValueError(CANARY)
    [span] = spans.all
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ValueError")
    assert CANARY not in span.to_json()


async def test_nothing_is_followed_unless_it_is_wanted(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an address nobody watches, and a turn carries the request's id and nothing else."""
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    settings = ServerSettings(port=0)
    async with sqlite_stage.world() as world:
        app = create_app(world.segue, settings)
        async with (
            serving(app, open_socket(settings)) as address,
            httpx.AsyncClient(base_url=address, timeout=LONG) as client,
        ):
            site = Site(address, client)
            thread = await site.new_thread()
            headers = {"X-Request-ID": "mine"}
            await site.post(f"/api/threads/{thread}/messages", {"content": "Hi"}, headers=headers)
            assert telemetry._tracers == []
        [turn] = await world.journal.turns.list_of(thread)
        assert telemetry.read_trace_context(turn.payload) == {"request_id": "mine"}


@pytest.mark.parametrize("by", ["setting", "environment"])
async def test_spans_reach_the_collector_that_is_named(
    sqlite_stage: Stage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """By the setting or by the standard environment; what is left is sent at the end."""
    collector, settings = f"http://127.0.0.1:{receiver.server_port}", ServerSettings(port=0)
    if by == "setting":
        settings = ServerSettings(port=0, traces=f"{collector}/v1/traces")
    else:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
    async with sqlite_stage.world() as world:
        app = create_app(world.segue, settings)
        async with (
            serving(app, open_socket(settings)) as address,
            httpx.AsyncClient(base_url=address, timeout=LONG) as client,
        ):
            await Site(address, client).new_thread()
    [(path, headers, body)] = receiver.got
    assert path == "/v1/traces"
    assert headers["Content-Type"] == "application/x-protobuf"
    assert b"POST /api/threads" in body


@asynccontextmanager
async def unopened() -> AsyncIterator[Segue]:
    raise AssertionError("There is no need to open it.")
    yield


def test_traces_without_their_packages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the setting wants them; the environment may speak to others."""
    monkeypatch.delitem(sys.modules, "segue.server.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    collector = "http://127.0.0.1:4318/v1/traces"
    with pytest.raises(UsageError, match=r"segue\[otel\]"):
        create_app(unopened, ServerSettings(traces=collector))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
    create_app(unopened, ServerSettings())
