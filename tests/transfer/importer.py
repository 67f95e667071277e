"""A process that imports a file, tells how far it is, and is killed."""

import asyncio
import io
from collections.abc import Iterator
from multiprocessing.connection import Connection

from segue.journal.tables import Row, Table
from segue.transfer import imports
from segue.transfer.imports import ImportOptions, StagedFile, import_file
from tests.journal.stores import journal_at
from tests.processes import PROCESSES
from tests.transfer.files import MADE_AT

WRITING = "writing"


class Importer:
    """Imports until it writes the rows of a line, and waits there for its end."""

    def __init__(self, address: str, data: bytes, stop_at: int) -> None:
        self._pipe, theirs = PROCESSES.Pipe()
        self._process = PROCESSES.Process(target=_run, args=(theirs, address, data, stop_at))
        self._process.start()
        theirs.close()

    def kill(self) -> None:
        """End it without warning in the middle of its work."""
        assert self._pipe.recv() == WRITING
        self._process.kill()
        self._process.join()


def _run(pipe: Connection, address: str, data: bytes, stop_at: int) -> None:
    asyncio.run(_import(pipe, address, data, stop_at))


async def _import(pipe: Connection, address: str, data: bytes, stop_at: int) -> None:
    class Stopping(StagedFile):
        def rows(self) -> Iterator[tuple[Table, Row]]:
            for row in super().rows():
                yield row
                if self.line >= stop_at:
                    pipe.send(WRITING)
                    pipe.recv()  # never comes

    journal = journal_at(address)
    await journal.open()
    vars(imports)["StagedFile"] = Stopping
    await import_file(journal, io.BytesIO(data), ImportOptions(), now=MADE_AT)
