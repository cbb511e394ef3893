"""PersistSaver: LangGraph's checkpointer over a store."""

import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from persist.aio import AsyncStore
from persist.integrations.faces import Faces
from persist.integrations.langgraph.carrying import Known, Put
from persist.integrations.langgraph.encoding import Encoding
from persist.integrations.langgraph.listing import Listing
from persist.integrations.langgraph.strict import Allowed, StrictSerializer
from persist.store import Store
from persist.transaction import Transaction

Histories = Mapping[str, DeltaChannelHistory]


class PersistSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of graphs in a store: `builder.compile(checkpointer=PersistSaver(store))`.

    Over a Store every method works, the coroutines on worker threads. Over an AsyncStore the synchronous ones work too, except
    in a thread whose event loop they would block: there they raise asyncio.InvalidStateError. Of what is stored only LangGraph's
    and LangChain's own types are built, and the classes that `allow` lists or names ("package.module.Class"); everything else
    comes back as plain data. `serde` is as every checkpointer of LangGraph takes it, and then builds what it builds:
    `serde=JsonPlusSerializer()` whatever the database names. A value of a channel is stored once per version, and a list that
    grew costs what was added. What cannot be serialized, and keys that hold a NUL or a lone surrogate half, raise before anything
    is written (of keys InvalidValue, a ValueError). Closing the store is the caller's.
    """

    def __init__(
        self, store: Store | AsyncStore, *, serde: SerializerProtocol | None = None, allow: Iterable[Allowed] = ()
    ) -> None:
        strict = StrictSerializer(allow)
        if serde is not None and allow:
            raise TypeError("allow is for the serializer of persist; what serde may build is its own matter.")
        super().__init__(serde=serde or strict)
        self._faces = Faces(store)
        self._known = Known()

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Store a checkpoint as a child of the one that the config names; the config that names it.

        What it carries is read back, whatever `new_versions` names. Where that names some channels, the others are taken to be
        unchanged at versions that this saver stored or read last; where it names none, every value is compared.
        """
        put = self._put(config, checkpoint, metadata, new_versions)
        self._faces.now(put.run, writes=True)
        return self._noted(put)

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """See put."""
        put = self._put(config, checkpoint, metadata, new_versions)
        await self._faces.later(put.run, writes=True)
        return self._noted(put)

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """Store what a task wrote after the checkpoint that the config names."""
        self._faces.now(self._put_writes(config, writes, task_id, task_path), writes=True)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See put_writes."""
        await self._faces.later(self._put_writes(config, writes, task_id, task_path), writes=True)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the latest of its thread and namespace; None where there is none."""
        return self._faces.now(self._get(config), writes=False)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See get_tuple."""
        return await self._faces.later(self._get(config), writes=False)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the greatest ids first: of all threads, or of the thread, namespace and id that the config names.

        `filter`: metadata that must be equal. `before`: only smaller ids than the one it names. Pages are read one by one, each
        in a transaction that has ended before its first checkpoint is given.
        """
        listing = Listing(Encoding(self.serde), config, filter, before, limit)
        while not listing.ended:
            yield from self._faces.now(listing.page, writes=False)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See list."""
        listing = Listing(Encoding(self.serde), config, filter, before, limit)
        while not listing.ended:
            for found in await self._faces.later(listing.page, writes=False):
                yield found

    def delete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread."""
        self._faces.now(_delete(thread_id), writes=True)
        self._known.forget()

    async def adelete_thread(self, thread_id: str) -> None:
        """See delete_thread."""
        await self._faces.later(_delete(thread_id), writes=True)
        self._known.forget()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs made, but for ancestors that a DeltaChannel of another is rebuilt from."""
        self._faces.now(_delete_runs(run_ids), writes=True)
        self._known.forget()

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See delete_for_runs."""
        await self._faces.later(_delete_runs(run_ids), writes=True)
        self._known.forget()

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy everything of a thread into a new one; Conflict where it is there. Nothing where the source is not."""
        self._faces.now(_copy(source_thread_id, target_thread_id), writes=True)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See copy_thread."""
        await self._faces.later(_copy(source_thread_id, target_thread_id), writes=True)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`keep_latest` keeps the latest checkpoint of each namespace, with ancestors that a DeltaChannel is rebuilt from;
        `delete` keeps none. Each thread is a transaction of its own."""
        for pruning in _prunings(thread_ids, strategy):
            self._faces.now(pruning, writes=True)
            self._known.forget()

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See prune."""
        for pruning in _prunings(thread_ids, strategy):
            await self._faces.later(pruning, writes=True)
            self._known.forget()

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Histories:
        """What made these channels before a checkpoint: its ancestors' writes, and the value that they start from."""
        return self._faces.now(self._history(config, channels), writes=False)

    async def aget_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Histories:
        """See get_delta_channel_history."""
        return await self._faces.later(self._history(config, channels), writes=False)

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        """The next version of a channel, in the form that LangGraph's own savers give it; two forks differ in it."""
        number = 0 if current is None else current if isinstance(current, int) else int(current.split(".")[0])
        return f"{number + 1:032}.{random.random():016}"

    # -- what each does in a transaction; whatever may be refused is refused before there is one

    def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> Put:
        place = _place(config)
        return Encoding(self.serde).put(place, config, checkpoint, metadata, new_versions, self._known.of(place))

    def _noted(self, put: Put) -> RunnableConfig:
        self._known.note(put.place, put.stored)
        thread_id, namespace = put.place
        return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": put.id}}

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Callable[[Transaction], None]:
        thread_id, namespace = _place(config)
        checkpoint_id = config["configurable"]["checkpoint_id"]
        given = Encoding(self.serde).writes(writes)
        task = {"task_id": task_id, "task_path": task_path, "namespace": namespace}
        return lambda tx: tx.checkpoints.states.put_writes(thread_id, checkpoint_id, given, **task)

    def _get(self, config: RunnableConfig) -> Callable[[Transaction], CheckpointTuple | None]:
        thread_id, namespace = _place(config)
        id = get_checkpoint_id(config) or None

        def get(tx: Transaction) -> CheckpointTuple | None:
            found = tx.checkpoints.states.find(thread_id, namespace=namespace, id=id)
            if found is None:
                return None
            versions = found.checkpoint.versions
            self._known.note((thread_id, namespace), {channel: versions[channel] for channel in found.values})
            return Encoding(self.serde).tuple(found, config if id else None)

        return get

    def _history(self, config: RunnableConfig, channels: Sequence[str]) -> Callable[[Transaction], Histories]:
        thread_id, namespace = _place(config)
        id = get_checkpoint_id(config) or None

        def history(tx: Transaction) -> Histories:
            at = id
            if at is None:
                latest = tx.checkpoints.states.page(thread_id=thread_id, namespace=namespace, limit=1)
                if not latest:
                    return {channel: DeltaChannelHistory(writes=[]) for channel in channels}
                at = latest[0].id
            found = tx.checkpoints.states.history(thread_id, at, channels, namespace=namespace)
            return {channel: Encoding(self.serde).history(made) for channel, made in found.items()}

        return history


def _place(config: RunnableConfig) -> tuple[str, str]:
    named = config["configurable"]
    return str(named["thread_id"]), named.get("checkpoint_ns") or ""


def _delete(thread_id: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.checkpoints.threads.delete(str(thread_id))


def _delete_runs(run_ids: Sequence[str]) -> Callable[[Transaction], object]:
    runs = [str(run_id) for run_id in run_ids]
    return lambda tx: tx.checkpoints.threads.delete_runs(runs)


def _copy(source: str, target: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.checkpoints.threads.copy(str(source), str(target))


def _prunings(thread_ids: Sequence[str], strategy: str) -> Iterator[Callable[[Transaction], object]]:
    if isinstance(thread_ids, str):
        raise TypeError("thread_ids is one text; expected several.")
    if strategy not in ("keep_latest", "delete"):
        raise ValueError(f"There is no strategy {strategy!r}: expected 'keep_latest' or 'delete'.")
    if strategy == "delete":
        return (_delete(id) for id in thread_ids)
    return (lambda tx, id=str(id): tx.checkpoints.threads.keep_latest(id) for id in thread_ids)  # type: ignore[misc]  # a bound default
