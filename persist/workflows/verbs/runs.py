"""Workflow runs: creating, listing, and every change from dispatch to end."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import select, update

from persist.db.statements.prepared import Statement, among, param
from persist.db.transactions.repository import Repository, reads, writes
from persist.db.values.arguments import check_choice, check_count, check_flag, optional_count, optional_label
from persist.db.values.json import Json
from persist.db.values.pages import Page
from persist.workflows.models import runs
from persist.workflows.schemas import Lease, RunRow, RunStatus, WorkflowRun, WorkflowRunSummary
from persist.workflows.storage.gates import check_gate
from persist.workflows.storage.payloads import context_of, small_label
from persist.workflows.storage.run_rows import COLUMNS, check_hold, find_run, get_run, held_run, run_value
from persist.workflows.transitions import TERMINAL, allowed
from persist.workflows.verbs import completing, creating, leases, progress, recovery, run_lists
from persist.workflows.verbs.finishing import cancel_run, finish

List = list
_R = runs.c
_id = param("row_id")
_BY_TRIGGER = Statement(
    select(*COLUMNS)
    .where(_R.trigger_id == param("trigger_id"), among(_R.status, sorted(set(RunStatus) - TERMINAL)))
    .order_by(_R.started_at.desc(), _R.id.desc())
    .limit(1)
)
_HAS_TRIGGER = Statement(select(_R.id).where(_R.trigger_id == param("trigger_id")).limit(1))
_SET_STATUS = Statement(update(runs).where(_R.id == _id).values(status=param("to"), updated_at=param("at")))


class Runs(Repository):
    """`tx.workflows.runs`. Verbs that return a bool return False for an unknown run or a status that does not allow them."""

    @writes
    def create(
        self,
        workflow_name: str,
        *,
        trigger_id: str,
        current_phase: str,
        repo: str | None = None,
        issue_number: int | None = None,
        context: Json = None,
        status: str = "running",
        max_restarts: int = 3,
        id: str | None = None,
        idempotency_key: str | None = None,
        unique_trigger: bool = False,
        if_exists: Literal["return", "conflict"] = "return",
    ) -> WorkflowRun:
        """Create a run. `context` is an object that never changes again except for its `error`.

        Of all calls for a workflow with one `idempotency_key` the first creates the run, the others return it. With
        `unique_trigger` a run of the workflow and trigger that has not ended is returned instead of creating a second one.
        `if_exists="conflict"` raises Conflict in both cases. Raises Conflict if the id is taken.
        """
        work = self._work
        once = creating.Once.of(idempotency_key, unique_trigger=unique_trigger, if_exists=if_exists)
        now = work.now()
        known = check_choice("status", status, RunStatus)
        run_id = work.runtime.ids.mint("run") if id is None else work.label("id", id)
        fields: dict[str, Any] = {
            **dict.fromkeys(WorkflowRun.model_fields),
            "id": run_id,
            "workflow_name": work.label("workflow_name", workflow_name),
            "trigger_id": work.label("trigger_id", trigger_id),
            "repo": optional_label("repo", repo),
            "issue_number": optional_count("issue_number", issue_number),
            "current_phase": small_label(work, "current_phase", current_phase),
            "status": known,
            "restart_count": 0,
            "max_restarts": check_count("max_restarts", max_restarts),
            "lease_token": 0,
            "started_at": now,
            "updated_at": now,
            "finished_at": now if known in TERMINAL else None,
            "phase_history": [],
            "idempotency_key": once.key,
            "unique_trigger_id": trigger_id if once.unique_trigger else None,
            "context": context_of(work, context),
        }
        return creating.create(work, fields, once)

    @reads
    def get(self, id: str) -> WorkflowRun:
        """The run with all columns. Raises NotFound."""
        return get_run(self._work, id)

    @reads
    def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
        workflow_name: str | None = None,
        trigger_id: str | None = None,
        since: datetime | None = None,
        limit: int = 20,
        after: str | None = None,
    ) -> Page[WorkflowRunSummary]:
        """Runs, newest started first, without their blobs; `since` is inclusive, no status means every status.

        Pass `cursor` as `after` for the next page. Totals: `count`.
        """
        filters = run_lists.Filters.of(self._work, status=status, workflow_name=workflow_name, trigger_id=trigger_id, since=since)
        return run_lists.page(self._work, filters, limit, after, run_lists.summary_value)

    @reads
    def list_rows(
        self,
        *,
        status: str | Sequence[str] | None = None,
        workflow_name: str | None = None,
        trigger_id: str | None = None,
        since: datetime | None = None,
        limit: int = 20,
        after: str | None = None,
    ) -> Page[RunRow]:
        """The page of `list` as named tuples, which cost less to make; cursors of both verbs are interchangeable."""
        filters = run_lists.Filters.of(self._work, status=status, workflow_name=workflow_name, trigger_id=trigger_id, since=since)
        return run_lists.page(self._work, filters, limit, after, RunRow._make)

    @reads
    def count(
        self, *, status: str | Sequence[str] | None = None, workflow_name: str | None = None, since: datetime | None = None
    ) -> int:
        """How many runs meet the filters of `list`."""
        return run_lists.count(
            self._work, run_lists.Filters.of(self._work, status=status, workflow_name=workflow_name, since=since)
        )

    @reads
    def list_active(self) -> List[WorkflowRunSummary]:
        """Every run that is running or paused, newest first."""
        return [run_lists.summary_value(row) for row in self._work.rows(run_lists.ACTIVE_RUNS)]

    @reads
    def list_queued(self) -> List[WorkflowRunSummary]:
        """Every run that waits to be admitted or claimed, oldest first."""
        return [run_lists.summary_value(row) for row in self._work.rows(run_lists.QUEUED_RUNS)]

    @reads
    def distinct_names(self) -> List[str]:
        """Every workflow name that has runs, sorted."""
        return [name for (name,) in self._work.rows(run_lists.NAMES)]

    @reads
    def get_by_trigger(self, trigger_id: str) -> WorkflowRun | None:
        """The newest run of the trigger that has not ended."""
        row = self._work.row(_BY_TRIGGER, trigger_id=self._work.label("trigger_id", trigger_id))
        return None if row is None else run_value(row)

    @reads
    def has_run_for_trigger(self, trigger_id: str) -> bool:
        """Whether the trigger ever had a run, of whatever status."""
        return self._work.row(_HAS_TRIGGER, trigger_id=self._work.label("trigger_id", trigger_id)) is not None

    @writes
    def append_phase(self, id: str, phase: str, entry: Json = None, *, lease: Lease | None = None) -> WorkflowRun:
        """Append `{"phase", "timestamp", **entry}` to the history; the phase becomes the current one."""
        return progress.append_phase(self._work, id, phase, entry, lease)

    @writes
    def merge_scratch(self, id: str, patch: Mapping[str, Json], *, lease: Lease | None = None) -> WorkflowRun:
        """Set the patch's keys in the run's scratch; other keys stay, and None is a value like any other."""
        return progress.merge_scratch(self._work, id, patch, lease)

    @writes
    def update_node_status(self, id: str, node: str, status: Json, *, lease: Lease | None = None) -> WorkflowRun:
        """Set one node's status; those of other nodes stay."""
        return progress.set_node_status(self._work, id, node, status, lease)

    @writes
    def finish(
        self,
        id: str,
        status: Literal["succeeded", "failed"],
        *,
        error: str | None = None,
        terminal_marker: tuple[str, Json] | None = None,
        lease: Lease | None = None,
    ) -> WorkflowRun:
        """End a run. `error` becomes `context.error`; the marker (phase, entry) joins the history.

        Raises TransitionError if ended.
        """
        return finish(self._work, id, status, error, terminal_marker, lease)

    @writes
    def cancel(self, id: str, *, reason: str | None = None) -> bool:
        """Cancel the run, even if a worker holds it; the reason becomes `context.error`."""
        return cancel_run(self._work, id, reason, frozenset(RunStatus) - TERMINAL)

    @writes
    def expire_queued(self, id: str, reason: str) -> bool:
        """queued -> cancelled, with the reason in `context.error`: it waited too long."""
        return cancel_run(self._work, id, self._work.body("reason", reason), frozenset({RunStatus.QUEUED}))

    @writes
    def pause(self, id: str, *, lease: Lease | None = None) -> bool:
        """running -> paused. A worker that pauses a run then releases it."""
        work = self._work
        run = find_run(work, id, lock=True)
        if run is None:
            return False
        check_hold(run, lease, work.now())
        if run.status != RunStatus.RUNNING:
            return False
        with work.batch(last=True) as batch:
            batch.run(_SET_STATUS, row_id=id, to=RunStatus.PAUSED, at=work.now())
        return True

    @writes
    def resume(self, id: str, *, force: bool = False) -> bool:
        """paused -> running. A run that workers claim waits for a worker, unless its worker still holds it.

        Raises Conflict while a gate of the run is pending; with `force` the run continues, and its gates are rejected without a
        name.
        """
        walk_past = check_flag("force", force)
        run, gate = leases.find_with_gate(self._work, id)
        if run is None or run.status != RunStatus.PAUSED:
            return False
        if not walk_past:
            check_gate(run, gate)
        leases.resume(self._work, run, force=walk_past)
        return True

    @writes
    def admit(self, id: str) -> bool:
        """queued -> running, for the caller to run; `started_at` does not change."""
        run = find_run(self._work, id, lock=True)
        if run is None or run.status != RunStatus.QUEUED:
            return False
        with self._work.batch(last=True) as batch:
            batch.run(_SET_STATUS, row_id=id, to=RunStatus.RUNNING, at=self._work.now())
        return True

    @writes
    def requeue(self, id: str) -> bool:
        """running -> queued; unfinished executions are failed as stale. A run that is queued already gets a new `updated_at`."""
        work = self._work
        run = find_run(work, id, lock=True)
        if run is None or run.status not in (RunStatus.RUNNING, RunStatus.QUEUED):
            return False
        check_hold(run, None, work.now())
        leases.requeue(work, run)
        return True

    @writes
    def restart(self, id: str) -> bool:
        """failed or cancelled -> running. A person asked for it, so `max_restarts` is increased where necessary.

        Context (but for its error), scratch and history stay; `restart_count` grows by one.
        """
        run = find_run(self._work, id, lock=True)
        if run is None or run.status not in TERMINAL or not allowed(run.status, RunStatus.RUNNING):
            return False
        recovery.restart(self._work, run)
        return True

    @writes
    def increment_restart_count(self, id: str) -> int:
        """Count one more restart. Raises Conflict past the run's cap."""
        return recovery.increment(self._work, held_run(self._work, id, None))

    @writes
    def recover_interrupted(self) -> tuple[List[WorkflowRun], List[WorkflowRun]]:
        """After a crash, at boot: (runs to dispatch again, runs that crashed once too often and failed).

        Concerns every running run that no worker holds. Its trigger's unfinished executions are failed as stale, and its
        `restart_count` grows; phases that are done are skipped by `executions.should_run`. Paused runs stay; queued ones
        are stamped as updated now.
        """
        return recovery.recover(self._work)

    @writes
    def claim(self, worker: str, *, lease: timedelta, workflow_name: str | None = None) -> Lease | None:
        """Claim a run for the time `lease`; None if there is none to claim.

        First comes a running run that no worker holds: its worker died, or it was resumed or restarted. Then comes the oldest
        queued one. Many workers may claim at once; each run has one. A dead worker's run has its executions failed as stale and
        counts as restarted; at its cap it fails, and the next one is claimed.
        """
        return leases.claim(self._work, worker, lease, workflow_name)

    @reads
    def held_by(self, worker: str) -> List[Lease]:
        """The unexpired leases that the worker holds, the run started first coming first.

        For a worker that was cancelled or restarted after a claim committed, before it received the lease.
        """
        return leases.held_by(self._work, worker)

    @writes
    def renew(self, lease: Lease, *, lease_for: timedelta) -> Lease:
        """Extend the lease to `lease_for` from now. Raises LeaseLost."""
        return leases.renew(self._work, lease, lease_for)

    @writes
    def complete(self, lease: Lease) -> WorkflowRun:
        """End the work on a run: a running one succeeds, and one that was paused is released and waits for `resume`.

        Raises LeaseLost. A run that the worker has ended itself stays as it is.
        """
        return completing.complete(self._work, lease)

    @writes
    def release(self, lease: Lease) -> None:
        """Release the run: a running one returns to the queue, a paused one waits for `resume`. Raises LeaseLost.

        Unfinished executions are failed as stale.
        """
        leases.release(self._work, lease)
