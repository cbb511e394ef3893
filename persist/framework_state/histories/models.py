"""The tables of histories. Ids are given by the framework, except for those of the messages of snapshots."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.changes.journal import Streams
from persist.db.schema.base import SCHEMA_TOKEN, Base, partial_index, table_of
from persist.db.schema.column_types import EnumText, EpochMs, EpochReal, FreeText, Int64, Json, Label
from persist.framework_state.histories.schemas import EffectStatus, SnapshotState


def _run() -> Mapped[str]:
    return mapped_column(Label(), ForeignKey(f"{SCHEMA_TOKEN}.history_runs.id"), primary_key=True)


def _place() -> Mapped[int]:
    return mapped_column(Int64(), primary_key=True, autoincrement=False)


class HistoryRow(Base):
    """A conversation: its last entry, and facts that its messages do not hold. Its framework gives `updated_at`."""

    __tablename__ = "history_records"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    head_id: Mapped[str | None] = mapped_column(Label())
    scope: Mapped[str | None] = mapped_column(Label())
    forked_from: Mapped[str | None] = mapped_column(Label())
    forked_at: Mapped[str | None] = mapped_column(Label())
    revision: Mapped[str] = mapped_column(Label())
    format_version: Mapped[int] = mapped_column(Int64())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    updated_at: Mapped[datetime] = mapped_column(EpochReal())
    usage_json: Mapped[Any] = mapped_column(Json())
    deferred_json: Mapped[Any | None] = mapped_column(Json())
    __table_args__ = (Index("ix_history_records_updated_at_id", "updated_at", "id"),)


class HistoryBranchRow(Base):
    """The last entry of a branch that a conversation has left."""

    __tablename__ = "history_branches"
    history_id: Mapped[str] = mapped_column(Label(), ForeignKey(f"{SCHEMA_TOKEN}.history_records.id"), primary_key=True)
    position: Mapped[int] = _place()
    entry_id: Mapped[str] = mapped_column(Label(), index=True)


class HistoryEntryRow(Base):
    """A message, linked to the one before it; conversations that were forked share it.

    Messages form trees, of which `root_id` names the first one. A line is a chain of messages in a tree; `line_id` names its
    first one. A message that follows one that already has a successor begins a new line. `depth` counts from the root. A
    history's messages are therefore a range of each line on its way.
    """

    __tablename__ = "history_entries"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    parent_id: Mapped[str | None] = mapped_column(Label())
    root_id: Mapped[str] = mapped_column(Label())
    line_id: Mapped[str] = mapped_column(Label())
    depth: Mapped[int] = mapped_column(Int64())
    kind: Mapped[str] = mapped_column(Label())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    digest: Mapped[bytes | None] = mapped_column(LargeBinary())
    extra_json: Mapped[Any | None] = mapped_column(Json())
    message_json: Mapped[Any] = mapped_column(Json())
    __table_args__ = (Index("ix_history_entries_root_id_line_id_depth", "root_id", "line_id", "depth", unique=True),)


class HistoryRunRow(Base):
    """A run of an agent. One that has steps and was not registered has no `started_at`."""

    __tablename__ = "history_runs"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    conversation_id: Mapped[str | None] = mapped_column(Label())
    parent_id: Mapped[str | None] = mapped_column(Label())
    agent_name: Mapped[str | None] = mapped_column(FreeText())
    registration_id: Mapped[str | None] = mapped_column(Label())
    started_at: Mapped[datetime | None] = mapped_column(EpochReal())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    newest_sequence: Mapped[int | None] = mapped_column(Int64())
    newest_keys_json: Mapped[Any | None] = mapped_column(Json())
    metadata_json: Mapped[Any] = mapped_column(Json())
    __table_args__ = (Index("ix_history_runs_updated_at_id", "updated_at", "id"),)


class HistoryRunEventRow(Base):
    """Something that a run came to."""

    __tablename__ = "history_run_events"
    run_id: Mapped[str] = _run()
    position: Mapped[int] = _place()
    kind: Mapped[str] = mapped_column(Label())
    step_index: Mapped[int] = mapped_column(Int64())
    at: Mapped[datetime] = mapped_column(EpochReal())
    conversation_id: Mapped[str | None] = mapped_column(FreeText())
    parent_run_id: Mapped[str | None] = mapped_column(FreeText())
    agent_name: Mapped[str | None] = mapped_column(FreeText())
    tool_call_id: Mapped[str | None] = mapped_column(FreeText())
    tool_name: Mapped[str | None] = mapped_column(FreeText())
    idempotency_key: Mapped[str | None] = mapped_column(Label())
    error: Mapped[str | None] = mapped_column(FreeText())
    metadata_json: Mapped[Any] = mapped_column(Json())
    __table_args__ = (Index("ix_history_run_events_run_id_idempotency_key", "run_id", "idempotency_key", unique=True),)


class HistorySnapshotRow(Base):
    """Messages from which a run can be continued: those that end at the entry `head_id`, none for NULL."""

    __tablename__ = "history_snapshots"
    run_id: Mapped[str] = _run()
    position: Mapped[int] = _place()
    state: Mapped[SnapshotState] = mapped_column(EnumText(SnapshotState))
    step_index: Mapped[int] = mapped_column(Int64())
    taken_at: Mapped[datetime] = mapped_column(EpochReal())
    conversation_id: Mapped[str | None] = mapped_column(FreeText())
    parent_run_id: Mapped[str | None] = mapped_column(FreeText())
    agent_name: Mapped[str | None] = mapped_column(FreeText())
    idempotency_key: Mapped[str | None] = mapped_column(Label())
    head_id: Mapped[str | None] = mapped_column(Label())
    __table_args__ = (Index("ix_history_snapshots_run_id_idempotency_key", "run_id", "idempotency_key", unique=True),)


class HistoryToolEffectRow(Base):
    """What is known of a tool call's effect on the world. `position`: the order in which calls were first noted."""

    __tablename__ = "history_tool_effects"
    run_id: Mapped[str] = _run()
    tool_call_id: Mapped[str] = mapped_column(Label(), primary_key=True)
    position: Mapped[int] = mapped_column(Int64())
    tool_name: Mapped[str] = mapped_column(FreeText())
    status: Mapped[EffectStatus] = mapped_column(EnumText(EffectStatus))
    started_at: Mapped[datetime] = mapped_column(EpochReal())
    ended_at: Mapped[datetime | None] = mapped_column(EpochReal())
    idempotency_key: Mapped[str | None] = mapped_column(FreeText())
    effect_summary: Mapped[str | None] = mapped_column(FreeText())


