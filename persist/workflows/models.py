"""The tables of workflows as published, with leases, the restart cap and indexes that keep lists cheap at a million rows.

Blob columns are declared last, so that reading other columns never walks them. The published index on `status` alone is left out:
SQLite picks it and sorts every match.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, func, literal_column, text
from sqlalchemy.orm import Mapped, foreign, mapped_column, relationship
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import FromClause

from persist.db.changes.journal import Streams
from persist.db.expressions.numbers import whole_total
from persist.db.schema import base
from persist.db.schema.column_types import Bool, EnumText, Float64, FreeText, Int64, IsoMs, Json, Label
from persist.workflows.schemas import (
    UNFINISHED,
    ApprovalKind,
    ApprovalStatus,
    CatchUp,
    EffectState,
    FailureKind,
    JoinUntil,
    OnExpiry,
    RunStatus,
)

_ZERO, _ONE = text("0"), text("1")


class WorkflowRunRow(base.Base):
    """One dispatch of a workflow: what resumes after a crash.

    `unique_trigger_id` is the trigger's id if no other run with it may be unfinished at the same time. `queued_at` is the instant
    from which it waits in the queue, a delayed run's `not_before`; rows of older releases have none, and wait since they started.
    `parent_run_id` has no foreign key: a run may outlive its parent.
    """

    __tablename__ = "workflow_runs"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    workflow_name: Mapped[str] = mapped_column(Label())
    trigger_id: Mapped[str] = mapped_column(Label())
    repo: Mapped[str | None] = mapped_column(Label())
    issue_number: Mapped[int | None] = mapped_column(Int64())
    current_phase: Mapped[str] = mapped_column(Label())
    status: Mapped[RunStatus] = mapped_column(EnumText(RunStatus), server_default=RunStatus.RUNNING.value)
    restart_count: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    max_restarts: Mapped[int | None] = mapped_column(Int64())
    lease_owner: Mapped[str | None] = mapped_column(Label())
    lease_expires_at: Mapped[datetime | None] = mapped_column(IsoMs())
    lease_token: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    started_at: Mapped[datetime] = mapped_column(IsoMs())
    updated_at: Mapped[datetime] = mapped_column(IsoMs())
    finished_at: Mapped[datetime | None] = mapped_column(IsoMs())
    idempotency_key: Mapped[str | None] = mapped_column(Label())
    unique_trigger_id: Mapped[str | None] = mapped_column(Label())
    priority: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    queued_at: Mapped[datetime | None] = mapped_column(IsoMs())
    not_before: Mapped[datetime | None] = mapped_column(IsoMs())
    attempt: Mapped[int] = mapped_column(Int64(), server_default=_ONE)
    max_attempts: Mapped[int | None] = mapped_column(Int64())
    failure_kind: Mapped[FailureKind | None] = mapped_column(EnumText(FailureKind))
    last_error: Mapped[str | None] = mapped_column(FreeText())
    parent_run_id: Mapped[str | None] = mapped_column(Label())
    join_until: Mapped[JoinUntil | None] = mapped_column(EnumText(JoinUntil))
    concurrency_key: Mapped[str | None] = mapped_column(Label())
    phase_history: Mapped[Any] = mapped_column(Json(list, dict, required=True), server_default="[]")
    context: Mapped[Any | None] = mapped_column(Json(dict))
    scratch: Mapped[Any | None] = mapped_column(Json(dict))
    node_statuses: Mapped[Any | None] = mapped_column(Json(dict))
    __table_args__ = (CheckConstraint("max_restarts IS NULL OR restart_count <= max_restarts", name="max_restarts"),)
    executions: Mapped[list["ExecutionRow"]] = relationship(
        lambda: ExecutionRow,
        viewonly=True,
        primaryjoin=lambda: WorkflowRunRow.id == foreign(ExecutionRow.workflow_run_id),
        order_by=lambda: (ExecutionRow.started_at, ExecutionRow.id),
    )
    approvals: Mapped[list["WorkflowApprovalRow"]] = relationship(
        lambda: WorkflowApprovalRow,
        viewonly=True,
        primaryjoin=lambda: WorkflowRunRow.id == foreign(WorkflowApprovalRow.workflow_run_id),
        order_by=lambda: (WorkflowApprovalRow.created_at, WorkflowApprovalRow.id),
    )
    effects: Mapped[list["WorkflowEffectRow"]] = relationship(
        lambda: WorkflowEffectRow, viewonly=True, order_by=lambda: (WorkflowEffectRow.begun_at, WorkflowEffectRow.key)
    )
    signals: Mapped[list["WorkflowSignalRow"]] = relationship(
        lambda: WorkflowSignalRow, viewonly=True, order_by=lambda: WorkflowSignalRow.seq
    )


class ExecutionRow(base.Base):
    """One phase of a run, or one chat turn; `session_id` names its session log."""

    __tablename__ = "executions"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    trigger_type: Mapped[str] = mapped_column(Label())
    trigger_id: Mapped[str] = mapped_column(Label())
    skill: Mapped[str] = mapped_column(Label())
    repo: Mapped[str | None] = mapped_column(Label())
    issue_number: Mapped[int | None] = mapped_column(Int64())
    started_at: Mapped[datetime] = mapped_column(IsoMs())
    finished_at: Mapped[datetime | None] = mapped_column(IsoMs())
    success: Mapped[bool | None] = mapped_column(Bool())
    turns: Mapped[int | None] = mapped_column(Int64())
    duration_ms: Mapped[int | None] = mapped_column(Int64())
    session_id: Mapped[str | None] = mapped_column(Label())
    cost_usd: Mapped[float | None] = mapped_column(Float64())
    input_tokens: Mapped[int | None] = mapped_column(Int64())
    cache_creation_input_tokens: Mapped[int | None] = mapped_column(Int64())
    cache_read_input_tokens: Mapped[int | None] = mapped_column(Int64())
    output_tokens: Mapped[int | None] = mapped_column(Int64())
    api_duration_ms: Mapped[int | None] = mapped_column(Int64())
    stop_reason: Mapped[str | None] = mapped_column(Label())
    workflow_run_id: Mapped[str | None] = mapped_column(Label())
    idempotency_key: Mapped[str | None] = mapped_column(Label())
    error: Mapped[str | None] = mapped_column(FreeText())
    extension_status: Mapped[Any | None] = mapped_column(Json())
    output_text: Mapped[str | None] = mapped_column(FreeText())
    __table_args__ = (
        Index("idx_executions_trigger", "trigger_type", "trigger_id"),
        Index("idx_executions_skill", "skill", "started_at"),
        Index("idx_executions_workflow_run", "workflow_run_id", "skill"),
        Index("ix_executions_trigger_id_skill_started_at", "trigger_id", "skill", "started_at"),
    )
    run: Mapped[WorkflowRunRow | None] = relationship(
        lambda: WorkflowRunRow, viewonly=True, primaryjoin=lambda: WorkflowRunRow.id == foreign(ExecutionRow.workflow_run_id)
    )


class WorkflowApprovalRow(base.Base):
    """One gate. `workflow_run_id` has no foreign key, as published: an approval may outlive its run."""

    __tablename__ = "workflow_approvals"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    workflow_run_id: Mapped[str] = mapped_column(Label())
    gate: Mapped[str] = mapped_column(Label())
    status: Mapped[ApprovalStatus] = mapped_column(EnumText(ApprovalStatus), server_default=ApprovalStatus.PENDING.value)
    kind: Mapped[ApprovalKind] = mapped_column(EnumText(ApprovalKind), server_default=ApprovalKind.APPROVE.value)
    requested_by: Mapped[str | None] = mapped_column(Label())
    responded_by: Mapped[str | None] = mapped_column(Label())
    responded_at: Mapped[datetime | None] = mapped_column(IsoMs())
    created_at: Mapped[datetime] = mapped_column(IsoMs())
    idempotency_key: Mapped[str | None] = mapped_column(Label())
    expires_at: Mapped[datetime | None] = mapped_column(IsoMs())
    on_expiry: Mapped[OnExpiry | None] = mapped_column(EnumText(OnExpiry))
    summary: Mapped[str] = mapped_column(FreeText())
    response: Mapped[str | None] = mapped_column(FreeText())
    __table_args__ = (Index("ix_workflow_approvals_workflow_run_id_created_at_id", "workflow_run_id", "created_at", "id"),)
    run: Mapped[WorkflowRunRow | None] = relationship(
        lambda: WorkflowRunRow,
        viewonly=True,
        primaryjoin=lambda: WorkflowRunRow.id == foreign(WorkflowApprovalRow.workflow_run_id),
    )


class WorkflowEffectRow(base.Base):
    """The result of a run's side effect, under the caller's key."""

    __tablename__ = "workflow_effects"
    run_id: Mapped[str] = mapped_column(
        Label(), ForeignKey(f"{base.SCHEMA_TOKEN}.workflow_runs.id", ondelete="CASCADE"), primary_key=True
    )
    key: Mapped[str] = mapped_column(Label(), primary_key=True)
    state: Mapped[EffectState] = mapped_column(EnumText(EffectState))
    attempts: Mapped[int] = mapped_column(Int64())
    input_digest: Mapped[str] = mapped_column(Label())
    begun_at: Mapped[datetime] = mapped_column(IsoMs())
    ended_at: Mapped[datetime | None] = mapped_column(IsoMs())
    error: Mapped[str | None] = mapped_column(FreeText())
    result: Mapped[Any | None] = mapped_column(Json())


class WorkflowSignalRow(base.Base):
    """What somebody told a run, in the order of `seq`, until the run takes it and afterwards."""

    __tablename__ = "workflow_signals"
    run_id: Mapped[str] = mapped_column(
        Label(), ForeignKey(f"{base.SCHEMA_TOKEN}.workflow_runs.id", ondelete="CASCADE"), primary_key=True
    )
    seq: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(Label())
    timed_out: Mapped[bool] = mapped_column(Bool())
    sent_at: Mapped[datetime] = mapped_column(IsoMs())
    taken_at: Mapped[datetime | None] = mapped_column(IsoMs())
    idempotency_key: Mapped[str | None] = mapped_column(Label())
    payload: Mapped[Any | None] = mapped_column(Json())


class WorkflowWaitRow(base.Base):
    """The signal that a paused run waits for."""

    __tablename__ = "workflow_waits"
    run_id: Mapped[str] = mapped_column(
        Label(), ForeignKey(f"{base.SCHEMA_TOKEN}.workflow_runs.id", ondelete="CASCADE"), primary_key=True
    )
    name: Mapped[str] = mapped_column(Label())
    since: Mapped[datetime] = mapped_column(IsoMs())
    expires_at: Mapped[datetime | None] = mapped_column(IsoMs())


class CronOverrideRow(base.Base):
    """What an operator changed about one schedule; no row means the defaults."""

    __tablename__ = "cron_overrides"
    name: Mapped[str] = mapped_column(Label(), primary_key=True)
    enabled: Mapped[bool] = mapped_column(Bool(), server_default=base.flag_default(True))
    schedule: Mapped[str | None] = mapped_column(Label())
    updated_at: Mapped[datetime] = mapped_column(IsoMs())
    updated_by: Mapped[str | None] = mapped_column(Label())


class WorkflowOverrideRow(base.Base):
    """One workflow's switch; no row means enabled."""

    __tablename__ = "workflow_overrides"
    name: Mapped[str] = mapped_column(Label(), primary_key=True)
    enabled: Mapped[bool] = mapped_column(Bool(), server_default=base.flag_default(True))
    updated_at: Mapped[datetime] = mapped_column(IsoMs())
    updated_by: Mapped[str | None] = mapped_column(Label())


