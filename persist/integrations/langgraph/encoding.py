"""Checkpoints of LangGraph as those of persist, and back."""

import builtins
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from persist.checkpoints.schemas import Blob, ChannelHistory, Loaded, Stored, Write
from persist.checkpoints.schemas import Checkpoint as Row
from persist.db.json import check
from persist.errors import InvalidValue, StoreCorrupt
from persist.integrations.langgraph.carrying import Place, Put, version_of
from persist.integrations.langgraph.losses import check_text
from persist.integrations.langgraph.strict import StrictSerializer

LONG_ENOUGH = 512
"""Bytes from which on a list is worth keeping element by element."""

_PACKED = "msgpack"
DELTAS = "counters_since_delta_snapshot"


class Encoding:
    """What a serializer makes of checkpoints, their values and writes."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        # of a list that another serializer takes whole, the elements may be none of its business; encrypted ones never recur
        self._splits = isinstance(serde, JsonPlusSerializer)
        self._joins = type(serde) in (JsonPlusSerializer, StrictSerializer)
        inner = serde.serde if isinstance(serde, EncryptedSerializer) else serde
        self._replaces = isinstance(inner, JsonPlusSerializer)

    def put(
        self,
        place: Place,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        known: Mapping[str, str],
    ) -> Put:
        """What stores a checkpoint, everything serialized. A value that is not new is left out where `known` has its version."""
        head: dict[str, Any] = dict(checkpoint)
        given: dict[str, Any] = head.pop("channel_values", None) or {}
        versions: ChannelVersions = head.pop("channel_versions", None) or {}
        every = all_metadata(config, metadata)
        plain = {name: value for name, value in every.items() if _is_plain({name: value})}
        rest = {name: value for name, value in every.items() if name not in plain}
        run_id = every.get("run_id")
        at = {channel: json.dumps(version) for channel, version in versions.items()}
        new = {channel: json.dumps(version) for channel, version in new_versions.items()}
        # where versions are told at all, one that did not change says that its value did not
        same = {
            channel: at[channel] for channel in given if channel in at and at[channel] == (known.get(channel) if new else None)
        }
        sure = same | {channel: version for channel, version in new.items() if channel in given and at.get(channel) == version}
        arguments = {
            "head": self.blob("checkpoint", (head, rest) if rest else (head,)),
            "parent_id": config["configurable"].get("checkpoint_id") or None,
            "run_id": run_id if isinstance(run_id, str) else None,
            "metadata": plain,
            "versions": at,
            "values": {
                channel: (version, self.value(channel, given[channel]) if channel in given else None)
                for channel, version in new.items()
            },
            "partial": [channel for channel in every.get(DELTAS) or () if channel not in given],
        }
        carried = {channel: self.value(channel, value) for channel, value in given.items() if channel not in sure}
        return Put(place, checkpoint["id"], arguments, carried, sure)

    def writes(self, writes: Sequence[tuple[str, Any]]) -> list[Write]:
        """The writes of a task; of several to the same special channel the last."""
        found = {}
        for place, (channel, value) in enumerate(writes):
            idx = WRITES_IDX_MAP.get(channel, place)
            found[idx] = Write(idx, channel, self.blob(channel, value))
        return list(found.values())

    def blob(self, name: str, value: Any) -> Blob:
        """Any value, whole; InvalidValue, a ValueError, for text that the serializer would change."""
        kind, data = self._serde.dumps_typed(value)
        # a lone surrogate half becomes a question mark, which cannot be seen in what is encrypted
        if self._replaces and (b"?" in data if kind == _PACKED else kind.startswith(_PACKED)):
            check_text(name, value)
        return Blob(kind, bytes(data))

    def value(self, name: str, value: Any) -> Stored:
        """The value of a channel: a long list by its elements."""
        if type(value) is list and len(value) > 1 and self._splits:
            pieces = [self.blob(name, element) for element in value]
            if sum(len(piece.data) for piece in pieces) >= LONG_ENOUGH:
                return pieces
        return self.blob(name, value)

    def tuple(self, loaded: Loaded, config: RunnableConfig | None = None) -> CheckpointTuple:
        """What LangGraph reads; with the caller's own config where one is given."""
        row = loaded.checkpoint
        head, metadata = self._head(row)
        values = {channel: self.read(stored) for channel, stored in loaded.values.items()}
        try:
            all_versions = {channel: version_of(version) for channel, version in row.versions.items()}
        except ValueError:
            raise _damaged(row) from None
        versions = {channel: version for channel, (there, version) in all_versions.items() if there}
        return CheckpointTuple(
            config=config or config_of(row, row.id),
            checkpoint=cast(Checkpoint, {**head, "channel_versions": versions, "channel_values": values}),
            metadata=cast(CheckpointMetadata, metadata),
            parent_config=config_of(row, row.parent_id) if row.parent_id else None,
            pending_writes=[(write.task_id, write.channel, self.read(write.value)) for write in loaded.writes],
        )

    def metadata(self, row: Row) -> Mapping[str, Any]:
        """The metadata of a checkpoint alone."""
        return self._head(row)[1]

    def _head(self, row: Row) -> builtins.tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What is kept beside the values of channels: of the checkpoint, and the metadata."""
        found = self.read(row.head)
        parts = [*found, row.metadata] if isinstance(found, list | builtins.tuple) else []
        if not 2 <= len(parts) <= 3 or not all(isinstance(part, Mapping) for part in parts):
            raise _damaged(row)
        head, *metadata = parts
        return head, {**metadata[-1], **metadata[0]}

    def history(self, found: ChannelHistory) -> DeltaChannelHistory:
        """What made one channel."""
        writes: list[PendingWrite] = [(write.task_id, write.channel, self.read(write.value)) for write in found.writes]
        if found.seed is None:
            return DeltaChannelHistory(writes=writes)
        return DeltaChannelHistory(writes=writes, seed=self.read(found.seed))

    def read(self, stored: Stored) -> Any:
        """A value as it was."""
        if isinstance(stored, Blob):
            return self._serde.loads_typed((stored.kind, stored.data))
        if self._joins and all(piece.kind == _PACKED for piece in stored):
            # one array of them all, as the serializer writes a whole list: read at once
            return self._serde.loads_typed((_PACKED, _array(len(stored)) + b"".join(piece.data for piece in stored)))
        return [self._serde.loads_typed((piece.kind, piece.data)) for piece in stored]


def _damaged(row: Row) -> StoreCorrupt:
    return StoreCorrupt(f"thread {row.thread_id!r}", f"the checkpoint {row.id!r} is none of LangGraph's.")


def _array(length: int) -> bytes:
    """How MessagePack begins an array, in its longest form."""
    return b"\xdd" + length.to_bytes(4, "big")


def config_of(row: Row, checkpoint_id: str) -> RunnableConfig:
    """The config that names a checkpoint of the same thread and namespace."""
    return {"configurable": {"thread_id": row.thread_id, "checkpoint_ns": row.namespace, "checkpoint_id": checkpoint_id}}


def all_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
    """What LangGraph keeps of metadata and config, with the NULs of texts, which it leaves out for databases that refuse them."""
    known = dict(get_checkpoint_metadata(config, metadata))
    for source in (config.get("configurable"), config.get("metadata"), metadata):
        texts = {name: value for name, value in (source or {}).items() if name in known and isinstance(value, str)}
        known |= texts
    return known


def _is_plain(value: Any) -> bool:
    """Whether JSON gives it back as it is."""
    try:
        check(value, "metadata")
    except InvalidValue:
        return False
    return True
