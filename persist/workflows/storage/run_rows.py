"""The row of a run: reading and locking it, refusing writes that no lease covers, and closing gates that nobody answered."""

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import CTE, delete, null, select, update

from persist.db.changes.batch import Batch, Pending
from persist.db.dialects.interface import RUNS
from persist.db.expressions.upsert import insert_missing
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork, acting
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import check_choice
from persist.db.values.clock import as_utc, iso_ms
from persist.db.values.escaping import utf8_size
from persist.db.values.json import Json, encode
from persist.errors import Conflict, InvalidValue, LeaseLost, PayloadTooLarge, shown
from persist.workflows.models import IS_CHILD, IS_PENDING, IS_UNFINISHED_CHILD, approvals, runs, waits
from persist.workflows.schemas import (
    TERMINAL,
    Approval,
    ApprovalKind,
    ApprovalStatus,
    JoinUntil,
    Lease,
    OnExpiry,
    RunStatus,
    WorkflowRun,
)

_A = approvals.c
_of_run = _A.workflow_run_id == param("run_id")
OPEN_GATE = Statement(select(_A.id, _A.gate).where(_of_run, IS_PENDING).order_by(_A.created_at, _A.id).limit(1))
"""The oldest pending gate of a run, which is locked: (id, gate)."""
_close = (
    update(approvals)
    .where(_of_run, IS_PENDING)
    .values(status=ApprovalStatus.REJECTED, response=param("new_response"), responded_at=param("at"))
)
_CLOSE = Statement(_close)
_ended = select(runs.c.id).where(runs.c.id == param("run_id"), among(runs.c.status, sorted(TERMINAL)))
_CLOSE_OF_ENDED = Statement(_close.where(_ended.exists()))


def close_gates(work: UnitOfWork, batch: Batch, run_id: str, why: str) -> None:
    """Reject every pending gate of a locked run, without a name: people who look for pending approvals must not find it."""
    batch.run(_CLOSE, run_id=run_id, new_response=why, at=work.now())


def close_gates_of_ended(work: UnitOfWork, batch: Batch, run_id: str, why: str) -> None:
    """Reject every pending gate of a run, if the run has ended."""
    batch.run(_CLOSE_OF_ENDED, run_id=run_id, new_response=why, at=work.now())


def check_gate(run: WorkflowRun, found: Row | None) -> None:
    """Raises Conflict if a gate was found pending: a run cannot continue without an answer to it."""
    if found is not None:
        id, gate = found
        raise Conflict(
            f"The workflow run {run.id!r} waits at its gate {gate!r}: answer the approval {id!r}, or resume with force=True.",
            constraint="workflow_approvals",
        )


APPROVAL = Values(Approval, approvals)
INSERT = Statement(insert_missing(approvals).returning(*APPROVAL.columns))
GET = Statement(select(*APPROVAL.columns).where(_A.id == param("row_id")))
LOCK = Statement(select(*APPROVAL.columns).where(_A.id == param("row_id")).with_for_update())


def get_approval(work: UnitOfWork, id: str, *, lock: bool = False) -> Approval:
    """The approval. Raises NotFound."""
    return found_approval(work.row(LOCK if lock else GET, row_id=work.label("id", id)), id)


def found_approval(row: Row | None, id: str) -> Approval:
    """The approval in a row that was looked for. Raises NotFound."""
    return APPROVAL.found(row, "approval", id)


def checked_question(
    work: UnitOfWork,
    *,
    gate: str,
    summary: str,
    kind: str,
    requested_by: str | None,
    expires_at: datetime | None = None,
    on_expiry: str | None = None,
) -> dict[str, Any]:
    """The columns that say what a gate asks, and until when."""
    until = None if expires_at is None else as_utc("expires_at", expires_at)
    outcome = None if on_expiry is None else check_choice("on_expiry", on_expiry, OnExpiry)
    if until is None and outcome is not None:
        raise InvalidValue("on_expiry", "only a gate with `expires_at` expires.")
    return {
        "expires_at": until,
        "on_expiry": None if until is None else outcome or OnExpiry.REJECTED,
        "gate": work.label("gate", gate),
        "summary": work.body("summary", summary),
        "kind": check_choice("kind", kind, ApprovalKind),
        "requested_by": acting(work, "requested_by", requested_by),
    }