class WorkflowScheduleRow(base.Base):
    """When runs of a workflow are queued. `fires_by` is the expression that `next_fire_at` follows: its own, or an override's."""

    __tablename__ = "workflow_schedules"
    name: Mapped[str] = mapped_column(Label(), primary_key=True)
    workflow_name: Mapped[str] = mapped_column(Label())
    cron: Mapped[str] = mapped_column(Label())
    timezone: Mapped[str] = mapped_column(Label())
    next_fire_at: Mapped[datetime | None] = mapped_column(IsoMs())
    last_fire_at: Mapped[datetime | None] = mapped_column(IsoMs())
    fires_by: Mapped[str] = mapped_column(Label())
    enabled: Mapped[bool] = mapped_column(Bool(), server_default=base.flag_default(True))
    catch_up: Mapped[CatchUp] = mapped_column(EnumText(CatchUp), server_default=CatchUp.ONE.value)
    updated_at: Mapped[datetime] = mapped_column(IsoMs())
    context: Mapped[Any | None] = mapped_column(Json(dict))


class WorkflowLimitRow(base.Base):
    """How many runs of a workflow, or with one concurrency key, may run at once, and be claimed in a period."""

    __tablename__ = "workflow_limits"
    key: Mapped[str] = mapped_column(Label(), primary_key=True)
    concurrency: Mapped[int | None] = mapped_column(Int64())
    rate: Mapped[int | None] = mapped_column(Int64())
    per_ms: Mapped[int | None] = mapped_column(Int64())
    updated_at: Mapped[datetime] = mapped_column(IsoMs())


