"""Values of agents' tasks. Bytes are what the protocol of a task wrote; in JSON they are base64."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ConfigDict

from persist.db.schema.column_types import LABEL_BYTES
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_list
from persist.db.values.escaping import utf8_size
from persist.db.values.frozen import Value
from persist.errors import InvalidValue, PayloadTooLarge


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a task: a message of its history, or an artifact (`part` -1), or a part of an artifact (from 0)."""

    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    kind: str
    position: int
    part: int
    data: bytes


class AgentTask(Value):
    """A row of agent_task_records: a task of an owner, without head and pieces."""

    id: str
    owner: str
    task_id: str
    context_id: str
    state: str
    final: bool
    status_key: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task with its head and its pieces, by kind, position and part."""

    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    task: AgentTask
    head: bytes
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A page of an owner's tasks, and how many there are in all."""

    items: Sequence[LoadedTask]
    total: int
    more: bool


class Webhook(Value):
    """A row of agent_task_webhooks: a receiver of a task's changes, as its owner set it."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    task_id: str
    owner: str
    id: str
    updated_at: datetime
    data: bytes


_MAX = 2**63 - 1


def label_of(work: UnitOfWork, path: str, value: object, *, empty: bool = False) -> str:
    """The label, of a size that an index takes."""
    text = work.label(path, value, empty=empty)
    if (size := utf8_size(text)) > LABEL_BYTES:
        raise PayloadTooLarge(path, size, LABEL_BYTES)
    return text


def checked_bytes(path: str, value: object) -> bytes:
    """The bytes."""
    if not isinstance(value, bytes):
        raise InvalidValue(path, f"expected bytes, got {type(value).__name__}.")
    return value


def checked_pieces(work: UnitOfWork, value: object) -> dict[tuple[str, int, int], bytes]:
    """The data of each piece by kind, position and part. Raises InvalidValue for two pieces in one place."""
    found: dict[tuple[str, int, int], bytes] = {}
    for index, piece in enumerate(check_list("pieces", value)):
        path = f"pieces[{index}]"
        if not isinstance(piece, Piece):
            raise InvalidValue(path, f"expected a Piece, got {type(piece).__name__}.")
        kind = label_of(work, f"{path}.kind", piece.kind)
        place = (kind, _at_least(f"{path}.position", piece.position, 0), _at_least(f"{path}.part", piece.part, -1))
        if place in found:
            raise InvalidValue(path, "another piece is in the same place.")
        found[place] = checked_bytes(f"{path}.data", piece.data)
    return found


def _at_least(path: str, value: Any, least: int) -> int:
    if type(value) is not int or not least <= value <= _MAX:
        raise InvalidValue(path, f"expected a whole number, {least} or more.")
    return value
