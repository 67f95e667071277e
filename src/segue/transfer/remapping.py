"""New ids for what an import brings, in the same order and at the same times."""

from collections.abc import Mapping
from typing import Any, Final

from segue.core.snowflake import SEQUENCE_BITS, TEXT_WIDTH, SnowflakeSource, to_text
from segue.journal.records import NESTING
from segue.journal.rows import from_json
from segue.journal.tables import DECISIONS, MESSAGES, THREADS, TIMERS, TURNS, Form, Row, Table
from segue.transfer.lines import to_id

# In 2012; a number in what Segue notes of a turn, from there up to its thread's last id, is an id.
_OLDEST: Final = 1 << 58
_NOTES: Final = frozenset({TURNS.name, TIMERS.name, DECISIONS.name})
_PLACE: Final = ("position", "batch", "parent_batch")
# A person's words are nobody's ids.
_PERSONS: Final = "answer"


class Remapping:
    """Names threads anew and moves all other ids by one distance.

    An id is a time, a node and a number. Moved by some nodes' width, all of them are others, in the
    same order, less than a millisecond later; and no table of old and new ones has to be kept.
    """

    def __init__(self, ids: SnowflakeSource) -> None:
        self._ids = ids
        self._distance = 1 << SEQUENCE_BITS
        self._last = 0
        self.names: dict[str, str] = {}

    def go_on(self) -> None:
        """Take the next distance, since some id at this one is in use."""
        self._distance += 1 << SEQUENCE_BITS

    def row(self, table: Table, row: Row) -> Row:
        if table is THREADS:
            self._last = row["last_position"]
        moved = {c.name: self._value(c.form, row[c.name]) for c in table.columns if c.name in row}
        if table is THREADS:
            moved["id"] = self._name(row["id"])
        if table.of_thread:
            moved["thread_id"] = self._name(row["thread_id"])
        if table is MESSAGES:
            moved["body"] = self._body(row["body"])
        if table.name in _NOTES:
            moved |= {c.name: self._noted(row[c.name]) for c in table.read if c.form is Form.JSON}
        return moved

    def _value(self, form: Form, value: Any) -> Any:
        if form is Form.ID and value:
            return value + self._distance
        if form is Form.IDS:
            return [each + self._distance for each in value]
        return value

    def _name(self, thread_id: str) -> str:
        root, *nested = thread_id.split(NESTING)
        if root not in self.names:
            self.names[root] = to_text(self._ids.next())
        return NESTING.join([self.names[root], *nested])

    def _body(self, stored: str) -> Mapping[str, Any]:
        body = from_json(stored)
        data = body["data"]
        kwargs = data["additional_kwargs"]
        places = {name: kwargs[name] + self._distance for name in _PLACE if kwargs.get(name)}
        return {**body, "data": {**data, "additional_kwargs": {**kwargs, **places}}}

    def _noted(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: v if k == _PERSONS else self._noted(v) for k, v in value.items()}
        if isinstance(value, list):
            return [*map(self._noted, value)]
        if isinstance(value, str) and len(value) == TEXT_WIDTH and value.isascii():
            return to_id(self._noted(int(value))) if value.isdigit() else value
        if type(value) is int and _OLDEST <= value <= self._last:
            return value + self._distance
        return value