class WorkflowStartRow(base.Base):
    """One of the last claims under a limit with a rate, numbered by `seq`; as many are kept as the rate allows in a period."""

    __tablename__ = "workflow_starts"
    key: Mapped[str] = mapped_column(
        Label(), ForeignKey(f"{base.SCHEMA_TOKEN}.workflow_limits.key", ondelete="CASCADE"), primary_key=True
    )
    seq: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    at_ms: Mapped[int] = mapped_column(Int64())
    __table_args__ = (base.ONE_TREE,)


runs = base.table_of(WorkflowRunRow)
executions = base.table_of(ExecutionRow)
approvals = base.table_of(WorkflowApprovalRow)
effects = base.table_of(WorkflowEffectRow)
signals = base.table_of(WorkflowSignalRow)
waits = base.table_of(WorkflowWaitRow)
cron_overrides = base.table_of(CronOverrideRow)
workflow_overrides = base.table_of(WorkflowOverrideRow)
schedules = base.table_of(WorkflowScheduleRow)
limits = base.table_of(WorkflowLimitRow)
starts = base.table_of(WorkflowStartRow)
_used = executions.c
USED_TOKENS = whole_total(_used.input_tokens, _used.output_tokens, _used.cache_read_input_tokens)
"""All tokens of executions, wherever totals are shown: input, output and cache reads, not cache writes."""


