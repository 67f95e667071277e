"""Log lines, counted events and spans: what the system reports about its work.

`configure_logging` is for programs that own their process, such as a server; the library only
logs. Fields bound by `structlog.contextvars.bound_contextvars(thread_id=…, agent_id=…,
trigger_type=…)` appear on each line logged inside the block, in any module. No line holds a
trigger's text, a key or a local variable.
"""

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from segue.errors import UsageError

# structlog is imported where it is used: it would be a tenth of the time of a short command.
if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

T = TypeVar("T")
# The attribute of a log record that holds an event's fields.
FIELDS: Final = "segue_fields"
REQUEST_ID: Final = "request_id"
# The key of a turn's payload that holds its trace context.
_TRACE_CONTEXT: Final = "carried"

# Gets an event's kind and its fields, with those bound around it.
Observer = Callable[[str, Mapping[str, Any]], None]
# Adds fields to a span that are known only later.
AddFields = Callable[[Mapping[str, Any]], None]


class Tracer(Protocol):
    """Records spans."""

    def start_span(
        self, kind: str, fields: Mapping[str, Any], parent: Mapping[str, str]
    ) -> AbstractContextManager[AddFields]:
        """A span around a block; `parent` is the `context` of the span that caused it."""
        ...

    def context(self) -> Mapping[str, str]:
        """The current span, for later work that it causes, maybe in another process."""
        ...


_observers: list[Observer] = []
_tracers: list[Tracer] = []


def observed_by(observer: Observer) -> AbstractContextManager[None]:
    """Pass events to an observer, at any log level."""
    return _listed(_observers, observer)


def traced_by(tracer: Tracer) -> AbstractContextManager[None]:
    return _listed(_tracers, tracer)


@contextmanager
def _listed(items: list[T], item: T) -> Iterator[None]:
    items.append(item)
    try:
        yield
    finally:
        items.remove(item)


def is_observed() -> bool:
    return bool(_observers)


def log_event(
    logger: logging.Logger, kind: str, text: str, level: int = logging.INFO, **fields: Any
) -> None:
    """Log and count an event; `text` may name its fields in braces."""
    count(kind, **fields)
    if logger.isEnabledFor(level):
        logger.log(level, "%s", text.format(**fields), extra={FIELDS: {"kind": kind, **fields}})


def count(kind: str, **fields: Any) -> None:
    """Pass an event to the observers without logging it."""
    if _observers:
        all_fields = {**_bound_fields(), **fields}
        for observer in [*_observers]:
            observer(kind, all_fields)


def _bound_fields() -> dict[str, Any]:
    from structlog.contextvars import get_contextvars  # noqa: PLC0415

    return get_contextvars()


@contextmanager
def span(
    kind: str, parent: Mapping[str, str] | None = None, /, **fields: Any
) -> Iterator[AddFields]:
    """A span of every tracer around a block."""
    with ExitStack() as stack:
        adders = [
            stack.enter_context(tracer.start_span(kind, fields, parent or {}))
            for tracer in _tracers
        ]

        def add_fields(more: Mapping[str, Any]) -> None:
            for add in adders:
                add(more)

        yield add_fields


def trace_context() -> dict[str, Any]:
    """For the payload of a turn: the request and the spans that it belongs to."""
    context: dict[str, str] = {}
    if request_id := _bound_fields().get(REQUEST_ID):
        context[REQUEST_ID] = request_id
    for tracer in _tracers:
        context |= tracer.context()
    return {_TRACE_CONTEXT: context} if context else {}


def read_trace_context(payload: Mapping[str, Any]) -> dict[str, str]:
    """What `trace_context` put into a turn's payload."""
    found = payload.get(_TRACE_CONTEXT)
    return dict(found) if isinstance(found, Mapping) else {}


_HANDLER: Final = "segue"
# At INFO and DEBUG, HTTP clients log URLs and headers with keys, and drivers log each statement.
_THIRD_PARTY: Final = (
    *("httpx", "httpx2", "httpcore", "httpcore2", "urllib3", "websockets"),
    *("anthropic", "google_genai", "langsmith", "openai"),
    *("aiosqlite", "asyncio", "psycopg"),
)


def configure_logging(level: str = "INFO", *, json: bool = False) -> None:
    """Log to stderr from `level` up, as text or as JSON lines; third-party drivers and clients
    from WARNING up.

    A second call replaces the first; other handlers are left alone. `UsageError` for an unknown
    level.
    """
    from structlog import configure, contextvars, processors, stdlib  # noqa: PLC0415

    threshold = _level(level)
    # The processors of every line, from `logging` and from structlog.
    shared: list[Processor] = [
        contextvars.merge_contextvars,
        stdlib.add_logger_name,
        stdlib.add_log_level,
        processors.TimeStamper(fmt="iso", utc=True, key="time"),
        processors.StackInfoRenderer(),
    ]
    configure(
        processors=[
            stdlib.filter_by_level,
            *shared,
            stdlib.PositionalArgumentsFormatter(),
            stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=stdlib.LoggerFactory(),
        wrapper_class=stdlib.BoundLogger,
    )
    formatter = stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, _add_fields],
        processors=[
            stdlib.ProcessorFormatter.remove_processors_meta,
            *(_as_json() if json else _as_text()),
        ],
    )
    _install(formatter)
    logging.getLogger().setLevel(threshold)
    for name in _THIRD_PARTY:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))


def _level(name: str) -> int:
    levels = logging.getLevelNamesMapping()
    try:
        return levels[name.upper()]
    except KeyError:
        valid = ", ".join(levels)
        raise UsageError(f"Unknown log level {name!r:.40}; expected one of: {valid}.") from None


def _add_fields(_: Any, __: str, event: "EventDict") -> "EventDict":
    """The fields of `log_event`; they override bound fields."""
    return {**event, **getattr(event.get("_record"), FIELDS, {})}


def _add_origin(_: Any, __: str, event: "EventDict") -> "EventDict":
    """Process and host, for logs that are collected from many processes."""
    return {**event, "process": os.getpid(), "host": socket.gethostname()}


def _as_json() -> "list[Processor]":
    from structlog.processors import JSONRenderer, format_exc_info  # noqa: PLC0415

    # Tracebacks as text: structlog's JSON tracebacks show local variables.
    return [_add_origin, format_exc_info, JSONRenderer(ensure_ascii=False)]


def _as_text() -> "list[Processor]":
    from structlog.dev import ConsoleRenderer, plain_traceback  # noqa: PLC0415

    # The default formatter shows local variables, such as keys and conversations.
    colours = sys.stderr.isatty()
    return [
        ConsoleRenderer(colors=colours, timestamp_key="time", exception_formatter=plain_traceback)
    ]


def _install(formatter: logging.Formatter) -> None:
    root = logging.getLogger()
    for old in [each for each in root.handlers if each.name == _HANDLER]:
        root.removeHandler(old)
        old.close()
    handler = logging.StreamHandler(sys.stderr)
    handler.name = _HANDLER
    handler.setFormatter(formatter)
    root.addHandler(handler)
