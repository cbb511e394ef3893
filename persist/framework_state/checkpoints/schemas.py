"""Values of checkpoints. What a runner serialized is kept as bytes, with the kind that its serializer named."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from pydantic import ConfigDict

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_kind, check_list, required_label
from persist.db.values.frozen import Value
from persist.errors import InvalidValue


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


T = TypeVar("T")
_BYTES = (bytes, bytearray, memoryview)


def mapping(path: str, value: object) -> Mapping[Any, Any]:
    """The mapping, {} for None. Raises InvalidValue for anything else."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidValue(path, f"expected an object, got {type(value).__name__}.")
    return value


def items(path: str, value: object, kind: type[T]) -> list[T]:
    """The list. Raises InvalidValue unless all its items are of class `kind`."""
    return [check_kind(f"{path}[{index}]", one, kind) for index, one in enumerate(check_list(path, value))]


def labels(work: UnitOfWork, path: str, value: object) -> list[str]:
    """The checked labels of a list; empty labels are allowed."""
    return [work.label(f"{path}[{index}]", one, empty=True) for index, one in enumerate(check_list(path, value))]


def check_bytes(path: str, value: object) -> None:
    """Raises InvalidValue unless the value is bytes-like. SQLite would store a str as text."""
    if not isinstance(value, _BYTES):
        raise InvalidValue(path, f"expected bytes, got {type(value).__name__}.")


def check_blobs(path: str, blobs: Iterable[object], *, empty: bool = True) -> None:
    """Raises InvalidValue unless all are Blobs of bytes with a kind; `empty`: whether the kind may be empty."""
    kinds = set()
    for blob in blobs:
        if not isinstance(blob, Blob) or not isinstance(blob.kind, str):
            raise InvalidValue(path, "expected a Blob, or a list of them.")
        check_bytes(f"{path}.data", blob.data)
        kinds.add(blob.kind)
    for kind in kinds:
        required_label(f"{path}.kind", kind, empty=empty)


def versions_of(work: UnitOfWork, versions: object) -> dict[str, str]:
    """The checked versions by channel."""
    return {
        work.label("channel", channel, empty=True): work.label(f"versions.{channel}", version, empty=True)
        for channel, version in mapping("versions", versions).items()
    }


def values_of(work: UnitOfWork, values: object) -> dict[str, tuple[str, Stored | None]]:
    """The checked (version, value) by channel."""
    checked: dict[str, tuple[str, Stored | None]] = {}
    for channel, pair in mapping("values", values).items():
        name = work.label("channel", channel, empty=True)
        path = f"values.{name}"
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidValue(path, "expected a pair of a version and a value.")
        version, value = pair
        if value is not None and not isinstance(value, Blob | Sequence):
            raise InvalidValue(path, "expected a Blob, or a list of them.")
        check_blobs(path, () if value is None else (value,) if isinstance(value, Blob) else value)
        checked[name] = (work.label(f"{path}.version", version, empty=True), value)
    return checked
