"""Values and vocabularies of workflows, with the fields of Last Light's state (docs/designs.md)."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from persist.db.values.frozen import Value
from persist.errors import TransitionError


class JoinUntil(StrEnum):
    """What a run that joins its children waits for: all of them have ended, or one has failed or was cancelled."""

    ALL = "all"
    FIRST_FAILURE = "first_failure"


class OnExpiry(StrEnum):
    """What happens to a gate that nobody answers in time, and to its paused run.

    rejected   the gate is rejected, and the run fails with the failure kind "expired"
    approved   the gate is approved, and the run goes on
    resumed    the gate is rejected, and the run goes on
    """

    REJECTED = "rejected"
    APPROVED = "approved"
    RESUMED = "resumed"


class Children(Value):
    """How many children a run has, by their status. A status that none of them has is left out."""

    total: int
    by_status: dict[str, int]

    @property
    def failed(self) -> int:
        """How many failed or were cancelled."""
        return self.by_status.get("failed", 0) + self.by_status.get("cancelled", 0)


class FamilyTotals(Value):
    """The total cost of a run and all its descendants, and the number of runs by status. Token sums stop at 2**63-1."""

    run_id: str
    runs: int
    by_status: dict[str, int]
    executions: int
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    total_tokens: int
    """Input, output and cache-read tokens; cache writes are not counted."""
    cost_usd: float


WORKFLOW_PREFIX = "workflow:"
"""What the key of a limit on all runs of a workflow begins with; the name of the workflow follows."""
ANY_WORKFLOW = ""
"""What idle workers are told in place of a workflow's name, where runs of any workflow may have become claimable."""


class Limit(Value):
    """A row of workflow_limits: how many runs of a workflow, or with one concurrency key, run at once and start in a period."""

    key: str
    concurrency: int | None
    """How many may run at once; None does not limit that."""
    rate: int | None
    """How many may start within `per`."""
    per: timedelta | None
    updated_at: datetime


class CronOverride(Value):
    """A row of cron_overrides: what an operator changed about a schedule."""

    name: str
    enabled: bool
    schedule: str | None
    updated_at: datetime
    updated_by: str | None


class WorkflowOverride(Value):
    """A row of workflow_overrides: a workflow's switch."""

    name: str
    enabled: bool
    updated_at: datetime
    updated_by: str | None


class CatchUp(StrEnum):
    """What a schedule queues for fires that nobody asked for in time: a run for the last one, one for each, or none."""

    ONE = "one"
    ALL = "all"
    NONE = "none"


class Schedule(Value):
    """A row of workflow_schedules: when runs of a workflow are queued."""

    name: str
    workflow_name: str
    cron: str
    timezone: str
    next_fire_at: datetime | None
    """None if it never fires again."""
    last_fire_at: datetime | None
    fires_by: str
    """The expression that `next_fire_at` follows: `cron`, or that of an override."""
    enabled: bool
    catch_up: CatchUp
    updated_at: datetime
    context: dict[str, Any] | None


class RunStatus(StrEnum):
    """The status of a workflow run."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.PAUSED)
"""The statuses of runs that have not ended."""


class FailureKind(StrEnum):
    """Why a run failed or was cancelled.

    error      `finish` reported a failure
    rejected   a person rejected a gate
    restarts   the worker crashed once too often
    retries    every attempt failed
    expired    the run waited too long
    cancelled  `cancel` ended the run
    """

    ERROR = "error"
    REJECTED = "rejected"
    RESTARTS = "restarts"
    RETRIES = "retries"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class EffectState(StrEnum):
    """What is known of a side effect. `effects.begin` reports as unknown, which is not stored, an effect that never ended."""

    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class ApprovalStatus(StrEnum):
    """The status of a gate: pending, or how it was answered."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"


class ApprovalKind(StrEnum):
    """What answers a gate: a decision, or any free text."""

    APPROVE = "approve"
    REPLY = "reply"