def insert_approval(
    work: UnitOfWork, batch: Batch, id: str | None, workflow_run_id: str, question: dict[str, Any]
) -> Pending[Row | None]:
    """Insert a pending approval; its row, None if the id is taken."""
    row_id = work.runtime.ids.mint("apr") if id is None else id
    stored = {"id": row_id, "workflow_run_id": workflow_run_id, "status": ApprovalStatus.PENDING, "created_at": work.now()}
    return batch.returned(INSERT, **{**dict.fromkeys(APPROVAL.fields), **question, **stored})


# Last Light's split rule (docs/designs.md): a run stores only small facts about its phases; large text is stored elsewhere.
#
# `scratch`, `context` and `node_statuses` are objects whose every value has a cap (`Settings.max_scratch_bytes`, of its JSON
# text); so has an entry of the phase history.

_ADVICE = "Keep large text in executions.set_output or in the session log, and only its id here."


def small(work: UnitOfWork, path: str, value: Json) -> Json:
    """A checked JSON value within the cap."""
    size, limit = utf8_size(encode(value, path, work.runtime.limits)), work.runtime.settings.max_scratch_bytes
    if size > limit:
        raise PayloadTooLarge(path, size, limit, advice=_ADVICE)
    return value


def small_label(work: UnitOfWork, path: str, value: object) -> str:
    """A checked name within the cap, since names are stored and listed together with their values."""
    name = work.label(path, value)
    small(work, path, name)
    return name


def small_values(work: UnitOfWork, path: str, value: object) -> dict[str, Any]:
    """A checked JSON object, each of its keys and values within the cap."""
    if not isinstance(value, Mapping):
        raise InvalidValue(path, "expected an object.")
    checked = work.json_object(path, value)
    if utf8_size(encode(checked, path, work.runtime.limits)) > work.runtime.settings.max_scratch_bytes:
        for key, one in checked.items():
            small(work, path, key)
            small(work, f"{path}.{key}", one)
    return checked


def context_of(work: UnitOfWork, value: Json) -> dict[str, Any] | None:
    """A run's checked context: an object or None."""
    return None if value is None else small_values(work, "context", value)


def history_item(work: UnitOfWork, phase: object, entry: Json, at: datetime) -> dict[str, Any]:
    """An item of the phase history: phase and instant, then the entry's fields (or "value" if the entry is no object)."""
    name = small_label(work, "phase", phase)
    small(work, "entry", entry)
    extra = {} if entry is None else dict(entry) if isinstance(entry, Mapping) else {"value": entry}
    if extra.get("phase", name) != name:
        raise InvalidValue("entry.phase", f"it says another phase than {shown(name)}.")
    return {"phase": name, "timestamp": iso_ms(at), **extra}


def history_with(work: UnitOfWork, history: list[Any], item: dict[str, Any]) -> Any:
    """The history with one more item. Raises PayloadTooLarge if it exceeds `max_history_bytes`."""
    longer = work.json("phase_history", [*history, item])
    size, limit = utf8_size(encode(longer, "phase_history", work.runtime.limits)), work.runtime.settings.max_history_bytes
    if size > limit:
        raise PayloadTooLarge("phase_history", size, limit, advice=_ADVICE)
    return longer


def with_error(
    work: UnitOfWork, context: dict[str, Any] | None, error: str | None, *, path: str = "error"
) -> dict[str, Any] | None:
    """The context with that error, the only change a context ever gets. An unreadable context stays unchanged."""
    if error is None:
        return context
    message = small(work, path, work.body(path, error))
    return context if is_unreadable(context) else {**(context or {}), "error": message}


def marker_of(marker: object) -> tuple[Any, Any]:
    """The marker, checked to be a (phase, entry) pair."""
    if not isinstance(marker, tuple | list) or len(marker) != 2:
        raise InvalidValue("marker", "expected a pair of phase and entry.")
    return marker[0], marker[1]


_R = runs.c
RUN = Values(WorkflowRun, runs)
GET_RUN = Statement(select(*RUN.columns).where(_R.id == param("row_id")))
LOCK_RUN = Statement(select(*RUN.columns).where(_R.id == param("row_id")).with_for_update())
_set_status = update(runs).where(_R.id == param("row_id")).values(status=param("to"), updated_at=param("at"))
NO_LEASE = {"lease_owner": null(), "lease_expires_at": null()}
"""The columns of a run that nobody holds."""
SET_STATUS, LET_GO = Statement(_set_status), Statement(_set_status.values(NO_LEASE))
"""SET_STATUS changes the status alone; after LET_GO the run's worker holds it no longer, either."""


