"""The tables of agents' tasks. A task is stored as bytes that its protocol wrote; the values that find a task are columns."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.changes.journal import Streams
from persist.db.schema.base import SCHEMA_TOKEN, Base, table_of
from persist.db.schema.column_types import Bool, EpochMs, Int64, Label


class AgentTaskRow(Base):
    """One task of an owner. `status_key` sorts as the instants of statuses do and is empty without one."""

    __tablename__ = "agent_task_records"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    owner: Mapped[str] = mapped_column(Label())
    task_id: Mapped[str] = mapped_column(Label())
    context_id: Mapped[str] = mapped_column(Label())
    state: Mapped[str] = mapped_column(Label())
    final: Mapped[bool] = mapped_column(Bool())
    status_key: Mapped[str] = mapped_column(Label())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    head: Mapped[bytes] = mapped_column(LargeBinary())
    __table_args__ = (
        Index("ix_agent_task_records_owner_task_id", "owner", "task_id", unique=True),
        Index("ix_agent_task_records_owner_status_key_task_id", "owner", "status_key", "task_id"),
        Index("ix_agent_task_records_updated_at_id", "updated_at", "id"),
    )


class AgentTaskPieceRow(Base):
    """A piece of a task: a message of its history, or an artifact (`part` -1), or a part of an artifact (from 0)."""

    __tablename__ = "agent_task_pieces"
    task: Mapped[str] = mapped_column(Label(), ForeignKey(f"{SCHEMA_TOKEN}.agent_task_records.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(Label(), primary_key=True)
    position: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    part: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    digest: Mapped[bytes] = mapped_column(LargeBinary())
    data: Mapped[bytes] = mapped_column(LargeBinary())


class AgentTaskWebhookRow(Base):
    """A receiver of a task's changes, as its owner set it. `place` grows each time the webhook is set."""

    __tablename__ = "agent_task_webhooks"
    task_id: Mapped[str] = mapped_column(Label(), primary_key=True)
    owner: Mapped[str] = mapped_column(Label(), primary_key=True)
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    place: Mapped[str] = mapped_column(Label())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    data: Mapped[bytes] = mapped_column(LargeBinary())


tasks = table_of(AgentTaskRow)
pieces = table_of(AgentTaskPieceRow)
webhooks = table_of(AgentTaskWebhookRow)
Streams("agent_task", shared="agent_tasks").over(tasks)
Streams("agent_task_webhooks", shared="agent_task_webhooks").by("task_id", webhooks)