class Outcome(StrEnum):
    """The outcome of an execution. A skipped or deferred one has not failed, although its `success` is False."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    DEFERRED = "deferred"
    FAILED = "failed"


class StopReason(StrEnum):
    """The stop reasons that say more than success or failure; an execution may carry any other text."""

    SKIPPED = "skipped"
    DEFERRED = "error_quota"


class WorkflowRunSummary(Value):
    """A run as lists show it: without its blobs, with the usage of its executions.

    The phase history has per entry its `phase`, `timestamp`, and `status` and `success` if these are short scalars.
    """

    id: str
    workflow_name: str
    trigger_id: str
    repo: str | None
    issue_number: int | None
    current_phase: str
    phase_history: list[Any]
    status: RunStatus
    restart_count: int
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    priority: int
    not_before: datetime | None
    attempt: int
    failure_kind: FailureKind | None
    parent_run_id: str | None
    total_tokens: int
    """Input, output and cache-read tokens of its executions; cache writes are not counted."""
    cost_usd: float


class RunRow(NamedTuple):
    """A WorkflowRunSummary as a named tuple with the same field names; cheaper for lists that are only passed on."""

    id: str
    workflow_name: str
    trigger_id: str
    repo: str | None
    issue_number: int | None
    current_phase: str
    phase_history: list[Any]
    status: RunStatus
    restart_count: int
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    priority: int
    not_before: datetime | None
    attempt: int
    failure_kind: FailureKind | None
    parent_run_id: str | None
    total_tokens: int
    cost_usd: float


class WorkflowRun(Value):
    """A row of workflow_runs with all columns."""

    id: str
    workflow_name: str
    trigger_id: str
    repo: str | None
    issue_number: int | None
    current_phase: str
    status: RunStatus
    restart_count: int
    max_restarts: int | None
    lease_owner: str | None
    lease_expires_at: datetime | None
    lease_token: int
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    idempotency_key: str | None
    priority: int
    """Runs of a higher one are claimed first."""
    queued_at: datetime | None
    """Since when it waits, or waited last, to be claimed: for a delayed run its `not_before`."""
    not_before: datetime | None
    """Until then a queued run is not claimed."""
    attempt: int
    """The number of the attempt that is under way or comes next, from 1. Only attempts that failed are counted."""
    max_attempts: int | None
    failure_kind: FailureKind | None
    last_error: str | None
    """The error of the last attempt that failed and was to be tried again."""
    parent_run_id: str | None
    """The run that it was created for, which may have been pruned since."""
    join_until: JoinUntil | None
    """What a paused run waits for, if it waits for its children."""
    concurrency_key: str | None
    """The key whose limit the run shares with other runs, of whatever workflow."""
    phase_history: list[Any]
    context: dict[str, Any] | None
    scratch: dict[str, Any] | None
    node_statuses: dict[str, Any] | None


class Lease(Value):
    """One worker's hold on a run until `expires_at` (store clock). If a run has two leases, the greater token is valid."""

    run_id: str
    worker: str
    token: int
    expires_at: datetime
    run: WorkflowRun
    """The run as it was when claimed or renewed."""


class Execution(Value):
    """A row of executions without its `output_text`: one phase, or one chat turn. `success` None means still running."""

    id: str
    trigger_type: str
    trigger_id: str
    skill: str
    repo: str | None
    issue_number: int | None
    started_at: datetime
    finished_at: datetime | None
    success: bool | None
    error: str | None
    turns: int | None
    duration_ms: int | None
    session_id: str | None
    cost_usd: float | None
    input_tokens: int | None
    cache_creation_input_tokens: int | None
    cache_read_input_tokens: int | None
    output_tokens: int | None
    api_duration_ms: int | None
    stop_reason: str | None
    workflow_run_id: str | None
    idempotency_key: str | None
    extension_status: Any

    @property
    def outcome(self) -> Outcome:
        """The outcome that `success` and `stop_reason` give together."""
        if self.finished_at is None:
            return Outcome.RUNNING
        if self.success:
            return Outcome.SUCCEEDED
        if self.stop_reason == StopReason.SKIPPED:
            return Outcome.SKIPPED
        return Outcome.DEFERRED if self.stop_reason == StopReason.DEFERRED else Outcome.FAILED


