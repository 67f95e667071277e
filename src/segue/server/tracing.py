"""OpenTelemetry traces: a request, the turn that answers it, and its model calls.

Observes `segue.telemetry`. Attributes are ids and fixed words: no user, and no text of a message,
trigger or error. Off unless `server.traces` or the standard `OTEL_…` environment names a collector.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import Any, Final, Self

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from segue.core.snowflake import to_text
from segue.telemetry import AddFields, observed_by, traced_by

_PROPAGATOR: Final = TraceContextTextMapPropagator()
# Attributes by field; other fields are dropped.
_ATTRIBUTES: Final[Mapping[str, str]] = {
    "thread_id": "segue.thread",
    "batch": "segue.batch",
    "turn_id": "segue.turn",
    "timer_id": "segue.timer",
    "effect_id": "segue.effect",
    "agent_id": "segue.agent",
    "turn_kind": "segue.origin",
    "trigger_type": "segue.trigger",
    "request_id": "segue.request",
    "frame_type": "segue.frame",
    "outcome": "segue.outcome",
    "gate": "segue.gate",
    "method": "http.request.method",
    "route": "http.route",
    "status": "http.response.status_code",
    "model": "gen_ai.request.model",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}
_IDS: Final = frozenset({"batch", "turn_id", "timer_id", "effect_id"})
_KINDS: Final = {"request": SpanKind.SERVER, "frame": SpanKind.SERVER}
# Too frequent for an event each.
_ONLY_COUNTED: Final = frozenset({"gate_asked", "timer_due"})
_FAILURES: Final = frozenset({"turn_failed", "effect_failed", "effect_dead"})


class Tracing:
    """Sends spans to an exporter."""

    def __init__(self, exporter: SpanExporter) -> None:
        named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "segue"}
        # `running` shuts it down.
        self._provider = TracerProvider(
            resource=Resource.create({**named, "service.version": version("segue")}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("segue", version("segue"))

    @classmethod
    def to(cls, collector: str | None) -> Self:
        """To an OTLP address; None takes the address of the environment."""
        return cls(OTLPSpanExporter(collector))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Trace until the block is left; pending spans are sent then."""
        try:
            with traced_by(self), observed_by(self.observe):
                yield
        finally:
            await asyncio.to_thread(self._provider.shutdown)  # may block on the network

    @contextmanager
    def start_span(
        self, kind: str, fields: Mapping[str, Any], carried: Mapping[str, str]
    ) -> Iterator[AddFields]:
        """A span around work. Only the type of an error is kept: its text may quote a user."""
        with self._tracer.start_as_current_span(
            str(fields.get("effect_kind", kind)),
            context=_PROPAGATOR.extract(carried) if carried else None,
            kind=_KINDS.get(kind, SpanKind.INTERNAL),
            attributes=_attributes(fields),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield lambda more: _tell(span, more)
            except Exception as error:
                span.set_status(StatusCode.ERROR, type(error).__name__)
                raise

    def context(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier

    def observe(self, kind: str, fields: Mapping[str, Any]) -> None:
        """A finished model call becomes a span; another event is added to the current span."""
        if kind == "model_called":
            self._model_called(fields)
            return
        span = get_current_span()
        if span.is_recording() and kind not in _ONLY_COUNTED:
            span.add_event(kind, _attributes(fields))
            if kind in _FAILURES:
                span.set_status(StatusCode.ERROR, str(fields.get("error", kind)))

    def _model_called(self, fields: Mapping[str, Any]) -> None:
        now = time.time_ns()  # noqa: TID251 - spans use the machine's own time
        began = now - int(fields["seconds"] * 1e9)
        span = self._tracer.start_span(
            "model", kind=SpanKind.CLIENT, attributes=_attributes(fields), start_time=began
        )
        if fields["outcome"] != "done":
            span.set_status(StatusCode.ERROR)
        span.end()


def _tell(span: Span, more: Mapping[str, Any]) -> None:
    span.set_attributes(_attributes(more))
    if "route" in more and "method" in more:
        span.update_name(f"{more['method']} {more['route']}")
    if more.get("status", 0) >= 500:
        span.set_status(StatusCode.ERROR)


def _attributes(fields: Mapping[str, Any]) -> dict[str, str | int]:
    return {
        _ATTRIBUTES[name]: to_text(value) if name in _IDS else value
        for name, value in fields.items()
        if name in _ATTRIBUTES and value is not None
    }
