"""The routes that unmodified clients of the LangGraph SDK use, over the same `Segue` as `/api`.

Agents are assistants, turns are runs, memories are the store, reminders are crons. A follow-up is
also a run. Unsupported requests are refused with an explanation; docs/clients.md lists every route.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from segue.errors import UsageError
from segue.server.access import CallerDep
from segue.server.langgraph import assistants, commands, crons, runs, store, threads
from segue.server.langgraph.messages import SharedWindow
from segue.server.middleware import authenticated_router

__all__ = ["EXPOSED", "MESSAGE_PATHS", "REFUSED", "ROUTERS", "SharedWindow"]

_AGENTS: Final = "Assistants are the agents of the settings; clients cannot change them."
_STATE: Final = (
    "A client cannot write the state of a thread: messages are sent by a run, and the rest is the "
    "graph's own."
)
REFUSED: Final = (
    ("POST", "/assistants", _AGENTS),
    ("PATCH", "/assistants/{assistant_id}", _AGENTS),
    ("DELETE", "/assistants/{assistant_id}", _AGENTS),
    ("POST", "/assistants/{assistant_id}/versions", "An assistant has one version, its settings."),
    ("POST", "/assistants/{assistant_id}/latest", "An assistant has one version, its settings."),
    ("POST", "/threads/{thread_id}/state", _STATE),
    ("POST", "/threads/prune", "What is kept, and how long, is set in the settings."),
    (
        "DELETE",
        "/threads/{thread_id}/runs/{run_id}",
        "A run is part of its conversation; delete the thread.",
    ),
    ("POST", "/runs/batch", "Create the runs one by one: each may be refused separately."),
    (
        "PATCH",
        "/runs/crons/{cron_id}",
        "A reminder is not changed; delete it and create another one.",
    ),
)
_refusals = authenticated_router("", "langgraph", in_schema=False)


def _refusing(reason: str) -> Callable[..., Awaitable[None]]:
    async def refuse(_: CallerDep) -> None:
        raise UsageError(reason)

    return refuse


for method, path, reason in REFUSED:
    _refusals.add_api_route(path, _refusing(reason), methods=[method])

ROUTERS: Final = (
    assistants.public,
    assistants.router,
    # Before the routes of one run, whose path has a name where theirs has a word.
    _refusals,
    crons.router,
    threads.router,
    runs.router,
    commands.router,
    commands.sockets,
    store.router,
)
# Paths that end so take messages, which may have pictures and files.
MESSAGE_PATHS: Final = ("/runs", "/runs/stream", "/runs/wait", "/commands")
# Response headers that pages of other origins may read.
EXPOSED: Final = ("Content-Location", "Location")
