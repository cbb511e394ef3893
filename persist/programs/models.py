"""The published tables of programs, which the sqlite3 command line uses, too: no CHECK of words, no reference to bindings."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKeyConstraint, Index, UniqueConstraint, func, literal_column
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.changes.journal import Streams
from persist.db.schema.base import SCHEMA_TOKEN, Base, set_for, table_of
from persist.db.schema.column_types import EnumText, EpochMs, FreeText, Int64, Json, Label, SqlSeconds
from persist.db.schema.row_guards import GUARDS, LOGGED, BoundOnce, IsJson, LoggedWrites, PlainName
from persist.db.schema.scope_columns import key_per_scope, key_within_scope, numbered, scope_column, this_second
from persist.programs.names import ATTACHMENTS
from persist.programs.schemas import AgentScope, BindingKind, ExecutionStatus, Isolation, RunStatus


class RunRow(Base):
    """One run. `written_status` is what this library wrote, `held_by` the process that runs it; NULL where nobody said so."""

    __tablename__ = "run"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    program_path: Mapped[str | None] = mapped_column(Label())
    started_at: Mapped[datetime | None] = mapped_column(SqlSeconds(), server_default=this_second())
    updated_at: Mapped[datetime | None] = mapped_column(SqlSeconds(), server_default=this_second())
    status: Mapped[RunStatus | None] = mapped_column(EnumText(RunStatus), server_default=RunStatus.RUNNING.value)
    state_mode: Mapped[str | None] = mapped_column(Label(), server_default="sqlite")
    written_status: Mapped[RunStatus | None] = mapped_column(EnumText(RunStatus))
    anonymous_names: Mapped[int] = mapped_column(Int64(), nullable=False, server_default="0")
    held_by: Mapped[str | None] = mapped_column(Label())
    held_since: Mapped[datetime | None] = mapped_column(SqlSeconds())
    seen_at: Mapped[datetime | None] = mapped_column(SqlSeconds())
    program_source: Mapped[str | None] = mapped_column(FreeText())
    __table_args__ = (
        Index("ix_run_started_at_id", "started_at", "id"),
        Index("ix_run_status_started_at_id", "status", "started_at", "id"),
    )


class ExecutionRow(Base):
    """One executed statement; its id is also the id of the frame it opens, and is never reused."""

    __tablename__ = "execution"
    id: Mapped[int] = numbered()
    run_id: Mapped[str] = scope_column("run_id")
    statement_index: Mapped[int | None] = mapped_column(Int64())
    status: Mapped[ExecutionStatus | None] = mapped_column(EnumText(ExecutionStatus))
    written_status: Mapped[ExecutionStatus | None] = mapped_column(EnumText(ExecutionStatus))
    started_at: Mapped[datetime | None] = mapped_column(SqlSeconds())
    completed_at: Mapped[datetime | None] = mapped_column(SqlSeconds())
    updated_at: Mapped[datetime | None] = mapped_column(SqlSeconds(), server_default=this_second())
    parent_id: Mapped[int | None] = mapped_column(Int64())
    statement_text: Mapped[str | None] = mapped_column(FreeText())
    error_message: Mapped[str | None] = mapped_column(FreeText())
    metadata_: Mapped[Any | None] = mapped_column("metadata", Json(), server_default="{}")
    __table_args__ = (
        *key_within_scope("execution", "run_id", "parent_id", "execution.id"),
        Index("ix_execution_run_id_status_id", "run_id", "status", "id"),
        Index("ix_execution_parent_id", "parent_id"),
        key_per_scope("run_id"),
    )


class BindingRow(Base):
    """A named value in a frame; the unique index below is its key."""

    __tablename__ = "bindings"
    run_id: Mapped[str] = scope_column("run_id")
    name: Mapped[str | None] = mapped_column(Label())
    execution_id: Mapped[int | None] = mapped_column(Int64())
    kind: Mapped[BindingKind | None] = mapped_column(EnumText(BindingKind))
    source_statement: Mapped[str | None] = mapped_column(FreeText())
    created_at: Mapped[datetime | None] = mapped_column(SqlSeconds(), server_default=this_second())
    updated_at: Mapped[datetime | None] = mapped_column(SqlSeconds(), server_default=this_second())
    attachment_path: Mapped[str | None] = mapped_column(Label())
    value: Mapped[str | None] = mapped_column(FreeText())
    __mapper_args__ = {"primary_key": ["run_id", "name", "execution_id"]}  # noqa: RUF012  # the mapper's own declaration


class AgentRow(Base):
    """The memory of a persistent agent."""

    __tablename__ = "agents"
    run_id: Mapped[str] = scope_column("run_id", primary_key=True)
    name: Mapped[str] = mapped_column(Label(), primary_key=True)
    scope: Mapped[AgentScope | None] = mapped_column(EnumText(AgentScope))
    created_at: Mapped[datetime | None] = mapped_column(SqlSeconds(), server_default=this_second())
    updated_at: Mapped[datetime | None] = mapped_column(SqlSeconds(), server_default=this_second())
    memory: Mapped[str | None] = mapped_column(FreeText())


class AgentSegmentRow(Base):
    """One invocation of a persistent agent."""

    __tablename__ = "agent_segments"
    id: Mapped[int] = numbered()
    run_id: Mapped[str] = scope_column("run_id")
    agent_name: Mapped[str | None] = mapped_column(Label())
    segment_number: Mapped[int | None] = mapped_column(Int64())
    timestamp: Mapped[datetime | None] = mapped_column(SqlSeconds(), server_default=this_second())
    prompt: Mapped[str | None] = mapped_column(FreeText())
    summary: Mapped[str | None] = mapped_column(FreeText())
    __table_args__ = (
        UniqueConstraint("run_id", "agent_name", "segment_number"),
        ForeignKeyConstraint(["run_id", "agent_name"], [f"{SCHEMA_TOKEN}.agents.run_id", f"{SCHEMA_TOKEN}.agents.name"]),
        key_per_scope("run_id"),
    )


class ImportRow(Base):
    """A program that a run imports under an alias."""

    __tablename__ = "imports"
    run_id: Mapped[str] = scope_column("run_id", primary_key=True)
    alias: Mapped[str] = mapped_column(Label(), primary_key=True)
    source_url: Mapped[str | None] = mapped_column(Label())
    fetched_at: Mapped[datetime | None] = mapped_column(SqlSeconds())
    inputs_schema: Mapped[Any | None] = mapped_column(Json())
    outputs_schema: Mapped[Any | None] = mapped_column(Json())


class SubagentRow(Base):
    """A subagent that is not trusted, with a file, of which `lent` and `report` tell, or a token, of which the hash is stored."""

    __tablename__ = "program_subagents"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    run_id: Mapped[str] = scope_column("run_id")
    execution_id: Mapped[int | None] = mapped_column(Int64())
    isolation: Mapped[Isolation] = mapped_column(EnumText(Isolation), nullable=False)
    agent_name: Mapped[str | None] = mapped_column(Label())
    token_hash: Mapped[str | None] = mapped_column(Label())
    created_at: Mapped[datetime] = mapped_column(SqlSeconds(), nullable=False)
    expires_at: Mapped[datetime | None] = mapped_column(SqlSeconds())
    ended_at: Mapped[datetime | None] = mapped_column(SqlSeconds())
    lent: Mapped[Any | None] = mapped_column(Json(dict))
    report: Mapped[Any | None] = mapped_column(Json(dict))
    __table_args__ = (
        Index("ix_program_subagents_run_id_execution_id", "run_id", "execution_id"),
        Index("uq_program_subagents_token_hash", "token_hash", unique=True),
    )


class RawWriteRow(Base):
    """A write by another program, noted by triggers: the row's key, NULL for a whole table, and what changed columns said."""

    __tablename__ = "raw_writes"
    id: Mapped[int] = numbered()
    run_id: Mapped[str] = scope_column("run_id")
    at: Mapped[datetime] = mapped_column(EpochMs())
    table_name: Mapped[str] = mapped_column(Label())
    operation: Mapped[str] = mapped_column(Label())
    row_key_json: Mapped[Any | None] = mapped_column(Json())
    writer_json: Mapped[Any | None] = mapped_column(Json())
    before_json: Mapped[Any | None] = mapped_column(Json())
    __table_args__ = (Index("ix_raw_writes_run_id_at", "run_id", "at"), Index("ix_raw_writes_at", "at"), key_per_scope("run_id"))


