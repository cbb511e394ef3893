"""Pruning of programs: runs that ended long ago, with everything of theirs that is in the database."""

from sqlalchemy import select

from persist.db.hot import among
from persist.db.pruning import AgedRows, Below, Ids, Pruning
from persist.db.spoilt import Spoilt
from persist.db.work import Work
from persist.programs.models import agents, bindings, executions, imports, runs, segments
from persist.programs.schemas import RunStatus

_R, _B = runs.c, bindings.c


def _own(work: Work, ids: Ids) -> set[str]:
    """The run whose own file this is: the file goes with its folder, or not at all."""
    return {run for run in (work.runtime.scopes.get("run_id"),) if run is not None}


def _attachments(work: Work, ids: Ids) -> list[str]:
    """Values that are files of a run's folder; what becomes of the folder is up to whoever made it."""
    query = select(_B.run_id, _B.attachment_path).where(_B.run_id.in_(ids), _B.attachment_path.is_not(None))
    return [f"{run}: {path}" for run, path in work.found(query.order_by(_B.run_id, _B.attachment_path), spoilt=Spoilt.LEAVE_OUT)]


RUNS = AgedRows(
    runs,
    _R.updated_at,
    _R.id,
    may_go=among(_R.status, (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.INTERRUPTED)),
    spared=_own,
    files=_attachments,
    below=(
        Below(bindings, lambda ids: _B.run_id.in_(ids)),
        Below(segments, lambda ids: segments.c.run_id.in_(ids)),
        Below(agents, lambda ids: agents.c.run_id.in_(ids)),
        Below(imports, lambda ids: imports.c.run_id.in_(ids)),
        Below(executions, lambda ids: executions.c.run_id.in_(ids)),
    ),
)

PRUNINGS: tuple[Pruning, ...] = (RUNS,)
