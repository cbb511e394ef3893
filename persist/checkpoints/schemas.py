"""Values of checkpoints. What a runner serialized is kept as bytes, with the kind that its serializer named."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ConfigDict

from persist.db.values.frozen import Value


@dataclass(frozen=True, slots=True)
class Blob:
    """Serialized bytes, and the serializer's name of their format. In JSON the bytes are base64."""

    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    kind: str
    data: bytes


Stored = Blob | Sequence[Blob]
"""A channel's value: one Blob, or for a list one Blob for each element. Equal elements are stored once."""


@dataclass(frozen=True, slots=True)
class Write:
    """What a task wrote to a channel. A write with `idx` below 0 replaces an earlier one; others are stored once."""

    idx: int
    channel: str
    value: Blob


class CheckpointThread(Value):
    """A row of checkpoint_threads."""

    id: str
    created_at: datetime
    updated_at: datetime


class Checkpoint(Value):
    """A row of checkpoint_states: the state of a thread after a step, without the values of its channels."""

    thread_id: str
    namespace: str
    id: str
    parent_id: str | None
    run_id: str | None
    created_at: datetime
    metadata: Any
    versions: dict[str, str]
    """The version of every channel, as text."""
    partial: list[str] | None
    """Channels without a stored value here: theirs is the nearest ancestor's stored value plus the writes since."""
    head: Blob
    """The runner's own data of the checkpoint, besides the values of channels."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A stored write. Those of a checkpoint are in the order (task_path, task_id, idx)."""

    task_id: str
    channel: str
    value: Blob


@dataclass(frozen=True, slots=True)
class ChannelHistory:
    """How to rebuild a channel's value: the nearest stored one, None if there is none, and the writes since, oldest first."""

    seed: Stored | None = None
    writes: Sequence[PendingWrite] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint with the values of its channels and its pending writes."""

    checkpoint: Checkpoint
    values: Mapping[str, Stored]
    writes: Sequence[PendingWrite]


class Memory(Value):
    """A row of memories: a JSON object under a key of a namespace."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    ttl_minutes: float | None
    """Minutes until expiry, counted from each put or refresh; None: never."""
