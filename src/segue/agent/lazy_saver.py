"""A saver that stores nothing until there is something that must not be done twice.

A turn in which the model just answers has nothing to lose: cut off, it is asked again. So its
checkpoints stay in memory, and most turns never touch the saver. They are stored, from the first
one on, as soon as a tool has finished or the graph waits for a person.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Final, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.memory import InMemorySaver

_INTERRUPT: Final = "__interrupt__"
# Steps -1 and 0 are the graph's input; 1 is what its first node, the model, has said.
_FIRST_NODE_IS_DONE: Final = 1


class LazySaver(BaseCheckpointSaver[Any]):
    """Holds a new run's checkpoints back until they are worth storing."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver
        self._memory = InMemorySaver(serde=saver.serde)
        self._held: list[tuple[Any, ...]] = []
        self._steps: dict[str, int] = {}
        self._storing = asyncio.Lock()
        self.has_stored = False

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """The same saver: what is held back is known to this one alone."""
        self._saver = self._saver.with_allowlist(extra_allowlist)
        self._memory.serde = self.serde = self._saver.serde
        return self

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._current.aget_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        async for found in self._current.alist(config, filter=filter, before=before, limit=limit):
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        async with self._storing:
            if self.has_stored:
                return await self._saver.aput(config, checkpoint, metadata, new_versions)
            self._held.append((config, checkpoint, metadata, new_versions))
            self._steps[checkpoint["id"]] = metadata.get("step", -1)
            return await self._memory.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        async with self._storing:
            if not self.has_stored and self._is_worth_storing(config, writes):
                await self._store()
            if self.has_stored:
                await self._saver.aput_writes(config, writes, task_id, task_path)
                return
            self._held.append((config, writes, task_id, task_path))
            await self._memory.aput_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._saver.adelete_thread(thread_id)

    @property
    def _current(self) -> BaseCheckpointSaver[Any]:
        return self._saver if self.has_stored else self._memory

    def _is_worth_storing(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]]) -> bool:
        step = self._steps.get(config["configurable"].get("checkpoint_id", ""), -1)
        return step >= _FIRST_NODE_IS_DONE or any(name == _INTERRUPT for name, _ in writes)

    async def _store(self) -> None:
        """Store what was held back, in order."""
        for held in self._held:
            if isinstance(held[2], dict):
                await self._saver.aput(*held)
            else:
                await self._saver.aput_writes(*held)
        self._held.clear()
        self.has_stored = True
