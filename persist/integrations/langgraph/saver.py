"""PersistSaver: LangGraph's checkpointer over a store."""

import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from persist.db.changes.batch import RequirementMissed
from persist.db.group_commit.writer import SharedRows
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_count, check_list
from persist.errors import InvalidValue, shown
from persist.framework_state.checkpoints.schemas import Checkpoint as StoredCheckpoint
from persist.framework_state.checkpoints.schemas import Loaded
from persist.framework_state.checkpoints.states import CheckpointStates, CheckpointThreads
from persist.framework_state.checkpoints.storing import WRITE, checked_writes
from persist.integrations.langgraph import options
from persist.integrations.langgraph.encoding import Encoding, History
from persist.integrations.langgraph.kept_lists import NOTHING, CheckpointPut, KnownThreads, SavedLists, SaverStates
from persist.integrations.langgraph.strict import Allowed, StrictSerializer
from persist.integrations.store_bridge import StoreBridge
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.store.transaction import Transaction

_PAGE = 20
"""The most checkpoints that one page loads."""
_FILTERED_PAGE = 200
"""Checkpoints that one page tests against a filter."""


class _Listing:
    def __init__(
        self,
        encoding: Encoding,
        config: RunnableConfig | None,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        self._encoding, self._left = encoding, options.optional_limit("limit", limit)
        self._history = History(encoding)
        self._filter = None if filter is None else options.mapping("filter", filter)
        named = None if config in (None, {}) else options.configurable(config)
        self._where = {
            "thread_id": None if named is None else options.thread_key(config)[0],
            "namespace": None if named is None else named.get("checkpoint_ns"),
            "id": None if named is None else options.checkpoint_id(config),
            "before": None if before in (None, {}) else options.checkpoint_id(before, "before"),
        }
        self._last: StoredCheckpoint | None = None
        self.ended = self._left is not None and self._left <= 0

    def page(self, tx: Transaction) -> list[CheckpointTuple]:
        page_size = _FILTERED_PAGE if self._filter else _PAGE if self._left is None else min(_PAGE, self._left)
        rows = tx.checkpoints.states.page(**self._where, after=self._last, limit=page_size)
        maximum = _PAGE if self._left is None else min(_PAGE, self._left)
        matching: list[StoredCheckpoint] = []
        for row in rows:
            if len(matching) == maximum:
                break
            self._last = row
            if self._matches(row):
                matching.append(row)
        else:
            self.ended = len(rows) < page_size
        if self._left is not None:
            self._left -= len(matching)
            self.ended = self.ended or self._left == 0
        self._history.turn_page()
        return [self._encoding.tuple(loaded, history=self._history) for loaded in tx.checkpoints.states.load(matching)]

    def _matches(self, row: StoredCheckpoint) -> bool:
        if not self._filter:
            return True
        known = self._encoding.metadata(row)
        return all(wanted == known.get(name) for name, wanted in self._filter.items())


Histories = Mapping[str, DeltaChannelHistory]


class PersistSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of graphs in a store: `builder.compile(checkpointer=PersistSaver(store))`.

    Over a Store all methods work; coroutines run on worker threads. Over an AsyncStore synchronous methods work too, except in a
    thread whose event loop they would block: there they raise asyncio.InvalidStateError. The caller closes the store.

    Reading builds only LangGraph's and LangChain's own types and the classes that `allow` lists or names
    ("package.module.Class"); other values are returned as plain data. `serde` replaces this serializer, as in every LangGraph
    checkpointer: `serde=JsonPlusSerializer()` builds whatever class the database names.

    A channel's value is stored once per version, and a list that grew costs only what was added. The saver keeps the lists that
    it stored or read last as bytes in memory, at most `memory_bytes` of them; every read asks the database whether it still has
    these. A value that cannot be serialized raises before anything is written, and so does a key with a NUL or lone surrogate
    (InvalidValue, a ValueError).
    """

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        serde: SerializerProtocol | None = None,
        allow: Iterable[Allowed] = (),
        memory_bytes: int = 32 * 2**20,
    ) -> None:
        strict = StrictSerializer(allow)
        if serde is not None and allow:
            raise TypeError("allow is for the serializer of persist; what serde may build is its own matter.")
        super().__init__(serde=serde or strict)
        self._bridge = StoreBridge(store)
        self._shared_writes = SharedRows(self._bridge.pinned, WRITE)
        self._known = KnownThreads()
        self._memory_bytes = check_count("memory_bytes", memory_bytes)
        self._encodes: Encoding | None = None

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Store a checkpoint as a child of the config's checkpoint, and return its own config.

        All values it contains are stored, also those not in `new_versions`. If `new_versions` names some channels, the others
        count as unchanged at versions that this saver stored or read last. If it names none, every value is compared.
        """
        put = self._put(config, checkpoint, metadata, new_versions)
        try:
            self._bridge.call_sync(put.run, writes=True)
        except RequirementMissed:
            put = self._put(config, checkpoint, metadata, new_versions, whole=True)
            self._bridge.call_sync(put.run, writes=True)
        return self._remember(put)

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """See put."""
        put = self._put(config, checkpoint, metadata, new_versions)
        try:
            await self._bridge.call_async(put.run, writes=True)
        except RequirementMissed:
            put = self._put(config, checkpoint, metadata, new_versions, whole=True)
            await self._bridge.call_async(put.run, writes=True)
        return self._remember(put)

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """Store what a task wrote after the config's checkpoint."""
        self._bridge.in_this_thread(self._put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See put_writes."""
        await self._bridge.in_worker(self._put_writes(config, writes, task_id, task_path), writes=True)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The config's checkpoint or, without an id, the latest of its thread and namespace; None if there is none."""
        return self._read(config, self._bridge.call_sync(self._find(config), writes=False))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See get_tuple."""
        return self._read(config, await self._bridge.call_async(self._find(config), writes=False))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, greatest ids first: of all threads, or of the config's thread, namespace and id.

        `filter`: metadata that must be equal. `before`: only ids smaller than that config's. Checkpoints are read in pages. Each
        page's transaction ends before its first checkpoint is yielded.
        """
        listing = _Listing(self._encoding, config, filter, before, limit)
        while not listing.ended:
            yield from self._bridge.run_sync(listing.page, writes=False)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See list."""
        listing = _Listing(self._encoding, config, filter, before, limit)
        while not listing.ended:
            for found in await self._bridge.run_async(listing.page, writes=False):
                yield found

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with everything in it."""
        self._bridge.call_sync(_delete(thread_id), writes=True)
        self._known.forget()

    async def adelete_thread(self, thread_id: str) -> None:
        """See delete_thread."""
        await self._bridge.call_async(_delete(thread_id), writes=True)
        self._known.forget()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs, except ancestors that a DeltaChannel of another checkpoint is rebuilt from."""
        self._bridge.call_sync(_delete_runs(run_ids), writes=True)
        self._known.forget()

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See delete_for_runs."""
        await self._bridge.call_async(_delete_runs(run_ids), writes=True)
        self._known.forget()

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with everything in it. Raises Conflict if the target exists; an unknown source does nothing."""
        self._bridge.call_sync(_copy(source_thread_id, target_thread_id), writes=True)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See copy_thread."""
        await self._bridge.call_async(_copy(source_thread_id, target_thread_id), writes=True)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints of threads, in one transaction per thread.

        `keep_latest` keeps a namespace's latest checkpoint and ancestors that its DeltaChannels need; `delete` deletes threads.
        """
        for pruning in _prunings(thread_ids, strategy):
            self._bridge.call_sync(pruning, writes=True)
            self._known.forget()

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See prune."""
        for pruning in _prunings(thread_ids, strategy):
            await self._bridge.call_async(pruning, writes=True)
            self._known.forget()

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Histories:
        """How these channels got their values at a checkpoint: its ancestors' writes, and the value that these start from."""
        return self._bridge.run_sync(self._history(config, channels), writes=False)

    async def aget_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Histories:
        """See get_delta_channel_history."""
        return await self._bridge.run_async(self._history(config, channels), writes=False)

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        """The next version of a channel, in the format of LangGraph's own savers. Its random part differs between forks."""
        try:
            number = 0 if current is None else int(str(current).split(".")[0])
        except ValueError:
            raise InvalidValue("current", f"{shown(current)} is no version.") from None
        return f"{number + 1:032}.{random.random():016}"

    # -- what to run in a transaction; arguments are checked before it begins

    @property
    def _encoding(self) -> Encoding:
        """The encoding with the saver's serializer, which LangGraph replaces in copies of the saver."""
        if self._encodes is None or self._encodes.serde is not self.serde:
            self._encodes = Encoding(self.serde, self._memory_bytes)
        return self._encodes

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        *,
        whole: bool = False,
    ) -> CheckpointPut:
        """The checkpoint to store; `whole`: with all of its values, whatever is known to be stored."""
        key = options.thread_key(config)
        known = NOTHING if whole else self._known.of(key)
        return self._encoding.put(key, config, checkpoint, metadata, new_versions, known)

    def _remember(self, put: CheckpointPut) -> RunnableConfig:
        self._known.note(put.thread_key, put.stored)
        if (lists := self._encoding.lists) is not None:
            for channel, addition in put.additions().items():
                lists.grow(addition.base.key, addition.added, put.lists[channel].key)
            for channel, pieces in put.pieces().items():
                lists.add(put.lists[channel].key, pieces)
        thread_id, namespace = put.thread_key
        return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": put.id}}

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Callable[[], None]:
        thread_id, namespace = options.thread_key(config)
        after = options.checkpoint_id(config)
        if after is None:
            raise InvalidValue("config.configurable.checkpoint_id", "it is missing: writes follow a checkpoint.")
        given = self._encoding.writes(options.pairs("writes", writes))
        task = {"task_id": task_id, "task_path": task_path, "namespace": namespace}
        rows = checked_writes(thread_id, after, given, **task)

        def store() -> None:
            if not (rows and self._shared_writes.write(rows, what="put_writes()")):
                self._bridge.call(lambda work: CheckpointStates(work).put_writes(thread_id, after, given, **task), writes=True)

        return store

    def _find(self, config: RunnableConfig) -> Callable[[UnitOfWork], Loaded | None]:
        thread_id, namespace = options.thread_key(config)
        id = options.checkpoint_id(config)
        known, memory = self._known.of((thread_id, namespace)).lists, self._encoding.lists
        kept = None if memory is None else SavedLists(memory, known)
        return lambda work: SaverStates(work, known, kept=kept).find(thread_id, namespace=namespace, id=id)

    def _read(self, config: RunnableConfig, found: Loaded | None) -> CheckpointTuple | None:
        if found is None:
            return None
        key, versions = options.thread_key(config), found.checkpoint.versions
        known = self._known.of(key)
        self._known.note(key, replace(known, versions={channel: versions[channel] for channel in found.values}))
        return self._encoding.tuple(found, config if options.checkpoint_id(config) else None)

    def _history(self, config: RunnableConfig, channels: Sequence[str]) -> Callable[[Transaction], Histories]:
        thread_id, namespace = options.thread_key(config)
        id, named = options.checkpoint_id(config), check_list("channels", channels)

        def history(tx: Transaction) -> Histories:
            at = id
            if at is None:
                latest = tx.checkpoints.states.page(thread_id=thread_id, namespace=namespace, limit=1)
                if not latest:
                    return {channel: DeltaChannelHistory(writes=[]) for channel in named}
                at = latest[0].id
            found = tx.checkpoints.states.history(thread_id, at, named, namespace=namespace)
            return {channel: self._encoding.history(history_of_channel) for channel, history_of_channel in found.items()}

        return history


def _delete(thread_id: str) -> Callable[[UnitOfWork], object]:
    id = options.id_text("thread_id", thread_id)
    return lambda work: CheckpointThreads(work).delete(id)


def _delete_runs(run_ids: Sequence[str]) -> Callable[[UnitOfWork], object]:
    runs = options.id_texts("run_ids", run_ids)
    return lambda work: CheckpointThreads(work).delete_runs(runs)


def _copy(source: str, target: str) -> Callable[[UnitOfWork], object]:
    ids = options.id_text("source_thread_id", source), options.id_text("target_thread_id", target)
    return lambda work: CheckpointThreads(work).copy(*ids)


def _prunings(thread_ids: Sequence[str], strategy: str) -> Iterator[Callable[[UnitOfWork], object]]:
    ids = options.id_texts("thread_ids", thread_ids)
    if strategy not in ("keep_latest", "delete"):
        raise InvalidValue("strategy", f"there is no {shown(strategy)}: expected 'keep_latest' or 'delete'.")
    if strategy == "delete":
        return (_delete(id) for id in ids)
    return (lambda work, id=id: CheckpointThreads(work).keep_latest(id) for id in ids)  # type: ignore[misc]  # a bound default
