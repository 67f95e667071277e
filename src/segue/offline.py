"""`OfflineSegue`: stored data without running agents, as the command line reads and changes it.

It imports no model and no LangGraph: read-only commands must start quickly.
"""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from segue.core.autonomy.policy import POSTPONING, check_preferences, preferences_in
from segue.core.retention import RetentionPolicy
from segue.core.snowflake import SnowflakeSource
from segue.core.text import check_name
from segue.errors import NotFoundError
from segue.insight.stats import Stats, stats
from segue.insight.views import Inspector
from segue.journal.journal import Journal
from segue.journal.records import ApiKey, Deleted, Summary, Thread
from segue.journal.stats import OutcomeQuery
from segue.migrate import SETTING
from segue.runtime.clock import Clock, SystemClock
from segue.runtime.housekeeping import Sweeper, ThreadRemoval, apply_retention
from segue.runtime.ids import LeasedIds, SnowflakeGenerator
from segue.runtime.reminders import Reminders
from segue.runtime.requests import Requests
from segue.settings import Settings
from segue.settings.agents import AgentConfig, Autonomy
from segue.stores import checkpoints_of, open_journal

# Longer than any command stores; a crashed command blocks its node for this long.
_LEASE: Final = timedelta(hours=1)
# More threads than a user has.
_ALL: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class OfflineSegue:
    """The data of all users. Made by `open_offline`.

    `journal` is for replay, migration and compression, which need all of it.
    """

    settings: Settings
    journal: Journal
    clock: Clock

    @property
    def inspector(self) -> Inspector:
        """What operators see of all users."""
        return Inspector(self.journal, self.settings.agents, self.clock, self.settings.zone)

    async def last_position(self) -> int:
        """The position of the newest message of all threads, or 0."""
        return await self.journal.nodes.last_position()

    async def get_thread(self, thread_id: str) -> Thread:
        return await self.journal.threads.get(thread_id)

    def get_agent(self, agent_id: str) -> AgentConfig:
        """The agent of a thread; `NotFoundError` if it is not in the settings."""
        agents = {config.id: config for config in self.settings.agents}
        if agent_id not in agents:
            raise NotFoundError(
                f"The thread is with agent {agent_id!r}, and the settings have only: "
                f"{', '.join(agents)}. Name the settings file of that agent with --config."
            )
        return agents[agent_id]

    @asynccontextmanager
    async def new_ids(self, *, dry_run: bool = False) -> AsyncIterator[SnowflakeSource]:
        """Ids that no other process makes; a dry run stores nothing, not even a lease."""
        if dry_run:
            yield SnowflakeGenerator()
            return
        owner = f"segue:{os.getpid()}"
        ids = LeasedIds(self.journal, self.clock, owner=owner, lease_for=_LEASE)
        await ids.open()
        try:
            yield ids
        finally:
            await ids.close()

    def reminders(self, ids: SnowflakeSource | None = None) -> Reminders:
        """Reminders to list and cancel and, with `ids`, to set; a running server sends them."""
        ids, zone = ids or SnowflakeGenerator(), self.settings.zone
        return Reminders(self.journal, ids, self.clock, self._autonomy_of, zone)

    def requests(self, ids: SnowflakeSource) -> Requests:
        """Follow-ups to request; a running server sends them."""
        return Requests(self.journal, ids, self.clock, self._autonomy_of, self.settings.zone)

    def _autonomy_of(self, agent_id: str) -> Autonomy:
        return self.get_agent(agent_id).autonomy

    async def set_preferences(
        self, user_id: str, preferences: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Change a user's preferences; None removes one. Returns all that are set."""
        users, now = self.journal.users, self.clock.now()
        if not preferences:
            return preferences_in(await users.get_settings(user_id))
        stored = await users.update_settings(
            check_name(user_id, "user"),
            check_preferences(preferences, now),
            now=now,
            reconsider_at=now if POSTPONING & preferences.keys() else None,
        )
        if "time_zone" in preferences:
            await self.reminders(SnowflakeGenerator()).follow_clock(user_id)  # no id is made
        return preferences_in(stored)

    async def stats(self, query: OutcomeQuery) -> Stats:
        """The outcomes of all users' follow-ups, compared with the hold-out."""
        return await stats(self.journal, query)

    async def list_keys(self) -> list[ApiKey]:
        """All API keys of the server, oldest first, revoked ones included."""
        return await self.journal.keys.list_all()

    async def add_key(self, key: ApiKey) -> None:
        await self.journal.keys.add(key)

    async def revoke_key(self, key_id: str) -> ApiKey:
        return await self.journal.keys.revoke(key_id, now=self.clock.now())

    async def retain(self, policy: RetentionPolicy, *, dry_run: bool) -> list[ThreadRemoval]:
        """Delete old batches, or find out which ones."""
        now = self.clock.now()
        found = apply_retention(self.journal, policy, now=now, is_dry_run=dry_run)
        return [removal async for removal in found]

    async def undo_summary(self, thread: Thread, *, dry_run: bool) -> Summary:
        """Undo the newest summary, or find out which one it would be."""
        newest = await self.journal.summaries.find(thread.id)
        if newest is None:
            raise NotFoundError(f"Thread {thread.id!r} has no summary that could be undone.")
        if not dry_run:
            await self.journal.summaries.undo(newest)
        return newest

    async def count_migrated(self, user_id: str) -> int:
        """Threads of a user that came from a migration, which would import them again."""
        threads = await self.journal.threads.list_of(user_id, limit=_ALL, with_nested=True)
        return sum(SETTING in thread.settings for thread in threads)

    async def count_user(self, user_id: str) -> Deleted:
        """What `delete_user` would delete now."""
        return await self.journal.removal.count_user(user_id)

    async def delete_user(self, user_id: str) -> Deleted:
        """Delete a user's threads, memories and preferences, and checkpoints that no turn uses."""
        deleted = await self.journal.removal.delete_user(user_id)
        checkpoints = await checkpoints_of(self.settings).open()
        try:
            await Sweeper(self.journal, checkpoints, self.clock).step()
        finally:
            await checkpoints.close()
        return deleted


@asynccontextmanager
async def open_offline(settings: Settings, *, make: bool = False) -> AsyncIterator[OfflineSegue]:
    """The stored data of the settings' database; with `make`, a missing SQLite one is created."""
    async with open_journal(settings, make=make) as journal:
        yield OfflineSegue(settings, journal, SystemClock())
