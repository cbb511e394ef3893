"""Creating a run, once: however often a webhook is delivered, and however many processes are told of it."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import select

from persist.db.expressions.upsert import insert_missing, taken
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice, check_count, check_flag, optional_label
from persist.db.values.clock import as_utc
from persist.errors import Conflict, InvalidValue, NotFound, named
from persist.workflows.models import IS_ONLY_RUN, runs
from persist.workflows.schemas import TERMINAL, WORKFLOW_PREFIX, FailureKind, RunStatus, WorkflowRun
from persist.workflows.storage.run_rows import RUN, announce_claimable

_R = runs.c
_NOTHING = dict.fromkeys(RUN.fields)
_INSERT = Statement(insert_missing(runs).returning(*RUN.columns))
_of_workflow = select(*RUN.columns).where(_R.workflow_name == param("workflow_name"))
_BY_KEY = Statement(_of_workflow.where(_R.idempotency_key == param("idempotency_key"), _R.idempotency_key.is_not(None)))
_ONLY_RUN = Statement(_of_workflow.where(_R.unique_trigger_id == param("unique_trigger_id"), IS_ONLY_RUN))
_HOLD_PARENT = Statement(select(_R.status).where(_R.id == param("row_id")).with_for_update(read=True, key_share=True))
"""A lock that hinders no other caller who creates a child, but a caller who cancels the parent with its descendants."""
_KINDS = {RunStatus.FAILED: FailureKind.ERROR, RunStatus.CANCELLED: FailureKind.CANCELLED}
_MAX_PRIORITY = 2**31 - 1
MAX_RESTARTS = 3
"""The restart cap of new runs by default."""
FIRST_PHASE = "start"
"""The phase of runs that a schedule queues."""
_ATTEMPTS = 5
"""How often an INSERT is tried that meets a run which has ended by the time it is looked for."""


def checked_key(key: str | None) -> str | None:
    """The concurrency key of a new run. Raises InvalidValue for one that names the limit of a workflow."""
    checked = optional_label("concurrency_key", key)
    if checked is not None and checked.startswith(WORKFLOW_PREFIX):
        raise InvalidValue(
            "concurrency_key", f"{WORKFLOW_PREFIX!r} begins the keys of workflows: a run has that of its own anyway."
        )
    return checked


class IfExists(StrEnum):
    """What `runs.create` does if the run is there already."""

    RETURN = "return"
    CONFLICT = "conflict"


class Uniqueness(NamedTuple):
    """The rules by which a run is created only once."""

    key: str | None
    unique_trigger: bool
    if_exists: IfExists

    @classmethod
    def of(cls, key: str | None, *, unique_trigger: bool, if_exists: str) -> "Uniqueness":
        """The checked arguments. Raises InvalidValue."""
        return cls(
            optional_label("idempotency_key", key),
            check_flag("unique_trigger", unique_trigger),
            check_choice("if_exists", if_exists, IfExists),
        )


class Turn(NamedTuple):
    """What decides when a run is claimed, and how often it is tried."""

    priority: int
    not_before: datetime | None
    max_attempts: int | None

    @classmethod
    def of(cls, priority: int, not_before: datetime | None, max_attempts: int | None) -> "Turn":
        """The checked arguments. Raises InvalidValue."""
        if type(priority) is not int or not -_MAX_PRIORITY <= priority <= _MAX_PRIORITY:
            raise InvalidValue("priority", f"expected a whole number from -{_MAX_PRIORITY} to {_MAX_PRIORITY}.")
        if max_attempts is not None and check_count("max_attempts", max_attempts) < 1:
            raise InvalidValue("max_attempts", "expected at least 1, or None: as often as `release` says.")
        due = None if not_before is None else as_utc("not_before", not_before)
        return cls(priority, due, max_attempts)

    def fields(self, status: RunStatus, now: datetime) -> dict[str, Any]:
        """The columns of a run that is created now. Raises InvalidValue if only a queued run could wait."""
        queued = status is RunStatus.QUEUED
        if self.not_before is not None and not queued:
            raise InvalidValue("not_before", f"only a queued run waits for its time, not one that is {status}.")
        since = now if self.not_before is None else max(now, self.not_before)
        return {**self._asdict(), "queued_at": since if queued else None, "attempt": 1, "failure_kind": _KINDS.get(status)}


def fresh(work: UnitOfWork, id: str | None) -> dict[str, Any]:
    """The columns of a new run that no caller chooses, and its id."""
    now = work.now()
    return {
        **_NOTHING,
        "id": work.runtime.ids.mint("run") if id is None else work.label("id", id),
        "restart_count": 0,
        "lease_token": 0,
        "started_at": now,
        "updated_at": now,
        "phase_history": [],
    }


def queue_once(work: UnitOfWork, workflow_name: str, trigger_id: str, key: str, context: dict[str, Any]) -> WorkflowRun | None:
    """Queue a run of the workflow; None if there is one with that idempotency key."""
    fields = {
        **fresh(work, None),
        "workflow_name": workflow_name,
        "trigger_id": trigger_id,
        "current_phase": FIRST_PHASE,
        "status": RunStatus.QUEUED,
        "max_restarts": MAX_RESTARTS,
        "idempotency_key": key,
        "unique_trigger_id": None,
        **Turn.of(0, None, None).fields(RunStatus.QUEUED, work.now()),
        "context": context,
    }
    inserted = work.returned(_INSERT, **fields)
    if inserted is None:
        return None
    run = RUN(inserted)
    announce_claimable(work, run)
    return run


def create(work: UnitOfWork, fields: Mapping[str, Any], once: Uniqueness, *, chosen: bool) -> WorkflowRun:
    """Insert the run, or return the one that the key or the trigger has already. Raises Conflict, and NotFound for its parent."""
    if fields["parent_run_id"] is not None and (refusal := _refusal_of_parent(work, fields["parent_run_id"])) is not None:
        replayed = _existing(work, fields, once)
        if replayed is None:
            raise refusal
        return replayed
    if chosen:
        work.refuse_former(runs, "workflow run", fields["id"])
    for _ in range(_ATTEMPTS):
        inserted = work.returned_last(_INSERT, **fields)
        if inserted is not None:
            run = RUN(inserted)
            if run.queued_at == fields["updated_at"]:  # else nobody may claim it yet
                announce_claimable(work, run)
            return run
        existing = _existing(work, fields, once)
        if existing is not None:
            return existing
        if not once.unique_trigger:
            break
    raise taken(_INSERT, "workflow run", fields["id"])


def _refusal_of_parent(work: UnitOfWork, id: str) -> Conflict | NotFound | None:
    """Why the run can have no more children, if it cannot; otherwise it is locked."""
    found = work.row(_HOLD_PARENT, row_id=id)
    if found is None:
        return NotFound("workflow run", id)
    if found[0] in TERMINAL:
        return Conflict(f"The workflow run {named(id)} has ended ({found[0]}): it cannot have another child.")
    return None


def _existing(work: UnitOfWork, fields: Mapping[str, Any], once: Uniqueness) -> WorkflowRun | None:
    name = fields["workflow_name"]
    found, why = None, ""
    if once.key is not None:
        found, why = work.row(_BY_KEY, workflow_name=name, idempotency_key=once.key), f"the idempotency key {named(once.key)}"
    if found is None and once.unique_trigger:
        trigger = fields["unique_trigger_id"]
        found, why = work.row(_ONLY_RUN, workflow_name=name, unique_trigger_id=trigger), f"the trigger {named(trigger)}"
    if found is None:
        return None
    run = RUN(found)
    if once.if_exists is IfExists.CONFLICT:
        raise Conflict(f"The workflow {named(name)} has the run {named(run.id)} for {why} already.", constraint="workflow_runs")
    if run.trigger_id != fields["trigger_id"]:
        raise Conflict(f"{why[0].upper()}{why[1:]} was used for another trigger.", constraint="ix_workflow_runs_idempotency_key")
    if fields["parent_run_id"] not in (None, run.parent_run_id):
        raise Conflict(f"{why[0].upper()}{why[1:]} was used for a run of another parent.", constraint="workflow_runs")
    return run
