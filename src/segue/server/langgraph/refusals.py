"""Routes of the LangGraph SDK that are refused, each with a sentence that says why."""

from collections.abc import Awaitable, Callable
from typing import Final

from segue.errors import UsageError
from segue.server.access import CallerDep
from segue.server.middleware import authenticated_router

router = authenticated_router("", "langgraph", in_schema=False)
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
    ("POST", "/threads/{thread_id}/copy", "A conversation has one course; it is not copied."),
    ("POST", "/threads/prune", "What is kept, and how long, is set in the settings."),
    (
        "DELETE",
        "/threads/{thread_id}/runs/{run_id}",
        "A run is part of its conversation; delete the thread.",
    ),
    ("POST", "/runs/batch", "Create the runs one by one: each can be refused for itself."),
    (
        "PATCH",
        "/runs/crons/{cron_id}",
        "A reminder is not changed; delete it and create another one.",
    ),
)


def _refusing(reason: str) -> Callable[..., Awaitable[None]]:
    async def refuse(_: CallerDep) -> None:
        raise UsageError(reason)

    return refuse


for method, path, reason in REFUSED:
    router.add_api_route(path, _refusing(reason), methods=[method])