def queued_since(table: FromClause) -> ColumnElement[Any]:
    """The instant from which a run waits in the queue. Every index and query has to say it in these words."""
    return func.coalesce(table.c.queued_at, table.c.started_at)


def claim_order(found: FromClause) -> tuple[ColumnElement[Any], ...]:
    """The order in which queued runs are claimed: of a table of runs, or of what a query found of one, with `since`."""
    since = found.c.since if "since" in found.c else queued_since(found)
    return found.c.priority.desc(), since, found.c.id


def key_group(table: FromClause) -> ColumnElement[Any]:
    """The concurrency key of a run, empty without one. Every index and query has to say it in these words."""
    return func.coalesce(table.c.concurrency_key, literal_column("''"))


# One index per filter of runs.list, each in the order of the list: it costs the same at a thousand rows and at a million.
_newest = (runs.c.started_at.desc(), runs.c.id.desc())
for _name, _columns in {
    "ix_workflow_runs": (),
    "ix_workflow_runs_workflow_name": (runs.c.workflow_name,),
    "ix_workflow_runs_status": (runs.c.status,),
    "ix_workflow_runs_workflow_name_status": (runs.c.workflow_name, runs.c.status),
    "ix_workflow_runs_trigger_id": (runs.c.trigger_id,),
}.items():
    base.list_index(_name, *_columns, at=runs.c.started_at, id=runs.c.id)
Index("ix_executions_newest", executions.c.started_at.desc(), executions.c.id.desc())

