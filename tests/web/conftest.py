"""One browser, and one server per module."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from segue.simulate.world import plain_agent
from tests.web.stage import Served, asker, browsing, eager, served


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer for a simulation than a server waits for it."""
    monkeypatch.setattr("segue.simulate.simulator._SECONDS", 600.0)


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as opened:
        yield opened


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = str(tmp_path_factory.mktemp("page"))
    minder = plain_agent("minder", name="Minder", memory={"text_weight": 1})
    agents = (eager("ada", "Ada", 1.0), eager("calm", "Calm", 3_600), asker(), minder)
    async with served(folder, *agents) as running:
        yield running
