"""The tables of telemetry as published, with a column for the instance or workspace that each row belongs to."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.changes.journal import Streams
from persist.db.schema.base import ONE_TREE, Base, table_of
from persist.db.schema.column_types import LONG_LABEL_BYTES, Bool, EnumText, EpochMs, EpochS, FreeText, Int64, Json, Label
from persist.db.schema.scope_columns import key_per_scope, numbered, scope_column
from persist.telemetry.schemas import LinkKind, TagKind, TaskState


class StatusLogRow(Base):
    """One transition of an instance's status. Transitions are ordered by id."""

    __tablename__ = "status_log"
    id: Mapped[int] = numbered()
    instance_id: Mapped[str] = scope_column("instance_id")
    occurred_at: Mapped[datetime] = mapped_column(EpochS())
    new_status: Mapped[str] = mapped_column(Label())
    metadata_: Mapped[Any | None] = mapped_column("metadata", Json())
    __table_args__ = (
        Index("ix_status_log_instance_id_id", "instance_id", "id"),
        Index("ix_status_log_instance_id_new_status_id", "instance_id", "new_status", "id"),
        key_per_scope("instance_id"),
    )


class AgentTagRow(Base):
    """A tag: something an agent said it works on."""

    __tablename__ = "agent_tags"
    instance_id: Mapped[str] = scope_column("instance_id", primary_key=True)
    kind: Mapped[TagKind] = mapped_column(EnumText(TagKind), primary_key=True)
    # 4096 bytes as published; Postgres's index refuses shorter values if they cannot be compressed
    value: Mapped[str] = mapped_column(Label(4096), primary_key=True)
    first_seen: Mapped[datetime] = mapped_column(EpochS())
    last_seen: Mapped[datetime] = mapped_column(EpochS())


class GithubLinkStatusRow(Base):
    """The states of one link as last fetched."""

    __tablename__ = "github_link_statuses"
    instance_id: Mapped[str] = scope_column("instance_id", primary_key=True)
    url: Mapped[str] = mapped_column(Label(LONG_LABEL_BYTES), primary_key=True)
    kind: Mapped[LinkKind] = mapped_column(EnumText(LinkKind))
    host: Mapped[str] = mapped_column(Label())
    owner: Mapped[str] = mapped_column(Label())
    repo: Mapped[str] = mapped_column(Label())
    resource_number: Mapped[int] = mapped_column(Int64())
    issue_state: Mapped[str | None] = mapped_column(Label())
    pr_state: Mapped[str | None] = mapped_column(Label())
    build_state: Mapped[str | None] = mapped_column(Label())
    review_state: Mapped[str | None] = mapped_column(Label())
    pr_is_draft: Mapped[bool | None] = mapped_column(Bool())
    fetched_at: Mapped[datetime] = mapped_column(EpochS())
    refresh_after: Mapped[datetime] = mapped_column(EpochS())
    last_error: Mapped[str | None] = mapped_column(FreeText())
    __table_args__ = (
        Index("ix_github_link_statuses_instance_id_refresh_after_url", "instance_id", "refresh_after", "url"),
        Index("ix_github_link_statuses_instance_id_resource_number", "instance_id", "resource_number"),
    )


class UsageSampleRow(Base):
    """The usage of an instance in one second."""

    __tablename__ = "usage_samples"
    instance_id: Mapped[str] = scope_column("instance_id", primary_key=True)
    occurred_at: Mapped[datetime] = mapped_column(EpochS(), primary_key=True, autoincrement=False)
    token_input: Mapped[int | None] = mapped_column(Int64())
    token_output: Mapped[int | None] = mapped_column(Int64())
    token_cache_read: Mapped[int | None] = mapped_column(Int64())
    token_cache_write: Mapped[int | None] = mapped_column(Int64())
    cost_usd_micros: Mapped[int | None] = mapped_column(Int64())
    # raised by every sample: the highest is the row written last, whatever its clock said. 0: written by another program
    seq: Mapped[int] = mapped_column(Int64(), server_default="0")
    __table_args__ = (Index("ix_usage_samples_instance_id_seq_occurred_at", "instance_id", "seq", "occurred_at"), ONE_TREE)


class ToolHistoryRow(Base):
    """One call of a tool."""

    __tablename__ = "tool_history"
    id: Mapped[int] = numbered()
    instance_id: Mapped[str] = scope_column("instance_id")
    occurred_at: Mapped[datetime] = mapped_column(EpochS())
    tool_key: Mapped[str] = mapped_column(Label())
    exit_code: Mapped[int | None] = mapped_column(Int64())
    duration_ms: Mapped[int | None] = mapped_column(Int64())
    __table_args__ = (Index("ix_tool_history_instance_id_id", "instance_id", "id"), key_per_scope("instance_id"))


class WindowMarkRow(Base):
    """The number of rows inserted into a window for an instance, so that the cadence of trims survives a restart."""

    __tablename__ = "window_marks"
    instance_id: Mapped[str] = scope_column("instance_id", primary_key=True)
    window: Mapped[str] = mapped_column(Label(), primary_key=True)
    inserted: Mapped[int] = mapped_column(Int64())
    __table_args__ = (ONE_TREE,)


class TaskRow(Base):
    """One task of a workspace's queue."""

    __tablename__ = "tasks"
    workspace_id: Mapped[str] = scope_column("workspace_id", primary_key=True)
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    source_id: Mapped[str] = mapped_column(Label())
    kind: Mapped[str] = mapped_column(Label())
    title: Mapped[str] = mapped_column(FreeText())
    state: Mapped[TaskState] = mapped_column(EnumText(TaskState), server_default=TaskState.QUEUED.value)
    instance_name: Mapped[str | None] = mapped_column(Label())
    discovered_at: Mapped[datetime] = mapped_column(EpochS())
    claimed_at: Mapped[datetime | None] = mapped_column(EpochS())
    claim_token: Mapped[int] = mapped_column(Int64(), server_default="0")
    claim_expires_at: Mapped[datetime | None] = mapped_column(EpochMs())
    completed_at: Mapped[datetime | None] = mapped_column(EpochS())
    outcome: Mapped[str | None] = mapped_column(FreeText())
    labels: Mapped[Any] = mapped_column(Json(list, required=True), server_default="[]")
    links: Mapped[Any] = mapped_column(Json(list, required=True), server_default="[]")
    body: Mapped[str | None] = mapped_column(FreeText())
    __table_args__ = (Index("ix_tasks_workspace_id_state_discovered_at_id", "workspace_id", "state", "discovered_at", "id"),)


status_log = table_of(StatusLogRow)
agent_tags = table_of(AgentTagRow)
links = table_of(GithubLinkStatusRow)
usage_samples = table_of(UsageSampleRow)
tool_history = table_of(ToolHistoryRow)
window_marks = table_of(WindowMarkRow)
tasks = table_of(TaskRow)
Streams("telemetry", shared="telemetry").by(
    "instance_id", status_log, agent_tags, links, usage_samples, tool_history, window_marks
)
Streams("workspace", shared="telemetry").by("workspace_id", tasks)
