"""The tables of checkpoints. Keys are given by the runner: thread, namespace in it, and ids, versions and task numbers."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.changes.journal import Streams
from persist.db.operations.upkeep import Aggregate
from persist.db.schema.base import SCHEMA_TOKEN, Base, partial_index, table_of
from persist.db.schema.column_types import EpochMs, Float64, Int64, Json, Label


def _thread() -> Mapped[str]:
    return mapped_column(Label(), ForeignKey(f"{SCHEMA_TOKEN}.checkpoint_threads.id"), primary_key=True)


def _key() -> Mapped[str]:
    return mapped_column(Label(), primary_key=True)


class CheckpointThreadRow(Base):
    """One thread, and when a checkpoint of it was last stored (`updated_at`)."""

    __tablename__ = "checkpoint_threads"
    id: Mapped[str] = _key()
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    __table_args__ = (Index("ix_checkpoint_threads_updated_at_id", "updated_at", "id"),)


class CheckpointStateRow(Base):
    """A checkpoint: the state of a thread after a step, without the values of its channels."""

    __tablename__ = "checkpoint_states"
    thread_id: Mapped[str] = _thread()
    namespace: Mapped[str] = _key()
    id: Mapped[str] = _key()
    parent_id: Mapped[str | None] = mapped_column(Label())
    run_id: Mapped[str | None] = mapped_column(Label())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    metadata_json: Mapped[Any] = mapped_column(Json())
    versions_json: Mapped[Any] = mapped_column(Json())
    partial_json: Mapped[Any | None] = mapped_column(Json())
    head_kind: Mapped[str] = mapped_column(Label())
    head: Mapped[bytes] = mapped_column(LargeBinary())


class CheckpointValueRow(Base):
    """The value of a channel at a version: whole in `data`, or for a list as ranges of pieces in `spans_json`."""

    __tablename__ = "checkpoint_values"
    thread_id: Mapped[str] = _thread()
    namespace: Mapped[str] = _key()
    channel: Mapped[str] = _key()
    version: Mapped[str] = _key()
    kind: Mapped[str | None] = mapped_column(Label())
    spans_json: Mapped[Any | None] = mapped_column(Json())
    digest: Mapped[bytes | None] = mapped_column(LargeBinary())
    data: Mapped[bytes | None] = mapped_column(LargeBinary())


class CheckpointPieceRow(Base):
    """One list element of a channel's values, stored once however many versions contain it."""

    __tablename__ = "checkpoint_pieces"
    thread_id: Mapped[str] = _thread()
    namespace: Mapped[str] = _key()
    channel: Mapped[str] = _key()
    position: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    digest: Mapped[bytes] = mapped_column(LargeBinary())
    kind: Mapped[str] = mapped_column(Label())
    data: Mapped[bytes] = mapped_column(LargeBinary())


class CheckpointWriteRow(Base):
    """A pending write: what a task wrote after a checkpoint, before the next. It may be stored before its own checkpoint."""

    __tablename__ = "checkpoint_writes"
    thread_id: Mapped[str] = _thread()
    namespace: Mapped[str] = _key()
    checkpoint_id: Mapped[str] = _key()
    task_id: Mapped[str] = _key()
    idx: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    task_path: Mapped[str] = mapped_column(Label())
    channel: Mapped[str] = mapped_column(Label())
    kind: Mapped[str] = mapped_column(Label())
    data: Mapped[bytes] = mapped_column(LargeBinary())


class MemoryRow(Base):
    """A memory: a JSON object under a namespace (its labels joined with dots) and a key."""

    __tablename__ = "memories"
    namespace: Mapped[str] = _key()
    key: Mapped[str] = _key()
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    expires_at: Mapped[datetime | None] = mapped_column(EpochMs())
    ttl_minutes: Mapped[float | None] = mapped_column(Float64())
    value_json: Mapped[Any] = mapped_column(Json())


class MemoryVectorRow(Base):
    """The embedding of one text of a memory: little-endian 32-bit floats."""

    __tablename__ = "memory_vectors"
    namespace: Mapped[str] = _key()
    key: Mapped[str] = _key()
    path: Mapped[str] = _key()
    embedding: Mapped[bytes] = mapped_column(LargeBinary())
    __table_args__ = (
        ForeignKeyConstraint(
            ["namespace", "key"], [f"{SCHEMA_TOKEN}.memories.namespace", f"{SCHEMA_TOKEN}.memories.key"], ondelete="CASCADE"
        ),
    )


threads = table_of(CheckpointThreadRow)
states = table_of(CheckpointStateRow)
values = table_of(CheckpointValueRow)
pieces = table_of(CheckpointPieceRow)
pending = table_of(CheckpointWriteRow)
memories = table_of(MemoryRow)
vectors = table_of(MemoryVectorRow)
BELOW = (states, values, pieces, pending)
"""The tables whose rows belong to a thread."""
partial_index("ix_checkpoint_states_run_id", states.c.run_id, where=states.c.run_id.is_not(None))
partial_index("ix_memories_expires_at", memories.c.expires_at, where=memories.c.expires_at.is_not(None))

THREADS = Aggregate(threads)
Streams("thread", shared="threads").over(threads)
Streams("memory", shared="memories").by("namespace", memories, vectors)
