"""The system behind the app: there at once, or opened while the server already answers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from segue.facade import Segue
from segue.server.problems import Refusal

logger = logging.getLogger(__name__)

Opening = Callable[[], AbstractAsyncContextManager[Segue]]


class Running:
    """Holds a `Segue` once it is open; until then every request is told to come back."""

    def __init__(self, source: Segue | Opening) -> None:
        self._source = source
        self._segue = source if isinstance(source, Segue) else None
        self._has_begun = False
        # Why it could not be opened.
        self.failure: Exception | None = None
        # Set when it is open, or failed.
        self.settled = asyncio.Event()
        # Set when the server is about to stop: streams end then.
        self.stopping = asyncio.Event()

    @property
    def segue(self) -> Segue:
        if self._segue is None:
            # A mounted app is not told when its server starts.
            detail = (
                "The server is still starting; try again in a moment."
                if self._has_begun
                else "This app was never started. An app that is mounted in another one gets a "
                "Segue that is open: create_app(segue), in the other one's lifespan."
            )
            raise Refusal(503, "starting", detail, {"Retry-After": "1"})
        return self._segue

    @property
    def is_ready(self) -> bool:
        return self._segue is not None and not self.stopping.is_set()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """From the server's start to its end. A `Segue` that was given is left open."""
        self._has_begun = True
        if isinstance(self._source, Segue):
            self.settled.set()
            try:
                yield
            finally:
                self.stopping.set()
            return
        task = asyncio.create_task(self._keep_open(self._source))
        try:
            yield
        finally:
            self.stopping.set()
            await task

    async def _keep_open(self, opening: Opening) -> None:
        stopped = asyncio.create_task(self.stopping.wait())
        try:
            async with opening() as segue:
                self._segue = segue
                self.settled.set()
                await stopped
        except Exception as error:
            self.failure = error
            logger.exception("Segue could not be run")
        finally:
            self._segue = None
            self.settled.set()
            stopped.cancel()