runs = table_of(RunRow)
executions = table_of(ExecutionRow)
bindings = table_of(BindingRow)
agents = table_of(AgentRow)
segments = table_of(AgentSegmentRow)
imports = table_of(ImportRow)
subagents = table_of(SubagentRow)
raw_writes = table_of(RawWriteRow)
FRAME = func.coalesce(bindings.c.execution_id, literal_column("-1"))
"""The frame of a binding, -1 for the root; the unique index and the upsert must spell it alike."""
Index("uq_bindings_frame_name", bindings.c.run_id, bindings.c.name, FRAME, unique=True)

bindings.info[GUARDS] = (
    BoundOnce("kind", ("const", "input"), ("run_id", "name", "execution_id"), "execution_id", ("value", "attachment_path")),
    PlainName("attachment_path", ATTACHMENTS),
)
executions.info[GUARDS] = (IsJson("metadata"),)
imports.info[GUARDS] = (IsJson("inputs_schema"), IsJson("outputs_schema"))
for _table, _logged in (
    (runs, LoggedWrites("id", (("id",),))),
    (executions, LoggedWrites("run_id", (("id",),))),
    (bindings, LoggedWrites("run_id", (("run_id", "name", "execution_id"),), frame="execution_id")),
    (agents, LoggedWrites("run_id", (("run_id", "name"),))),
    (segments, LoggedWrites("run_id", (("id",), ("run_id", "agent_name", "segment_number")))),
    (imports, LoggedWrites("run_id", (("run_id", "alias"),))),
    (raw_writes, None),
):
    _table.info[LOGGED] = _logged
    _table.info.setdefault(GUARDS, ())

STRICT_TABLES = (runs, executions, imports)
"""What nobody but persist may write in a strict run file: the virtual machine's part of it."""
bindings.info["key"] = ["run_id", "name", "execution_id"]
set_for(bindings, whole_row_identity=True)  # the unique index cannot be its identity: it has an expression
STREAMS = Streams("program", shared="programs")
STREAMS.by("id", runs)
STREAMS.by("run_id", executions, bindings, agents, segments, imports, subagents)
raw_writes.info["unlogged"] = True  # triggers write them, on a connection that keeps no log
