"""Tools by which the model records what its user wants of messages that the agent starts.

The user comes from the run, never from the model, as with the other tools. Results and refusals
are sentences that the model can act on.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from langchain_core.tools import BaseTool, tool

from segue.agent.current import required_run
from segue.core.autonomy.local_time import as_utc, find_zone
from segue.core.autonomy.policy import Preferences
from segue.core.speech.stops import FollowUpRequest, When, Wish
from segue.errors import UsageError
from segue.runtime.deps import Deps
from segue.runtime.run import Run
from segue.runtime.wishes import ASKED, grant

_DONE: Final = {
    Wish.STOP: "Done: you will not write to the user on your own any more.",
    Wish.LATER: "Done: you will not write to the user on your own before {until}.",
    Wish.RESUME: "Done: you may write to the user on your own again.",
}
_UNCHANGED: Final = {
    Wish.STOP: "Nothing changed: the user is not written to already.",
    Wish.LATER: "Nothing changed: the user wants no messages at all. Ask before you use 'on'.",
    Wish.RESUME: "Nothing changed: you may write to the user on your own already.",
}


def initiative_tools(deps: Deps) -> list[BaseTool]:
    """`set_follow_ups`, for the user of the run that it is called in."""

    @tool
    async def set_follow_ups(mode: Literal["off", "on", "until"], until: str | None = None) -> str:
        """Record whether the user wants messages that you start yourself, when they say so in any
        language: "off", "on", or "until" for none before a local time ("2027-03-01T09:00").
        """
        run = required_run()
        try:
            request = await _request(deps, run, mode, until)
        except UsageError as error:
            return f"Not recorded: {error}"
        if not await _record(deps, run, request):
            return _UNCHANGED[request.wish]
        return _DONE[request.wish].format(until=until)

    return [set_follow_ups]


async def _request(deps: Deps, run: Run, mode: str, until: str | None) -> FollowUpRequest:
    if mode != "until":
        return FollowUpRequest(Wish.STOP if mode == "off" else Wish.RESUME)
    try:
        local = datetime.fromisoformat(until or "")
    except ValueError:
        raise UsageError(
            f"until is {until!r:.60}; expected the user's local time, such as '2027-03-01T09:00'."
        ) from None
    thread = await deps.journal.threads.get(run.thread_id)
    settings = await deps.journal.users.get_settings(run.user_id)
    zone = Preferences.of(settings, thread.settings, deps.zone).time_zone
    moment = local if local.tzinfo else local.replace(tzinfo=find_zone(zone) or UTC)
    wait = as_utc(moment) - deps.clock.now()
    if wait <= timedelta():
        raise UsageError(f"{local.isoformat()} is past; expected a later time of {zone}.")
    return FollowUpRequest(Wish.LATER, When(after=wait))


async def _record(deps: Deps, run: Run, request: FollowUpRequest) -> bool:
    """Whether the request changed something."""
    granted = await grant(deps, run.thread_id, request, ASKED[request.wish])
    if not granted.preferences:
        return False
    now = deps.clock.now()
    await deps.journal.users.update_settings(
        run.user_id,
        granted.preferences,
        now=now,
        reconsider_at=now,
        decisions=granted.decisions,
    )
    deps.wakeups.timers.now()
    return True