def find_run(work: UnitOfWork, id: str) -> WorkflowRun | None:
    """The run, locked against other writers; None if there is none."""
    return RUN.optional(work.row(LOCK_RUN, row_id=work.label("id", id)))


def get_run(work: UnitOfWork, id: str, *, lock: bool = False) -> WorkflowRun:
    """The run, with `lock` locked against other writers. Raises NotFound if there is none."""
    return found_run(work.row(LOCK_RUN if lock else GET_RUN, row_id=work.label("id", id)), id)


def found_run(row: Row | None, id: str) -> WorkflowRun:
    """The run in a row that was looked for. Raises NotFound if there is none."""
    return RUN.found(row, "workflow run", id)


def written_run(row: Pending[Row | None]) -> WorkflowRun:
    """The run whose row a batch has read after it wrote it, under the row's lock."""
    assert row.result is not None
    return RUN(row.result)


def changed_run(work: UnitOfWork, statement: Statement, id: str, **values: Any) -> WorkflowRun:
    """Change a locked run as the last write of the verb; the run after that."""
    with work.batch(last=True) as batch:
        batch.run(statement, row_id=id, **values)
        row = batch.row(GET_RUN, row_id=id)
    return written_run(row)


def announce_claimable(work: UnitOfWork, run: WorkflowRun) -> None:
    """Wake idle workers after the commit: the run may be claimed."""
    if not is_unreadable(run.workflow_name):
        work.announce(RUNS, run.workflow_name)


def held_run(work: UnitOfWork, id: str, lease: Lease | None) -> WorkflowRun:
    """Lock and return the run for a write by this caller. Raises NotFound or LeaseLost."""
    run = get_run(work, id, lock=True)
    check_hold(run, lease, work.now())
    return run


def is_live(run: WorkflowRun, now: datetime) -> bool:
    """Whether a worker holds the run with a lease that has not expired."""
    return run.lease_owner is not None and run.lease_expires_at is not None and run.lease_expires_at > now


def given_lease(lease: object) -> Lease:
    """The argument, checked to be a lease."""
    if not isinstance(lease, Lease):
        raise InvalidValue("lease", f"expected a Lease, got {type(lease).__name__}.")
    return lease


def check_hold(run: WorkflowRun, lease: Lease | None, now: datetime) -> None:
    """Raises LeaseLost for a write under a lease that is over, or without one on a run that a worker holds.

    An unexpired lease on a run that has ended passes: the transition table then decides about the write.
    """
    if lease is None:
        if is_live(run, now):
            raise LeaseLost(run.id, None, f"worker {run.lease_owner!r} holds it; write with its lease, or cancel the run.")
        return
    if given_lease(lease).run_id != run.id:
        raise InvalidValue("lease", f"it is a lease on workflow run {lease.run_id!r}, not on {run.id!r}.")
    if lease.token != run.lease_token:
        raise LeaseLost(run.id, lease.token, "the lease is lost: the run was claimed again or cancelled since.")
    if run.status in TERMINAL and lease.expires_at > now:
        return
    if run.lease_owner != lease.worker or not is_live(run, now):
        raise LeaseLost(run.id, lease.token, "the lease has expired or was released; claim the run again.")


# A paused run goes on: with the worker that still holds it, otherwise any worker may claim it.

_resume = (
    update(runs)
    .where(_R.id == param("row_id"))
    .values(
        status=RunStatus.RUNNING,
        lease_owner=param("owner"),
        lease_expires_at=param("until"),
        join_until=null(),
        updated_at=param("at"),
    )
)
RESUME = Statement(_resume)
END_WAIT = Statement(delete(waits).where(waits.c.run_id == param("run_id")))
"""A run no longer waits for a signal."""
_RESUME_UNGATED = Statement(_resume.where(~OPEN_GATE.statement.exists()))  # type: ignore[attr-defined]  # it is a select


def resumption(run: WorkflowRun, now: datetime) -> dict[str, Any]:
    """The values that resume a locked run."""
    live = is_live(run, now)
    owner, until = (run.lease_owner, run.lease_expires_at) if live else (None, handed_over_at(run, now))
    return {"row_id": run.id, "owner": owner, "until": until, "at": now}


def resume_ungated(batch: Batch, values: dict[str, Any]) -> None:
    """Resume a locked run with the values of `resumption`, unless it has a pending gate."""
    batch.run(_RESUME_UNGATED, **values, run_id=values["row_id"])


