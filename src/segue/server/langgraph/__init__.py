"""The routes that unmodified clients of the LangGraph SDK use, over the same `Segue` as `/api`.

Agents are assistants, turns are runs, memories are the store, reminders are crons. A follow-up is a
run that nobody asked for. What cannot be honoured is refused with a sentence; docs/clients.md lists
every route.
"""

from typing import Final

from segue.server.langgraph import (
    assistants,
    commands,
    crons,
    refusals,
    runs,
    sockets,
    stateless,
    store,
    threads,
)
from segue.server.langgraph.threads import LIVE_HEADER
from segue.server.langgraph.windows import SharedWindow

__all__ = ["EXPOSED", "HEADERS", "MESSAGE_PATHS", "ROUTERS", "SharedWindow"]

ROUTERS: Final = (
    assistants.public,
    assistants.router,
    # Before the routes of one run, whose path has a name where theirs has a word.
    refusals.router,
    crons.router,
    stateless.router,
    threads.router,
    runs.router,
    commands.router,
    sockets.router,
    store.router,
)
# Paths that end so take messages, which may have pictures and files.
MESSAGE_PATHS: Final = ("/runs", "/runs/stream", "/runs/wait", "/commands")
# Request headers that pages of other origins may send, and response headers that they may read.
HEADERS: Final = ("X-Auth-Scheme", LIVE_HEADER)
EXPOSED: Final = ("Content-Location", "Location")