histories = table_of(HistoryRow)
branches = table_of(HistoryBranchRow)
entries = table_of(HistoryEntryRow)
runs = table_of(HistoryRunRow)
run_events = table_of(HistoryRunEventRow)
snapshots = table_of(HistorySnapshotRow)
effects = table_of(HistoryToolEffectRow)
BELOW_RUN = (run_events, snapshots, effects)
"""The tables whose rows belong to a run."""
partial_index("ix_history_records_head_id", histories.c.head_id, where=histories.c.head_id.is_not(None))
partial_index(
    "ix_history_records_scope_updated_at_id",
    histories.c.scope,
    histories.c.updated_at,
    histories.c.id,
    where=histories.c.scope.is_not(None),
)
partial_index("ix_history_runs_conversation_id", runs.c.conversation_id, where=runs.c.conversation_id.is_not(None))
partial_index("ix_history_runs_parent_id", runs.c.parent_id, where=runs.c.parent_id.is_not(None))
partial_index("ix_history_snapshots_head_id", snapshots.c.head_id, where=snapshots.c.head_id.is_not(None))

# Entries are shared between conversations and runs: the verb that writes them for one of these names its stream.
STREAMS = Streams("history", shared="histories")
STREAMS.over(histories)
STREAMS.unowned(entries)
Streams("history-run", shared="history-runs").over(runs)