# Values are literals here and in queries: a partial index serves only a query whose text implies its condition.
IS_LEASED = base.predicate("lease_expires_at IS NOT NULL")
IS_UNFINISHED = base.predicate("finished_at IS NULL")
HAS_KEY = base.predicate("idempotency_key IS NOT NULL")
_UNFINISHED = f"status IN ({', '.join(repr(str(status)) for status in UNFINISHED)})"
IS_UNFINISHED_RUN = base.predicate(_UNFINISHED)
IS_ONLY_RUN = base.predicate(f"unique_trigger_id IS NOT NULL AND {_UNFINISHED}")
IS_CHILD = base.predicate("parent_run_id IS NOT NULL")
IS_UNFINISHED_CHILD = base.predicate(f"parent_run_id IS NOT NULL AND {_UNFINISHED}")
IS_UNTAKEN = base.predicate("taken_at IS NULL")
IS_EXPIRING = base.predicate("expires_at IS NOT NULL")
# `|| ''` keeps SQLite off the index of all statuses, which has another order
IS_READY = base.predicate(f"status || '' = '{RunStatus.QUEUED}' AND not_before IS NULL")
IS_DELAYED = base.predicate(f"status || '' = '{RunStatus.QUEUED}' AND not_before IS NOT NULL")
IS_RUNNING = base.predicate(f"status || '' = '{RunStatus.RUNNING}'")
IS_RUNNING_UNDER_KEY = base.predicate(f"status || '' = '{RunStatus.RUNNING}' AND concurrency_key IS NOT NULL")
HAS_FAILURE_KIND = base.predicate("failure_kind IS NOT NULL")
IS_PENDING = base.predicate(f"status = '{ApprovalStatus.PENDING}'")
IS_EXPIRING_GATE = base.predicate(f"status = '{ApprovalStatus.PENDING}' AND expires_at IS NOT NULL")
base.file_index("idx_workflow_runs_trigger", runs.c.trigger_id, runs.c.status)  # as published
base.server_index("ix_workflow_runs_trigger_id_unfinished", runs.c.trigger_id, where=IS_UNFINISHED_RUN)
base.partial_index("ix_workflow_runs_leased", runs.c.lease_expires_at, where=IS_LEASED)
base.partial_index("ix_workflow_runs_idempotency_key", runs.c.workflow_name, runs.c.idempotency_key, where=HAS_KEY, unique=True)
base.partial_index(
    "ix_workflow_runs_unique_trigger", runs.c.workflow_name, runs.c.unique_trigger_id, where=IS_ONLY_RUN, unique=True
)
base.partial_index("ix_workflow_runs_ready", *claim_order(runs), where=IS_READY)
base.partial_index("ix_workflow_runs_workflow_name_ready", runs.c.workflow_name, *claim_order(runs), where=IS_READY)
base.partial_index("ix_workflow_runs_key_group_ready", runs.c.workflow_name, key_group(runs), *claim_order(runs), where=IS_READY)
base.partial_index(
    "ix_workflow_runs_key_group_delayed", runs.c.workflow_name, key_group(runs), runs.c.not_before, where=IS_DELAYED
)
base.partial_index("ix_workflow_runs_running_of_workflow", runs.c.workflow_name, where=IS_RUNNING)
base.partial_index("ix_workflow_runs_running_under_key", runs.c.concurrency_key, where=IS_RUNNING_UNDER_KEY)
base.partial_index("ix_workflow_runs_delayed", runs.c.not_before, where=IS_DELAYED)
base.partial_index("ix_workflow_runs_failure_kind_newest", runs.c.failure_kind, *_newest, where=HAS_FAILURE_KIND)
base.partial_index("ix_workflow_runs_parent_run_id_newest", runs.c.parent_run_id, *_newest, where=IS_CHILD)
base.partial_index("ix_workflow_runs_unfinished_children", runs.c.parent_run_id, where=IS_UNFINISHED_CHILD)
base.partial_index("ix_executions_idempotency_key", executions.c.idempotency_key, where=HAS_KEY, unique=True)
base.partial_index(
    "ix_workflow_approvals_idempotency_key", approvals.c.workflow_run_id, approvals.c.idempotency_key, where=HAS_KEY, unique=True
)
base.partial_index("ix_executions_unfinished", executions.c.trigger_id, where=IS_UNFINISHED)
base.partial_index("ix_workflow_approvals_pending", approvals.c.created_at, approvals.c.id, where=IS_PENDING)
base.partial_index("ix_workflow_approvals_expiring", approvals.c.expires_at, approvals.c.id, where=IS_EXPIRING_GATE)

base.partial_index("ix_workflow_signals_untaken", signals.c.run_id, signals.c.name, signals.c.seq, where=IS_UNTAKEN)
base.partial_index("ix_workflow_signals_idempotency_key", signals.c.run_id, signals.c.idempotency_key, where=HAS_KEY, unique=True)
base.partial_index("ix_workflow_waits_expiring", waits.c.expires_at, where=IS_EXPIRING)

base.set_for(runs, fill_percent=85)  # what a run's phases and contexts change is then written beside the old version

STREAMS = Streams("workflow", shared="workflows")
STREAMS.over(runs)
STREAMS.by("workflow_run_id", executions, approvals)
STREAMS.unowned(cron_overrides, workflow_overrides, limits)
STREAMS.always_shared(schedules)  # although a fire also writes into the streams of the runs that it queues
starts.info["unlogged"] = True  # what was claimed in the last period is of no use later
