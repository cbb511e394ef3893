"""Values of checkpoints. What a runner serializes is bytes here, with the word its serializer gave them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ConfigDict

from persist.db.values import Value


@dataclass(frozen=True, slots=True)
class Blob:
    """Serialized bytes, and the word that says how. As JSON the bytes are base64."""

    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    kind: str
    data: bytes


Stored = Blob | Sequence[Blob]
"""The value of a channel: whole, or a list element by element, of which each is stored once however often it comes again."""


@dataclass(frozen=True, slots=True)
class Write:
    """What a task wrote to a channel; `idx` below 0 may be written again, others are written once."""

    idx: int
    channel: str
    value: Blob


class CheckpointThread(Value):
    """A row of checkpoint_threads."""

    id: str
    created_at: datetime
    updated_at: datetime


class Checkpoint(Value):
    """A row of checkpoint_states without its values: the state of a thread after a step."""

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
    """Channels whose value is not stored here: it is what the ancestors' writes make of the nearest stored one."""
    head: Blob
    """What the runner keeps beside the values of channels."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A stored write, in the order (task_path, task_id, idx) of its checkpoint."""

    task_id: str
    channel: str
    value: Blob


@dataclass(frozen=True, slots=True)
class ChannelHistory:
    """What made a channel's value: the nearest stored one, None where there is none, and the writes since, oldest first."""

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
    """How long it lives after each refresh, in minutes; None for ever."""
