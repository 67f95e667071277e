"""A saver for one attempt at a batch: what it stores, no other attempt reads by accident.

A run whose lease was lost goes on until it hears of it, and may store checkpoints meanwhile. So
each attempt has a namespace of its own in its batch's thread; LangGraph does not notice. An
attempt that goes on begins with a copy of the newest one's last checkpoint, taken once. Deleting
the thread deletes all attempts.
"""

import asyncio
import copy
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Any, Final, Self

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

# No node's name has one, so that no graph has a namespace like an attempt's.
_MARK: Final = ":"
_SEPARATOR: Final = "|"
# Leaves objects as they are stored: what may come to life, each graph says for itself.
_CLOSED: Final = JsonPlusSerializer(__unpack_ext_hook__=ormsgpack.Ext)

# Who worked on the batch, in an order in which later attempts come later; nobody in particular if
# it is empty.
Attempt = tuple[int, ...]


class AttemptSaver(BaseCheckpointSaver[Any]):
    """Stores on another saver, in the namespace of its attempt."""

    def __init__(self, saver: BaseCheckpointSaver[Any], attempt: Attempt) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver
        self._attempt = attempt
        # With what may be a part of this attempt's past.
        self._earlier: list[Attempt] = []
        self._storing = asyncio.Lock()
        self._is_over = False

    async def close(self) -> None:
        """Store nothing from here on. LangGraph may still do so after its run was stopped."""
        async with self._storing:
            self._is_over = True

    async def take_over(self, thread_id: str) -> None:
        """Go on from where the newest attempt is now, whatever it stores from here on.

        The copy counts when its last part is there, the graph's own checkpoint: cut off before
        that, it is made again by the next attempt.
        """
        saver = _closed(self._saver)
        found = await _attempts(saver, thread_id)
        self._earlier = sorted(found.keys() - {self._attempt}, reverse=True)
        if self._attempt in found or not self._earlier:
            return
        inner_first = sorted(found[self._earlier[0]].items(), reverse=True)
        for namespace, newest in inner_first:
            await _copy(saver, newest, _joined(self._attempt, namespace))

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """The same saver: a graph that made its own would not know what this one took over."""
        self._saver = self._saver.with_allowlist(extra_allowlist)
        self.serde = self._saver.serde
        return self

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if config["configurable"].get("checkpoint_id") is None:
            own = [stored async for stored in self.alist(config)]
            return max(own, key=_step_of, default=None)
        for attempt in [self._attempt, *self._earlier]:
            if found := await self._saver.aget_tuple(_stored_config(config, attempt)):
                return _as_the_graph_sees(found)
        return None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        stored = None if config is None else _stored_config(config, self._attempt)
        async for found in self._saver.alist(stored, filter=filter, before=before, limit=limit):
            yield _as_the_graph_sees(found)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        stored = _stored_config(config, self._attempt)
        async with self._storing:
            if self._is_over:
                return config
            return _graph_config(await self._saver.aput(stored, checkpoint, metadata, new_versions))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        stored = _stored_config(config, self._attempt)
        async with self._storing:
            if not self._is_over:
                await self._saver.aput_writes(stored, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._saver.adelete_thread(thread_id)


def turns_of(places: Iterable[tuple[str, str]]) -> set[tuple[str, int]]:
    """The batches and turns that checkpoints belong to, by their threads and namespaces.

    What others keep in the same tables is none of ours.
    """
    found = ((thread, _split(namespace)[0]) for thread, namespace in places)
    return {(thread, attempt[0]) for thread, attempt in found if attempt}


def _closed(saver: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
    if not isinstance(saver.serde, JsonPlusSerializer):
        return saver
    closed = copy.copy(saver)
    closed.serde = _CLOSED
    return closed


async def _attempts(
    saver: BaseCheckpointSaver[Any], thread_id: str
) -> dict[Attempt, dict[str, CheckpointTuple]]:
    """The newest checkpoint of each graph, by attempt; without copies that were cut off."""
    found: dict[Attempt, dict[str, CheckpointTuple]] = defaultdict(dict)
    async for stored in saver.alist({"configurable": {"thread_id": thread_id}}):
        attempt, namespace = _split(stored.config["configurable"]["checkpoint_ns"])
        newest = found[attempt].setdefault(namespace, stored)
        if _step_of(newest) < _step_of(stored):
            found[attempt][namespace] = stored
    return {attempt: graphs for attempt, graphs in found.items() if "" in graphs}


def _step_of(stored: CheckpointTuple) -> int:
    """What orders checkpoints: their ids are of clocks, and another host's may have been ahead."""
    return int(stored.metadata.get("step", -1))


async def _copy(saver: BaseCheckpointSaver[Any], found: CheckpointTuple, namespace: str) -> None:
    """Writes first: nobody looks for them before there is a checkpoint."""
    own = _moved(found.config, namespace)
    writes: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for task_id, channel, value in found.pending_writes or ():
        writes[task_id].append((channel, value))
    for number, (task_id, of_task) in enumerate(writes.items()):
        # The path itself cannot be read; all that it is for is the order.
        await saver.aput_writes(own, of_task, task_id, f"{number:06}")
    parent = found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None
    place: RunnableConfig = {"configurable": {**own["configurable"], "checkpoint_id": parent}}
    versions = found.checkpoint["channel_versions"]
    await saver.aput(place, found.checkpoint, found.metadata, versions)


def _joined(attempt: Attempt, namespace: str) -> str:
    if not attempt:
        return namespace
    name = _MARK + ".".join(map(str, attempt))
    return f"{name}{_SEPARATOR}{namespace}" if namespace else name


def _split(stored: str) -> tuple[Attempt, str]:
    if not stored.startswith(_MARK):
        return (), stored
    name, _, namespace = stored.partition(_SEPARATOR)
    return tuple(map(int, name.removeprefix(_MARK).split("."))), namespace


def _stored_config(config: RunnableConfig, attempt: Attempt) -> RunnableConfig:
    namespace = config["configurable"].get("checkpoint_ns", "")
    return _moved(config, _joined(attempt, namespace))


def _graph_config(stored: RunnableConfig) -> RunnableConfig:
    return _moved(stored, _split(stored["configurable"].get("checkpoint_ns", ""))[1])


def _moved(config: RunnableConfig, namespace: str) -> RunnableConfig:
    return {**config, "configurable": {**config["configurable"], "checkpoint_ns": namespace}}


def _as_the_graph_sees(found: CheckpointTuple) -> CheckpointTuple:
    parent = None if found.parent_config is None else _graph_config(found.parent_config)
    return found._replace(config=_graph_config(found.config), parent_config=parent)
