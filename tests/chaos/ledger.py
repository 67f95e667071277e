"""What workers write down outside of the database, so that a kill takes none of it.

One line per event, each written in one piece: several processes share a file.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A tool began: for which call, and when the run of the agent began that it is part of."""

    batch: int
    call_id: str
    tool: str
    run_began_at: datetime
    began_at: datetime
    # Whether the run knew a result of this very call when it began.
    knew_result: bool = False


@dataclass(frozen=True, slots=True)
class Life:
    """A process got a node number, or gave it back."""

    life: int
    node: int
    event: str
    at: datetime


class Ledger:
    """The files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def note_tool(self, run: ToolRun) -> None:
        self._write("tools", asdict(run))

    def note_life(self, life: Life) -> None:
        self._write("lives", asdict(life))

    def tools(self) -> list[ToolRun]:
        return [ToolRun(**values) for values in self._read("tools")]

    def lives(self) -> list[Life]:
        return [Life(**values) for values in self._read("lives")]

    def _write(self, name: str, values: dict[str, Any]) -> None:
        line = json.dumps(values, default=datetime.isoformat) + "\n"
        opened = os.open(self._path(name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(opened, line.encode())
        finally:
            os.close(opened)

    def _read(self, name: str) -> Iterator[dict[str, Any]]:
        path = self._path(name)
        for line in path.read_text().splitlines() if path.exists() else ():
            yield {key: _value(key, value) for key, value in json.loads(line).items()}

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"


def _value(key: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if key.endswith("at") else value
