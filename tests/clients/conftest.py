"""One browser, and one server per module."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.clients.packages import EXAMPLES, bundle, installed
from tests.clients.stage import Site, pages, serving
from tests.web.stage import browsing


@pytest.fixture(scope="session")
def sdk() -> Path:
    """Where the packages of `tools/clients/sdk` are."""
    return installed("sdk")


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as opened:
        yield opened


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The pages of `examples/clients`, built, at an origin of their own."""
    sdk, folder = installed("sdk"), tmp_path_factory.mktemp("apps")
    for name in ("react", "hook"):
        bundle(EXAMPLES / "react", name, sdk, folder / name)
    (folder / "favicon.ico").touch()
    with pages(folder) as origin:
        yield origin


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serving(str(tmp_path_factory.mktemp("site"))) as running:
        yield running


@pytest.fixture(scope="module")
async def open_site(tmp_path_factory: pytest.TempPathFactory, apps: str) -> AsyncIterator[Site]:
    """A server that the pages of `apps` may call."""
    folder = str(tmp_path_factory.mktemp("open"))
    async with serving(folder, cors_origins=(apps,)) as running:
        yield running
