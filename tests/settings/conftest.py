"""The stage of what settings do: a whole Segue on SQLite, on a virtual clock."""

from pathlib import Path

import pytest

from segue.simulate.world import Stage


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A new, empty database: what is shown here, no database has a part in."""
    return Stage(str(tmp_path / "data"))
