"""The `Segue` behind the app: given open, or opened while the server already answers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from segue.facade import Segue
from segue.server.problems import ApiError

logger = logging.getLogger(__name__)

SegueFactory = Callable[[], AbstractAsyncContextManager[Segue]]


class Lifespan:
    """Holds a `Segue` once it is open; until then every request gets 503."""

    def __init__(self, source: Segue | SegueFactory) -> None:
        self._source = source
        self._segue = source if isinstance(source, Segue) else None
        self._has_begun = False
        # Why the Segue could not be opened.
        self.failure: Exception | None = None
        # Set when the Segue is open, or opening failed.
        self.started = asyncio.Event()
        # Set when the server is about to stop: streams end then.
        self.stopping = asyncio.Event()

    @property
    def segue(self) -> Segue:
        if self._segue is None:
            # A mounted app gets no lifespan events.
            detail = (
                "The server is still starting; try again in a moment."
                if self._has_begun
                else "This app was never started. An app that is mounted in another one needs an "
                "open Segue: create_app(segue), in the lifespan of the other one."
            )
            raise ApiError(503, "starting", detail, {"Retry-After": "1"})
        return self._segue

    @property
    def is_ready(self) -> bool:
        return self._segue is not None and not self.stopping.is_set()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """From the server's start to its end. A `Segue` that was given is left open."""
        self._has_begun = True
        task = None
        if isinstance(self._source, Segue):
            self.started.set()
        else:
            task = asyncio.create_task(self._keep_open(self._source))
        try:
            yield
        finally:
            self.stopping.set()
            if task is not None:
                await task

    async def _keep_open(self, factory: SegueFactory) -> None:
        stopped = asyncio.create_task(self.stopping.wait())
        try:
            async with factory() as segue:
                self._segue = segue
                self.started.set()
                await stopped
        except Exception as error:
            self.failure = error
            logger.exception("Segue failed")
        finally:
            self._segue = None
            self.started.set()
            stopped.cancel()
