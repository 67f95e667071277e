"""Crons: the recurring reminders of a user. A cron's input is the text of the reminder."""

from contextlib import suppress
from datetime import datetime
from typing import Any

from fastapi import Response
from pydantic import Field

from segue.core.autonomy.local_time import find_zone
from segue.core.snowflake import parse, to_text
from segue.core.text import rfc3339
from segue.errors import NotFoundError, SegueError, UsageError
from segue.facade import Segue
from segue.journal.records import Thread
from segue.runtime.reminders import Reminder
from segue.server.access import CallerDep, SegueDep, ThreadDep
from segue.server.langgraph.dispatch import RunOptions
from segue.server.langgraph.messages import Json, sent_messages
from segue.server.langgraph.records import Search
from segue.server.middleware import authenticated_router
from segue.server.requests import StrictModel

router = authenticated_router("", "langgraph", in_schema=False)


class CronIn(RunOptions):
    assistant_id: str = Field(max_length=200)
    schedule: str = Field(max_length=300)
    input: Any = None
    end_time: datetime | None = None
    enabled: bool | None = None
    timezone: str | None = Field(default=None, max_length=60)
    on_run_completed: str | None = None


class CronFilter(StrictModel):
    assistant_id: str | None = Field(default=None, max_length=200)
    thread_id: str | None = Field(default=None, max_length=200)
    metadata: dict[str, Any] | None = None


class CronSearch(CronFilter, Search):
    enabled: bool | None = None


def _cron(reminder: Reminder, user_id: str) -> Json:
    created = rfc3339(reminder.created_at)
    return {
        "cron_id": to_text(reminder.id),
        "assistant_id": reminder.agent_id,
        "thread_id": reminder.thread_id,
        "schedule": reminder.every,
        "timezone": reminder.time_zone,
        "end_time": None if reminder.until is None else rfc3339(reminder.until),
        "next_run_date": rfc3339(reminder.due_at),
        "payload": {"input": {"messages": [{"role": "user", "content": reminder.text}]}},
        "on_run_completed": None,
        "enabled": True,
        "metadata": {"description": reminder.description},
        "user_id": user_id,
        "created_at": created,
        "updated_at": created,
    }


@router.post("/threads/{thread_id}/runs/crons")
async def create_for_thread(segue: SegueDep, thread: ThreadDep, new: CronIn) -> Json:
    _check(new)
    agent, before = segue.get_agent(new.assistant_id).id, thread.agent_id
    if before == agent:
        return await _create(segue, thread, new)
    thread = await segue.assign_thread(thread, agent)
    try:
        return await _create(segue, thread, new)
    except Exception:
        with suppress(SegueError):  # it has begun meanwhile
            await segue.assign_thread(thread, before)
        raise


@router.post("/runs/crons")
async def create(segue: SegueDep, caller: CallerDep, new: CronIn) -> Json:
    """In a new thread, since a reminder is part of a conversation."""
    _check(new)
    agent = segue.get_agent(new.assistant_id).id
    thread = await segue.create_thread(caller.user_id, agent)
    try:
        return await _create(segue, thread, new)
    except Exception:
        await segue.delete_thread(thread)
        raise


async def _create(segue: Segue, thread: Thread, new: CronIn) -> Json:
    text, until = _check(new), None
    preferences = await segue.get_user_preferences(thread.user_id)
    zone = preferences.get("time_zone") or segue.system.deps.zone
    if new.timezone not in {None, zone}:
        raise UsageError(f"timezone: a reminder follows the user's own clock, {zone}.")
    if new.end_time is not None:
        until = _local(new.end_time, zone).isoformat(timespec="seconds")
    reminder = await segue.remind(thread, text, every=new.schedule, until=until)
    return _cron(reminder, thread.user_id)


def _local(moment: datetime, zone: str) -> datetime:
    """On the user's clock, without its zone."""
    if moment.tzinfo is None:
        return moment
    try:
        return moment.astimezone(find_zone(zone)).replace(tzinfo=None)
    except OverflowError:
        raise UsageError("end_time: expected a time in the years 1 to 9999.") from None


def _check(new: CronIn) -> str:
    """The text of the reminder; `UsageError` for what cannot be honoured."""
    new.check()
    if new.enabled is False:
        raise UsageError("enabled: a reminder waits, or is cancelled; it cannot be switched off.")
    if new.on_run_completed not in {None, "keep"}:
        raise UsageError("on_run_completed: not supported: a reminder stays in its thread.")
    content = sent_messages(new.input)[-1].content
    if not isinstance(content, str):
        raise UsageError("input.messages: the text of a reminder is plain text.")
    return content


async def _matching(segue: Segue, user_id: str, wanted: CronFilter) -> list[Reminder]:
    """Soonest first."""
    if wanted.metadata:
        raise UsageError("metadata: not supported: reminders keep no metadata of clients.")
    return [
        each
        for each in await segue.list_reminders(user_id)
        if each.every is not None
        and wanted.assistant_id in {None, each.agent_id}
        and wanted.thread_id in {None, each.thread_id}
    ]


@router.post("/runs/crons/search")
async def search(
    segue: SegueDep, caller: CallerDep, wanted: CronSearch | None = None
) -> list[Json]:
    wanted = wanted or CronSearch()
    if wanted.sort_by not in {None, "next_run_date"} or wanted.sort_order == "desc":
        raise UsageError("sort_by: not supported: crons come in the order of next_run_date.")
    found = await _matching(segue, caller.user_id, wanted) if wanted.enabled is not False else []
    return wanted.page([_cron(each, caller.user_id) for each in found])


@router.post("/runs/crons/count")
async def count(segue: SegueDep, caller: CallerDep, wanted: CronFilter | None = None) -> int:
    return len(await _matching(segue, caller.user_id, wanted or CronFilter()))


@router.delete("/runs/crons/{cron_id}", status_code=204)
async def delete(segue: SegueDep, caller: CallerDep, cron_id: str) -> Response:
    missing = NotFoundError(f"There is no cron {cron_id!r:.60}.")
    try:
        await segue.cancel_reminder(parse(cron_id), user_id=caller.user_id)
    except (NotFoundError, UsageError):
        raise missing from None
    return Response(status_code=204)
