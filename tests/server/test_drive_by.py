"""A page of another origin, in a real browser on this machine, gets nothing from an open server.

What a browser lets a page send and read is the browser's to know; so none is played here.
"""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from segue.server.settings import ServerSettings
from segue.simulate.world import Stage, World
from tests.runtime.scenes import always
from tests.server.clients import Site, site_of

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).with_name("drive_by.html")
TOLD = "My garden gate has the code 4711."
SECONDS = 120.0
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--no-proxy-server"),
]
# What a page that is refused sees of its attempts: nothing that it could tell from a dead server.
REFUSED = {"refused", "opaque", "sent", "closed 4403"}
# Where a server that knows the page as its friend lets it in.
READ = (
    *("read", "read everything", "listen", "listen by a socket"),
    "listen by a socket with a protocol",
)
Results = dict[str, str]


def chromium() -> str:
    """Where it is; without one the test is skipped, but not where all tests have to run."""
    found = shutil.which("chromium")
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("Chromium is missing; see .ci/run.")
    return found or pytest.skip("Chromium is not installed (Debian: apt-get install chromium).")


class _Page(ThreadingHTTPServer):
    """Serves one page, and hears what the page found out."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.page = ""
        self.results: Queue[Results] = Queue()

    @property
    def origin(self) -> str:
        return f"http://localhost:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: _Page

    def do_GET(self) -> None:
        self._answer(self.server.page.encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")
        self.server.results.put(json.loads(body))

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def page_server() -> Iterator[_Page]:
    with _Page() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@asynccontextmanager
async def browsing(url: str, folder: Path) -> AsyncIterator[None]:
    """A browser of its own that shows a page."""
    flags = [*FLAGS, f"--user-data-dir={folder}", url]
    pipe = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        chromium(), *flags, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its helpers, too
        await process.wait()


async def visited(page: _Page, target: str, thread: str, forged: str, folder: Path) -> Results:
    """What a page of the other origin gets of a server at `target`."""
    written = PAGE.read_text(encoding="utf-8").replace("TARGET", target).replace("THREAD", thread)
    page.page = written.replace("FORGED", json.dumps(forged))
    async with browsing(f"{page.origin}/", folder):
        return await asyncio.to_thread(page.results.get, timeout=SECONDS)


async def secret_thread(world: World, site: Site) -> str:
    thread = await site.new_thread()
    await site.post(f"/api/threads/{thread}/messages", {"content": TOLD})
    await world.clock.settle()
    return thread


async def everything(site: Site) -> str:
    answer = await site.http.get("/api/admin/export")
    return answer.text


@pytest.mark.parametrize("name", ["127.0.0.1", pytest.param("localhost", marks=pytest.mark.long)])
async def test_a_page_of_another_port_gets_nothing(
    sqlite_stage: Stage, tmp_path: Path, name: str
) -> None:
    """It reads nothing and changes nothing, by any way that browsers have."""
    model = always("I will not tell.")
    with page_server() as page:
        async with (
            sqlite_stage.world(models={"guide": model}) as world,
            site_of(world.segue) as site,
        ):
            thread = await secret_thread(world, site)
            before = await everything(site)
            forged = before.replace("4711", "0000")
            target = site.address.replace("127.0.0.1", name)
            results = await visited(page, target, thread, forged, tmp_path / "browser")
            await world.clock.settle()
            assert await everything(site) == before
    assert set(results.values()) <= REFUSED, results


async def test_a_page_that_the_settings_name_reads(sqlite_stage: Stage, tmp_path: Path) -> None:
    """The same page gets in where it may, so that what it is refused above is really refused."""
    with page_server() as page:
        friends = ServerSettings(rate_per_minute=None, cors_origins=(page.origin,))
        async with (
            sqlite_stage.world(models={"guide": always("Fine.")}) as world,
            site_of(world.segue, friends) as site,
        ):
            thread = await secret_thread(world, site)
            results = await visited(page, site.address, thread, "", tmp_path / "browser")
    assert all(TOLD in results[name] for name in READ), results
    assert results["write JSON"].startswith("202"), results
    assert results["delete"].startswith("200"), results
