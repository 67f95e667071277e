"""A saver around LangGraph's: it stores by batch and attempt, and only when needed.

A graph knows its thread, which lives for years; a checkpoint belongs to a running batch. So the
thread's name in a graph's config is replaced by the batch for the saver, and restored for the
graph.

If a turn in which the model only answers is interrupted, the model is simply called again. So its
checkpoints stay in memory, and most turns never touch the database. All of them are stored as soon
as a tool has finished or the graph waits for a person.
"""

import asyncio
import copy
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Self, TypeVar

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from segue.errors import UsageError

T = TypeVar("T")

# Node names contain no colon, so no graph's namespace looks like an attempt's.
_MARK: Final = ":"
_SEPARATOR: Final = "|"
# Copies objects as raw bytes: the types that may be restored are each graph's own.
_RAW: Final = JsonPlusSerializer(__unpack_ext_hook__=ormsgpack.Ext)

_INTERRUPT: Final = "__interrupt__"
# Steps -1 and 0 are the graph's input; 1 is the output of its first node, the model.
_FIRST_NODE_DONE: Final = 1

# Identifies an attempt at a batch; later attempts compare greater. Empty outside of the runtime.
Attempt = tuple[int, ...]


class AttemptSaver(BaseCheckpointSaver[Any]):
    """Stores on another saver, by batch and attempt; a lazy one only from the first finished tool
    on.
    """

    def __init__(
        self,
        saver: BaseCheckpointSaver[Any],
        batch: str,
        attempt: Attempt,
        *,
        is_lazy: bool = False,
    ) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver
        self._loop = asyncio.get_running_loop()
        self._batch = batch
        self._attempt = attempt
        # Earlier attempts, newest first: the parent of a checkpoint may belong to one of them.
        self._earlier: list[Attempt] = []
        self._storing = asyncio.Lock()
        self._is_closed = False
        # Names and arguments of the calls to make on the saver later; None once it stores at once.
        self._held: list[tuple[str, tuple[Any, ...]]] | None = [] if is_lazy else None
        self._steps: dict[str, int] = {}
        # True also if storing was interrupted in the middle.
        self.has_begun_to_store = not is_lazy

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Changes this saver instead of copying it: a copy would not share its state."""
        self._saver = self._saver.with_allowlist(extra_allowlist)
        self.serde = self._saver.serde
        return self

    async def close(self) -> None:
        """Store nothing from now on: LangGraph may continue to store after its run was stopped."""
        async with self._storing:
            self._is_closed = True

    async def take_over(self) -> None:
        """Copy the newest attempt's checkpoints, so that what it stores later does not matter.

        The graph's own checkpoint is copied last and makes the copy valid: an interrupted copy is
        made again by the next attempt.
        """
        saver = copy.copy(self._saver)
        saver.serde = _RAW
        found = await _attempts(saver, self._batch)
        self._earlier = sorted(found.keys() - {self._attempt}, reverse=True)
        if self._attempt in found or not self._earlier:
            return
        inner_first = sorted(found[self._earlier[0]].items(), reverse=True)
        for namespace, newest in inner_first:
            await _copy(saver, newest, _join(self._attempt, namespace))

    async def own_steps(self) -> tuple[dict[str, Any], list[list[tuple[str, Any]]]]:
        """The values that this turn took over, and what each of its steps wrote since.

        Steps of earlier attempts at the turn count, as far as its last checkpoint rests on them.
        """
        place: RunnableConfig = {"configurable": {"thread_id": self._batch}}
        found: dict[Attempt, dict[str, CheckpointTuple]] = defaultdict(dict)
        async for stored in self._saver.alist(place):
            attempt, namespace = _split(stored.config["configurable"]["checkpoint_ns"])
            if attempt[:1] == self._attempt[:1] and not namespace:
                found[attempt][stored.checkpoint["id"]] = stored
        # A later attempt has the writes of a checkpoint that it took over, and its own.
        by_id: dict[str, CheckpointTuple] = {}
        for attempt in sorted(found):
            by_id |= found[attempt]
        chain = [max(found[self._attempt].values(), key=_step_of)]
        while (parent := _parent_of(chain[0])) in by_id:
            chain.insert(0, by_id[parent])
        writes = [[(name, value) for _, name, value in c.pending_writes or ()] for c in chain[:-1]]
        return chain[0].checkpoint["channel_values"], writes

    async def last_values(self) -> dict[str, Any]:
        """The values after the last step that has ended."""
        last = await self.aget_tuple({"configurable": {"thread_id": self._batch}})
        return {} if last is None else last.checkpoint["channel_values"]

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if config["configurable"].get("checkpoint_id") is None:
            own = [stored async for stored in self.alist(config)]
            return max(own, key=_step_of, default=None)
        saver = await self._readable()
        for attempt in [self._attempt, *self._earlier]:
            if found := await saver.aget_tuple(self._stored_config(config, attempt)):
                return _for_graph(found, config)
        return None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        saver = await self._readable()
        given = config or {"configurable": {"thread_id": self._batch}}
        stored = self._stored_config(given, self._attempt)
        async for found in saver.alist(stored, filter=filter, before=before, limit=limit):
            yield _for_graph(found, given)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        stored = self._stored_config(config, self._attempt)
        async with self._storing:
            if self._is_closed:
                return config
            if self._held is None:
                put = await self._saver.aput(stored, checkpoint, metadata, new_versions)
                return _graph_config(put, config)
            self._held.append(("aput", (stored, checkpoint, metadata, new_versions)))
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
        stored = self._stored_config(config, self._attempt)
        async with self._storing:
            if self._is_closed:
                return
            if self._held is not None and not self._is_worth_storing(config, writes):
                self._held.append(("aput_writes", (stored, writes, task_id, task_path)))
                return
            self.has_begun_to_store = True
            await self._put_held(self._saver)
            self._held = None
            with self._naming_channels(writes):
                await self._saver.aput_writes(stored, writes, task_id, task_path)

    @contextmanager
    def _naming_channels(self, writes: Sequence[tuple[str, Any]]) -> Iterator[None]:
        """Around storing: `UsageError` for a value that cannot be stored, with its channel."""
        try:
            yield
        except TypeError:
            for channel, value in writes:
                try:
                    self.serde.dumps_typed(value)
                except TypeError as error:  # it names a type and quotes no value
                    raise UsageError(
                        f"The graph's channel {channel!r} has a value that cannot be stored: "
                        f"{error}. Keep it outside of the state, or mark the channel as an "
                        "UntrackedValue."
                    ) from error
            raise

    # A node may call an inner graph without `await`; then it runs in its own thread.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._wait_for(self.aget_tuple(config))

    def list(self, config: RunnableConfig | None, **options: Any) -> Iterator[CheckpointTuple]:
        async def collect() -> Sequence[CheckpointTuple]:
            return [found async for found in self.alist(config, **options)]

        return iter(self._wait_for(collect()))

    def put(self, *args: Any) -> RunnableConfig:
        return self._wait_for(self.aput(*args))

    def put_writes(self, *args: Any) -> None:
        self._wait_for(self.aput_writes(*args))

    def _wait_for(self, step: Coroutine[Any, Any, T]) -> T:
        with suppress(RuntimeError):  # no loop runs in this thread
            if asyncio.get_running_loop() is self._loop:
                step.close()
                raise UsageError("An async node called a graph with invoke(); use ainvoke() there.")
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()

    def _stored_config(self, config: RunnableConfig, attempt: Attempt) -> RunnableConfig:
        namespace = config["configurable"].get("checkpoint_ns", "")
        return _moved(config, self._batch, _join(attempt, namespace))

    def _is_worth_storing(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]]) -> bool:
        step = self._steps.get(config["configurable"].get("checkpoint_id", ""), -1)
        return step >= _FIRST_NODE_DONE or any(name == _INTERRUPT for name, _ in writes)

    async def _readable(self) -> BaseCheckpointSaver[Any]:
        """The saver to read from; built on demand, since held checkpoints are hardly ever read."""
        if self._held is None:
            return self._saver
        memory = InMemorySaver(serde=self.serde)
        await self._put_held(memory)
        return memory

    async def _put_held(self, saver: BaseCheckpointSaver[Any]) -> None:
        for name, args in self._held or ():
            await getattr(saver, name)(*args)


def stored_turns(places: Iterable[tuple[str, str]]) -> set[tuple[str, int]]:
    """The batches and turns of checkpoints; those of other applications are skipped."""
    found = ((thread, _split(namespace)[0]) for thread, namespace in places)
    return {(thread, attempt[0]) for thread, attempt in found if attempt}


async def _attempts(
    saver: BaseCheckpointSaver[Any], batch: str
) -> dict[Attempt, dict[str, CheckpointTuple]]:
    """The newest checkpoint of each graph, by attempt; without interrupted copies."""
    found: dict[Attempt, dict[str, CheckpointTuple]] = defaultdict(dict)
    async for stored in saver.alist({"configurable": {"thread_id": batch}}):
        attempt, namespace = _split(stored.config["configurable"]["checkpoint_ns"])
        newest = found[attempt].setdefault(namespace, stored)
        if _step_of(newest) < _step_of(stored):
            found[attempt][namespace] = stored
    return {attempt: graphs for attempt, graphs in found.items() if "" in graphs}


def _step_of(stored: CheckpointTuple) -> int:
    """Orders checkpoints; their ids would not, since they come from the clocks of several hosts."""
    return int(stored.metadata.get("step", -1))


def _parent_of(stored: CheckpointTuple) -> Any:
    return stored.parent_config["configurable"]["checkpoint_id"] if stored.parent_config else None


async def _copy(saver: BaseCheckpointSaver[Any], found: CheckpointTuple, namespace: str) -> None:
    """Writes first: they are not read before their checkpoint is there."""
    own = _moved(found.config, found.config["configurable"]["thread_id"], namespace)
    writes: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for task_id, channel, value in found.pending_writes or ():
        writes[task_id].append((channel, value))
    for number, (task_id, of_task) in enumerate(writes.items()):
        # A saver does not return the path; it only sets the order.
        await saver.aput_writes(own, of_task, task_id, f"{number:06}")
    parent = {"checkpoint_id": _parent_of(found)}
    place: RunnableConfig = {"configurable": {**own["configurable"], **parent}}
    versions = found.checkpoint["channel_versions"]
    await saver.aput(place, found.checkpoint, found.metadata, versions)


def _join(attempt: Attempt, namespace: str) -> str:
    if not attempt:
        return namespace
    name = _MARK + ".".join(map(str, attempt))
    return f"{name}{_SEPARATOR}{namespace}" if namespace else name


def _split(stored: str) -> tuple[Attempt, str]:
    if not stored.startswith(_MARK):
        return (), stored
    name, _, namespace = stored.partition(_SEPARATOR)
    return tuple(map(int, name.removeprefix(_MARK).split("."))), namespace


def _graph_config(stored: RunnableConfig, given: RunnableConfig) -> RunnableConfig:
    """A stored place as the graph that gave a config names it."""
    namespace = _split(stored["configurable"].get("checkpoint_ns", ""))[1]
    return _moved(stored, given["configurable"]["thread_id"], namespace)


def _moved(config: RunnableConfig, thread_id: str, namespace: str) -> RunnableConfig:
    place = {"thread_id": thread_id, "checkpoint_ns": namespace}
    return {**config, "configurable": {**config["configurable"], **place}}


def _for_graph(found: CheckpointTuple, given: RunnableConfig) -> CheckpointTuple:
    parent = None if found.parent_config is None else _graph_config(found.parent_config, given)
    return found._replace(config=_graph_config(found.config, given), parent_config=parent)
