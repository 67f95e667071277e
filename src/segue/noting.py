"""What happens, told where it happens: in a log line, and to whoever counts or follows the work.

`note` writes a sentence for people with its kind and fields beside it, which
`segue.runtime.logs` renders; `count` tells what is worth a number but no line; `watched` stands
around work that takes time. Fields hold ids, triggers and reasons of ours; never what a person said
and never a trigger's text. With nobody there, all of this costs a look at an empty list.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, Protocol

from structlog.contextvars import get_contextvars

# Where a log record has them.
FIELDS: Final = "segue_fields"
REQUEST_ID: Final = "request_id"
# What a turn's payload calls that which it has of the request that it answers.
_CARRIED: Final = "carried"

# The kind of an event, and its fields: its own, and what is bound around it.
Observer = Callable[[str, Mapping[str, Any]], None]
# Adds fields that are known only later.
Tell = Callable[[Mapping[str, Any]], None]


class Watcher(Protocol):
    """Follows pieces of work from their beginning to their end, such as a tracer."""

    def watch(
        self, kind: str, fields: Mapping[str, Any], carried: Mapping[str, str]
    ) -> AbstractContextManager[Tell]:
        """Around a piece of work; `carried` is what `carry` gave where it was asked for."""
        ...

    def carry(self) -> Mapping[str, str]:
        """What later work needs, perhaps in another process, to be seen as part of this."""
        ...


_observers: list[Observer] = []
_watchers: list[Watcher] = []


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Have somebody count what is noted, whatever the level of the logs."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Have somebody follow the work."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def is_observed() -> bool:
    return bool(_observers)


def note(
    logger: logging.Logger, kind: str, text: str, level: int = logging.INFO, **fields: Any
) -> None:
    """Log an event; `text` may name its fields in braces."""
    count(kind, **fields)
    if logger.isEnabledFor(level):
        logger.log(level, "%s", text.format(**fields), extra={FIELDS: {"kind": kind, **fields}})


def count(kind: str, **fields: Any) -> None:
    """Tell observers of an event that is worth no line."""
    if _observers:
        told = {**get_contextvars(), **fields}
        for observer in [*_observers]:
            observer(kind, told)


@contextmanager
def watched(
    kind: str, carried: Mapping[str, str] | None = None, /, **fields: Any
) -> Iterator[Tell]:
    """Around work that somebody may follow."""
    if not _watchers:
        yield _tell_nobody
        return
    with ExitStack() as stack:
        tells = [stack.enter_context(w.watch(kind, fields, carried or {})) for w in _watchers]

        def tell(more: Mapping[str, Any]) -> None:
            for each in tells:
                each(more)

        yield tell


def carry() -> dict[str, Any]:
    """For the payload of a turn: which request it comes from."""
    carried: dict[str, str] = {}
    if request_id := get_contextvars().get(REQUEST_ID):
        carried[REQUEST_ID] = request_id
    for watcher in _watchers:
        carried |= watcher.carry()
    return {_CARRIED: carried} if carried else {}


def carried_in(payload: Mapping[str, Any]) -> dict[str, str]:
    """What `carry` put into a turn's payload."""
    found = payload.get(_CARRIED)
    return dict(found) if isinstance(found, Mapping) else {}


def _tell_nobody(more: Mapping[str, Any]) -> None:
    del more
