"""Pruning of programs: runs that ended long ago, with all of their rows, and notes of raw writes of which no run is there."""

from sqlalchemy import exists, select

from persist.db.operations.bounded_deletion import Below, Ids
from persist.db.operations.pruning import AgedRows, Pruning
from persist.db.statements.prepared import among
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.programs.models import agents, bindings, executions, imports, raw_writes, runs, segments, subagents
from persist.programs.schemas import RunStatus

_R, _B, _E, _W = runs.c, bindings.c, executions.c, raw_writes.c


def _own(work: UnitOfWork, ids: Ids) -> set[str]:
    """The run whose own file this is, which pruning spares: the file is deleted with its folder, not row by row."""
    return {run for run in (work.runtime.scopes.get("run_id"),) if run is not None}


def _attachments(work: UnitOfWork, ids: Ids) -> list[str]:
    """The attachments that rows of these runs name, as "RUN: PATH"; the run's folder belongs to the caller and is left alone."""
    query = select(_B.run_id, _B.attachment_path).where(_B.run_id.in_(ids), _B.attachment_path.is_not(None))
    return [
        f"{run}: {path}"
        for run, path in work.found(query.order_by(_B.run_id, _B.attachment_path), unreadable=OnUnreadable.LEAVE_OUT)
    ]


RUNS = AgedRows(
    runs,
    _R.updated_at,
    _R.id,
    may_go=among(_R.status, (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.INTERRUPTED)),
    spared=_own,
    files=_attachments,
    below=(
        Below(bindings, lambda ids: _B.run_id.in_(ids), key=(_B.run_id, _B.name, _B.execution_id)),
        Below(segments, lambda ids: segments.c.run_id.in_(ids)),
        Below(agents, lambda ids: agents.c.run_id.in_(ids)),
        Below(subagents, lambda ids: subagents.c.run_id.in_(ids)),
        Below(imports, lambda ids: imports.c.run_id.in_(ids)),
        Below(raw_writes, lambda ids: raw_writes.c.run_id.in_(ids)),
        Below(executions, lambda ids: _E.run_id.in_(ids), key=(_E.id,), order=(_E.id.desc(),), parent=_E.parent_id),
    ),
)


def _of_own(work: UnitOfWork, ids: Ids) -> list[int]:
    """Notes of the run whose own file this is, in whose rows its id is empty."""
    own = work.runtime.scopes.get("run_id")
    query = select(_W.id).where(_W.id.in_(ids), _W.run_id.in_(("", own)))
    return [] if own is None else [id for (id,) in work.found(query)]


NOTES = AgedRows(raw_writes, _W.at, _W.id, only=~exists().where(_R.id == _W.run_id), spared=_of_own)
"""A shell deleted the run, or named one that never was; other notes go with their run."""

PRUNINGS: tuple[Pruning, ...] = (RUNS, NOTES)
