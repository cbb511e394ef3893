"""Checks of a runner's arguments, made before anything is written."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from persist.checkpoints.schemas import Blob, Stored
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_kind, check_list, required_label
from persist.errors import InvalidValue

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