def handed_over_at(run: WorkflowRun, now: datetime) -> datetime | None:
    """The lease's expiry for a run without an owner: any worker may claim it from now on, if workers ever claimed it."""
    return now if run.lease_token else None


# Parents and children: how the end of a run lets its parent go on.
#
# Rows are locked from the children to the parents, by everything that ends runs: a child is locked first, and then its parent, in
# a statement of its own. Later statements see every committed end of a child: if two children end at the same instant, the second
# finds that no child is left. A parent is locked without hindering the creation of children.
#
# The SQL that walks from a run to all its descendants says UNION, which keeps each row once: that ends the walk even where
# another program has made a run its own ancestor.


def family(*columns: Any, orphans: bool) -> CTE:
    """The run `root` and its descendants, once each; with `orphans`, only a lost root's descendants. `columns`: beside the id."""
    first = (IS_CHILD, _R.parent_run_id == param("root")) if orphans else (_R.id == param("root"),)
    tree = select(_R.id, *columns).where(*first).cte("family", recursive=True)
    return tree.union(select(_R.id, *columns).where(IS_CHILD, _R.parent_run_id == tree.c.id))


def _members(*, orphans: bool) -> Statement:
    tree = family(_R.parent_run_id.label("parent"), orphans=orphans)
    return Statement(select(tree.c.id, tree.c.parent))


_MEMBERS = {orphans: _members(orphans=orphans) for orphans in (False, True)}


def first_look(work: UnitOfWork, root: str) -> tuple[Statement, list[tuple[str, str | None]]]:
    """The statement that finds the run, unless it is gone, and its descendants; and what it found: ids with those of parents."""
    for orphans in (False, True):
        if rows := work.rows(_MEMBERS[orphans], root=root):
            break
    return _MEMBERS[orphans], [(id, parent) for id, parent in rows]


def deepest_first(found: list[tuple[str, str | None]], root: str) -> list[str]:
    """The ids of members, those furthest from the root first, and by id where they are equally far."""
    children: dict[str | None, list[str]] = {}
    for id, parent in found:
        children.setdefault(parent, []).append(id)
    ordered, level, seen = [], {root}, {root}
    while level:
        ordered.append(sorted(level))
        level = {child for id in level for child in children.get(id, ()) if child not in seen}
        seen |= level
    present = {id for id, _ in found}
    return [id for ids in reversed(ordered) for id in ids if id in present]


log = logging.getLogger("persist")
_FAILED = (RunStatus.FAILED, RunStatus.CANCELLED)
_LOCK_PARENT = Statement(select(*RUN.columns).where(_R.id == param("row_id")).with_for_update(key_share=True))
_ANY_UNFINISHED = Statement(select(_R.id).where(IS_UNFINISHED_CHILD, _R.parent_run_id == param("parent")).limit(1))


def tell_parents(work: UnitOfWork, ended: Iterable[WorkflowRun]) -> None:
    """Let parents go on that waited for runs ended here, in the order of ids, so that two transactions cannot deadlock."""
    children: dict[str, list[WorkflowRun]] = {}
    for run in ended:
        if run.parent_run_id is not None and not is_unreadable(run.parent_run_id):
            children.setdefault(run.parent_run_id, []).append(run)
    for parent_id in sorted(children):
        _tell(work, parent_id, failed=any(run.status in _FAILED for run in children[parent_id]))


def _tell(work: UnitOfWork, parent_id: str, *, failed: bool) -> None:
    try:
        work.label("parent_run_id", parent_id)
    except InvalidValue:  # another program wrote it, and there cannot be such a run
        return
    with work.batch() as batch:
        locked = batch.row(_LOCK_PARENT, row_id=parent_id)
        unfinished = batch.row(_ANY_UNFINISHED, parent=parent_id)
    if locked.result is None:
        return
    parent = RUN(locked.result)
    needed = (parent.status, parent.join_until, parent.lease_owner, parent.lease_expires_at, parent.lease_token)
    if any(map(is_unreadable, needed)):
        log.warning("%s is left as it is: its row cannot be read", f"the workflow run {shown(parent_id)}, a parent,")
        return
    if parent.status != RunStatus.PAUSED or parent.join_until is None:
        return
    if unfinished.result is not None and not (failed and parent.join_until == JoinUntil.FIRST_FAILURE):
        return
    with work.batch() as batch:
        resume_ungated(batch, resumption(parent, work.now()))
    announce_claimable(work, parent)
