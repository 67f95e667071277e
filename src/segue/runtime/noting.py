"""Log lines for people and programs at once: a sentence, and its kind and fields beside it.

`segue.runtime.logs` renders both. Fields hold ids, triggers and reasons of ours; never what
anybody said, and never a trigger's words.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

# Where a log record has them.
FIELDS: Final = "segue_fields"


# The kind of an event, and its fields.
Observer = Callable[[str, Mapping[str, Any]], None]
_observers: list[Observer] = []


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Have somebody count what is noted, whatever the level of the logs."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def note(
    logger: logging.Logger, kind: str, text: str, level: int = logging.INFO, **fields: Any
) -> None:
    """Log an event; `text` may name its fields in braces."""
    for observer in _observers:
        observer(kind, fields)
    if logger.isEnabledFor(level):
        logger.log(level, "%s", text.format(**fields), extra={FIELDS: {"kind": kind, **fields}})
