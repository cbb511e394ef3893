"""Values of agents' tasks. Bytes are what the protocol of a task wrote; in JSON they are base64."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import ConfigDict

from persist.db.values.frozen import Value


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a task: a message of its history, or an artifact (`part` -1), or a part of an artifact (from 0)."""

    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    kind: str
    position: int
    part: int
    data: bytes


class AgentTask(Value):
    """A row of agent_task_records: one task of an owner, without its head and its pieces."""

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
    """A row of agent_task_webhooks: whom to notify of a task's changes, as one owner wants it."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    task_id: str
    owner: str
    id: str
    updated_at: datetime
    data: bytes
