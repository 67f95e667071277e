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
        self._held: list[tuple[Any, ...]] = []
        self._steps: dict[str, int] = {}
        self._storing = asyncio.Lock()
        self.has_stored = False
        # Also if that was cut off in the middle.
        self.has_begun_to_store = False

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """The same saver: what is held back is known to this one alone."""
        self._saver = self._saver.with_allowlist(extra_allowlist)
        self.serde = self._saver.serde
        return self

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await (await self._readable()).aget_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        saver = await self._readable()
        async for found in saver.alist(config, filter=filter, before=before, limit=limit):
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
            place = config["configurable"]
            return {
                "configurable": {
                    "thread_id": place["thread_id"],
                    "checkpoint_ns": place.get("checkpoint_ns", ""),
                    "checkpoint_id": checkpoint["id"],
                }
            }

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        async with self._storing:
            if not self.has_stored and self._is_worth_storing(config, writes):
                self.has_begun_to_store = True
                await self._put_into(self._saver)
                self._held.clear()
                self.has_stored = True
            if self.has_stored:
                await self._saver.aput_writes(config, writes, task_id, task_path)
                return
            self._held.append((config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._saver.adelete_thread(thread_id)

    async def _readable(self) -> BaseCheckpointSaver[Any]:
        """Where to read: hardly anybody does while all is held back, so it is put in order then."""
        if self.has_stored:
            return self._saver
        memory = InMemorySaver(serde=self.serde)
        await self._put_into(memory)
        return memory

    def _is_worth_storing(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]]) -> bool:
        step = self._steps.get(config["configurable"].get("checkpoint_id", ""), -1)
        return step >= _FIRST_NODE_IS_DONE or any(name == _INTERRUPT for name, _ in writes)

    async def _put_into(self, saver: BaseCheckpointSaver[Any]) -> None:
        """Store there what was held back, in order."""
        for held in self._held:
            if isinstance(held[2], dict):
                await saver.aput(*held)
            else:
                await saver.aput_writes(*held)
