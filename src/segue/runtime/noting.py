"""Log lines for people and programs at once: a sentence, and its kind and fields beside it.

`segue.runtime.logs` renders both. Fields hold ids, triggers and reasons of ours; never what
anybody said, and never a trigger's words.
"""

import logging
from typing import Any, Final

# Where a log record has them.
FIELDS: Final = "segue_fields"


def note(
    logger: logging.Logger, kind: str, text: str, level: int = logging.INFO, **fields: Any
) -> None:
    """Log an event; `text` may name its fields in braces."""
    if logger.isEnabledFor(level):
        logger.log(level, "%s", text.format(**fields), extra={FIELDS: {"kind": kind, **fields}})
