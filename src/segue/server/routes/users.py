"""The caller: preferences, and the deletion of all data; and the agents to talk to."""

from fastapi import APIRouter

from segue.server.access import CallerDep, SegueDep
from segue.server.middleware import AuthenticatedRoute
from segue.server.problems import responses
from segue.server.requests import DeletionIn, PreferencesIn
from segue.server.responses import AgentOut, DeletedOut, MeOut

router = APIRouter(route_class=AuthenticatedRoute, prefix="/api", tags=["users"])


@router.get("/agents", responses=responses())
async def list_agents(segue: SegueDep, _: CallerDep) -> list[AgentOut]:
    """The agents to talk to; a new thread uses the first one by default."""
    return [AgentOut(id=agent.id, name=agent.name or agent.id) for agent in segue.agents]


@router.get("/me", responses=responses())
async def get_me(segue: SegueDep, caller: CallerDep) -> MeOut:
    """The caller, and their preferences."""
    preferences = await segue.get_user_preferences(caller.user_id)
    return MeOut(
        user_id=caller.user_id, is_operator=caller.is_operator, preferences=dict(preferences)
    )


@router.patch("/me", responses=responses())
async def change_me(segue: SegueDep, caller: CallerDep, change: PreferencesIn) -> MeOut:
    """Set preferences for all threads; null removes one."""
    preferences = await segue.set_user_preferences(caller.user_id, **change.changes())
    return MeOut(
        user_id=caller.user_id, is_operator=caller.is_operator, preferences=dict(preferences)
    )


@router.delete("/me", responses=responses())
async def delete_me(segue: SegueDep, caller: CallerDep, confirmation: DeletionIn) -> DeletedOut:
    """Delete all data of the caller: conversations, memories, preferences."""
    del confirmation
    return DeletedOut(deleted=dict((await segue.delete_user(caller.user_id)).rows))
