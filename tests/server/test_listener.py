"""How many connections there may be: for one address, and for the process."""

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

import pytest

from segue.server.settings import ServerSettings
from segue.server.transport import Listener, _source
from segue.simulate.world import Stage
from tests.server.clients import PATIENCE, Site, site_of

pytestmark = pytest.mark.anyio

ELSEWHERE = "127.0.0.2"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def connected(site: Site, source: str) -> socket.socket:
    """A connection from an address of this machine."""
    host, port = site.address.removeprefix("http://").split(":")
    made = socket.socket()
    made.setblocking(False)
    made.bind((source, 0))
    await asyncio.get_running_loop().sock_connect(made, (host, int(port)))
    return made


async def is_answered(made: socket.socket) -> bool:
    """Whether the server answers a request on it; otherwise it has closed it."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(PATIENCE):
            await loop.sock_sendall(made, HEALTH)
            return (await loop.sock_recv(made, 12)) == b"HTTP/1.1 200"
    except (ConnectionResetError, BrokenPipeError):
        return False


@contextmanager
def few_descriptors(beyond: int) -> Iterator[None]:
    """This process may have only so many more than it has."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + beyond, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def devnull() -> TextIO:
    return Path(os.devnull).open(encoding="ascii")


def use_all_descriptors(stack: ExitStack) -> None:
    with suppress(OSError):
        while True:
            stack.enter_context(devnull())


async def test_one_address_holds_a_bounded_number_of_connections(sqlite_stage: Stage) -> None:
    """One more is closed at once; other addresses are served, and this one when it has room."""
    settings = ServerSettings(rate_per_minute=None, max_connections_per_address=3)
    async with sqlite_stage.world() as world, site_of(world.segue, settings) as site:
        with ExitStack() as stack:
            held = [stack.enter_context(await connected(site, ELSEWHERE)) for _ in range(3)]
            assert [await is_answered(each) for each in held] == [True] * 3
            with await connected(site, ELSEWHERE) as one_more:
                assert not await is_answered(one_more)
            assert (await site.http.get("/healthz")).status_code == 200
            held[0].close()
            async with asyncio.timeout(PATIENCE):
                while True:  # the server hears a moment later that the first one is gone
                    with await connected(site, ELSEWHERE) as again:
                        if await is_answered(again):
                            break


async def test_behind_a_proxy_connections_of_one_address_are_not_bounded(
    sqlite_stage: Stage,
) -> None:
    """`none` lets all of them in, up to what the process can hold."""
    settings = ServerSettings(rate_per_minute=None, max_connections_per_address=None)
    async with sqlite_stage.world() as world, site_of(world.segue, settings) as site:
        with ExitStack() as stack:
            held = [stack.enter_context(await connected(site, ELSEWHERE)) for _ in range(300)]
            assert all([await is_answered(each) for each in held])


async def test_connections_leave_descriptors_for_the_database(
    sqlite_stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """When few are left, new connections are refused, and those that are there go on."""
    settings = ServerSettings(rate_per_minute=None, max_connections_per_address=None)
    async with sqlite_stage.world() as world:
        with few_descriptors(60), ExitStack() as stack:
            async with site_of(world.segue, settings) as site:
                await site.get("/api/me")
                refused = False
                while not refused:  # before it would be out of descriptors
                    made = stack.enter_context(await connected(site, ELSEWHERE))
                    refused = not await is_answered(made)
                for _ in range(10):
                    stack.enter_context(devnull())
                await site.new_thread()
                stack.close()
                async with asyncio.timeout(PATIENCE):
                    while True:
                        with await connected(site, ELSEWHERE) as again:
                            if await is_answered(again):
                                break
    warnings = [r for r in caplog.records if "ulimit" in r.getMessage()]
    assert len(warnings) == 1


async def test_accepting_goes_on_when_there_are_descriptors_again(sqlite_stage: Stage) -> None:
    """What waited meanwhile is answered, and the log is not flooded."""
    loop, told = asyncio.get_running_loop(), list[str]()
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        await site.get("/api/me")
        host, port = site.address.removeprefix("http://").split(":")
        before = loop.get_exception_handler()
        loop.set_exception_handler(lambda _, context: told.append(context["message"]))
        with socket.socket() as waiting, few_descriptors(20), ExitStack() as stack:
            waiting.setblocking(False)
            use_all_descriptors(stack)
            await loop.sock_connect(waiting, (host, int(port)))
            async with asyncio.timeout(PATIENCE):
                while not told:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.01)
            stack.close()
            assert await is_answered(waiting)
        loop.set_exception_handler(before)
    assert {*told} == {"socket.accept() out of system resource"}
    assert len(told) < 10


@pytest.mark.parametrize(
    ("address", "source"),
    [
        (("192.0.2.7", 4711), "192.0.2.7"),
        (("::ffff:192.0.2.7", 4711, 0, 0), "192.0.2.7"),
        (("2001:db8:0:1::7", 4711, 0, 0), "2001:db8:0:1::/64"),
        (("2001:db8:0:1:ffff::", 4711, 0, 0), "2001:db8:0:1::/64"),
        (("fe80::1%lo", 4711, 0, 1), "fe80::/64"),
        ("", None),
    ],
)
def test_a_client_is_known_by_its_address_or_network(
    address: tuple[object, ...] | str, source: str | None
) -> None:
    """An IPv6 client has a whole network to call from; a Unix socket tells no address."""
    assert _source(address) == source


def test_clients_of_a_unix_socket_are_not_counted(tmp_path: Path) -> None:
    """They have no address that they could share."""
    with Listener(socket.AF_UNIX, socket.SOCK_STREAM, 0, 1) as listener, ExitStack() as stack:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        for _ in range(3):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(tmp_path / "s"))
            stack.enter_context(listener.accept()[0]).sendall(b"hello")
            assert client.recv(5) == b"hello"
        assert listener.held == 0
