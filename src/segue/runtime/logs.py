"""Logging: one shape for every line, whether it comes by `logging` or by structlog.

`configure_logging` is for programs that own their process, such as a server; the library itself
only logs. What is bound by `structlog.contextvars.bound_contextvars(thread_id=…, agent_id=…,
trigger_type=…)` stands on each line that is logged inside of it, also by modules that know
nothing of it. No line holds a trigger's words, a key or a local variable.
"""

import logging
import os
import socket
import sys
from typing import Any, Final

import structlog
from structlog.typing import EventDict, Processor

from segue.core.errors import UsageError
from segue.noting import FIELDS

_HANDLER: Final = "segue"
# Clients log each URL with its query, and in detail the headers with their keys; drivers log each
# statement, in which everything else would drown.
_FOREIGN: Final = (
    *("httpx", "httpx2", "httpcore", "httpcore2", "urllib3", "websockets"),
    *("anthropic", "google_genai", "langsmith", "openai"),
    *("aiosqlite", "asyncio", "psycopg"),
)


def configure_logging(level: str = "INFO", *, json: bool = False) -> None:
    """Log to stderr from `level` up, for people or as JSON lines.

    Drivers and clients of others are heard from WARNING up, whatever the level.
    Calling it again replaces what it set before; handlers of others are left alone. `UsageError`
    for a level that does not exist.
    """
    threshold = _level(level)
    shared = _shared()
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    _install(_handler(shared, json=json))
    logging.getLogger().setLevel(threshold)
    for name in _FOREIGN:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))


def _level(name: str) -> int:
    levels = logging.getLevelNamesMapping()
    try:
        return levels[name.upper()]
    except KeyError:
        valid = ", ".join(levels)
        raise UsageError(f"There is no log level {name!r:.40}; valid are: {valid}.") from None


def _shared() -> list[Processor]:
    """What every line gets, wherever it comes from."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.StackInfoRenderer(),
    ]


def _handler(shared: list[Processor], *, json: bool) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.name = _HANDLER
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _add_fields],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *(_as_json() if json else _for_people()),
            ],
        )
    )
    return handler


def _add_fields(_: Any, __: str, event: EventDict) -> EventDict:
    """What `note` puts beside its sentence; it counts before what is bound around it."""
    return {**event, **getattr(event.get("_record"), FIELDS, {})}


def _add_origin(_: Any, __: str, event: EventDict) -> EventDict:
    """Where the line comes from, for whoever collects those of many processes."""
    return {**event, "process": os.getpid(), "host": socket.gethostname()}


def _as_json() -> list[Processor]:
    # Tracebacks as text: structlog's own shape for JSON would show local variables.
    return [
        _add_origin,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(ensure_ascii=False),
    ]


def _for_people() -> list[Processor]:
    return [
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            timestamp_key="time",
            # The default shows local variables, where keys and conversations are.
            exception_formatter=structlog.dev.plain_traceback,
        )
    ]


def _install(handler: logging.Handler) -> None:
    root = logging.getLogger()
    for old in [each for each in root.handlers if each.name == _HANDLER]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