class ExecutionStats(Value):
    """Counts over all executions; `today` begins at midnight of the process's time zone."""

    total: int
    today: int
    running: int
    by_skill: dict[str, int]
    by_trigger: dict[str, int]
    """Executions by trigger type."""
    exact: bool = True
    """Whether every execution was counted for every number."""


class StatsBucket(Value):
    """One UTC day (`YYYY-MM-DD`) or hour (`YYYY-MM-DDTHH`) of executions, by the instant they started."""

    bucket: str
    total: int
    succeeded: int
    failed: int
    skipped: int
    deferred: int
    running: int
    input_tokens: int
    output_tokens: int
    total_tokens: int
    """Input, output and cache-read tokens."""
    cost_usd: float


class ChatThread(Value):
    """A summary of one chat's executions, by messaging session; the session's row may be gone."""

    session_id: str
    started_at: datetime
    last_activity_at: datetime
    turns: int
    total_tokens: int
    cost_usd: float
    last_message: str | None
    """The newest message of the assistant."""


class Approval(Value):
    """A row of workflow_approvals: one gate, resolved once."""

    id: str
    workflow_run_id: str
    gate: str
    summary: str
    status: ApprovalStatus
    kind: ApprovalKind
    requested_by: str | None
    responded_by: str | None
    response: str | None
    responded_at: datetime | None
    created_at: datetime
    idempotency_key: str | None
    expires_at: datetime | None
    on_expiry: OnExpiry | None
    """What happens to the gate and to its run if nobody answers until `expires_at`."""


class Phase(Value):
    """A phase of a run as `phases.begin` found it."""

    run_id: str
    name: str
    execution_id: str | None
    """The execution that was begun; None if the phase was done before."""
    output: str | None
    """The text that the phase left when it was done before."""

    @property
    def due(self) -> bool:
        """Whether the phase has to be done now."""
        return self.execution_id is not None


class Effect(Value):
    """A side effect of a run, and its outcome. `attempts` counts how often it was begun."""

    run_id: str
    key: str
    state: EffectState
    attempts: int
    begun_at: datetime
    ended_at: datetime | None
    error: str | None
    """Why it failed."""
    result: Any
    """What it returned, if it is done."""


class Signal(Value):
    """What somebody told a run. `seq` counts the signals of the run, from 1."""

    run_id: str
    seq: int
    name: str
    payload: Any
    timed_out: bool
    """Whether nobody sent it: the run waited for it as long as it said."""
    sent_at: datetime
    taken_at: datetime | None
    idempotency_key: str | None


# The table of allowed status transitions of a run. Pure.

_QUEUED, _RUNNING, _PAUSED = RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.PAUSED
_SUCCEEDED, _FAILED, _CANCELLED = RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED
TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    _QUEUED: frozenset({_RUNNING, _CANCELLED}),
    _RUNNING: frozenset({_PAUSED, _SUCCEEDED, _FAILED, _CANCELLED, _QUEUED}),
    _PAUSED: frozenset({_RUNNING, _SUCCEEDED, _FAILED, _CANCELLED}),
    _SUCCEEDED: frozenset(),
    _FAILED: frozenset({_RUNNING}),
    _CANCELLED: frozenset({_RUNNING}),
}
"""By status, the statuses that may follow. A failed or cancelled run returns to running only by `restart`."""
TERMINAL = frozenset({_SUCCEEDED, _FAILED, _CANCELLED})
ACTIVE = (_RUNNING, _PAUSED)
"""The statuses that `list_active` shows."""


def allowed(current: str, requested: RunStatus) -> bool:
    """Whether the requested status may follow; nothing may follow a status that this version does not know."""
    return requested in TRANSITIONS.get(current, frozenset())  # type: ignore[call-overload]  # a StrEnum is found by its text


def check_transition(run_id: str, current: str, requested: RunStatus) -> None:
    """Raises TransitionError unless the requested status may follow."""
    if not allowed(current, requested):
        raise TransitionError(f"workflow run {run_id!r}", str(current), str(requested))
