"""`Draft`: the rows of a file that was checked, ready to be written, in a temporary file.

To check a message is to make it and all that follows from it, which costs more than to write it.
So it is done once: what is written is what was checked, however often a step is tried, and nothing
of it is in memory but the rows that are at hand. The temporary file has no name; it is gone with
the process.
"""

import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import BinaryIO, Final

from segue.core.errors import BackendError
from segue.journal.tables import Row, Table
from segue.transfer.lines import FormatError
from segue.transfer.reading import ORDER, Reading

# So many rows are written and read at a time.
_TOGETHER: Final = 256
_NUMBERS: Final = {table.name: number for number, table in enumerate(ORDER)}


class Draft:
    """All rows of a file. `line` is the number of the line that the last row was of."""

    def __init__(self) -> None:
        with _told_if_full():
            self._rows = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the draft
        self.line = 0

    def fill(self, file: BinaryIO) -> None:
        """Check a file whole and keep its rows; `FormatError` at the line that is wrong."""
        reading = Reading(file)
        rows = ((reading.line, _NUMBERS[table.name], row) for table, row in reading.rows())
        while together := [*islice(rows, _TOGETHER)]:
            try:
                self._keep(together)
            except RecursionError:
                raise FormatError(
                    f"One of the lines {together[0][0]} to {together[-1][0]} holds a value that is "
                    "nested too deeply. Nothing was imported."
                ) from None
        self._keep(None)  # the end

    def rows(self) -> Iterator[tuple[Table, Row]]:
        """All rows in their order, from the first one on."""
        self._rows.seek(0)
        while together := pickle.load(self._rows):  # noqa: S301 - nobody else has written there
            for self.line, number, row in together:
                yield ORDER[number], row

    def close(self) -> None:
        with suppress(OSError):  # there was no room for it
            self._rows.close()

    def _keep(self, together: list[tuple[int, int, Row]] | None) -> None:
        with _told_if_full():
            pickle.dump(together, self._rows, pickle.HIGHEST_PROTOCOL)
            if together is None:
                self._rows.flush()


@contextmanager
def _told_if_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackendError(
            f"What was checked cannot be kept in {tempfile.gettempdir()!r}: {error.strerror}. "
            "TMPDIR names another folder. Nothing was imported."
        ) from error
