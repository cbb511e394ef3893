"""Which process runs a program's run, and whether another one may take the run over.

A process of this library notes itself when it begins or resumes a run, and says with `runs.seen` that it is there. Published
programs know nothing of this: a run that only they have written has no holder.
"""

from datetime import datetime, timedelta

from sqlalchemy import func, null, or_, update

from persist.db.concurrency.process_owners import is_stale, place_of, this_process_as_owner
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import LeaseLost, RunHeld
from persist.programs.models import runs
from persist.programs.schemas import ProgramRun, RunStatus
from persist.programs.storage.run_rows import this_second
from persist.quoting import named

STALE_AFTER = timedelta(minutes=5)
"""Where nobody can look whether the process of a run still lives, such as on another machine, others wait so long for `seen`."""

_R = runs.c
HOLD = {"held_by": param("holder"), "held_since": param("second"), "seen_at": param("second")}
"""The columns of a run that this process begins or resumes; the parameters are those of `hold_values`."""
LET_GO = {"held_by": null(), "held_since": null(), "seen_at": null()}
SEEN = Statement(
    update(runs)
    .where(_R.id == param("row_id"), _R.status == RunStatus.RUNNING, or_(_R.held_by.is_(None), _R.held_by == param("holder")))
    .values(held_by=param("holder"), held_since=func.coalesce(_R.held_since, param("second")), seen_at=param("second"))
)


def hold_values(work: UnitOfWork) -> dict[str, object]:
    """The parameters of HOLD and SEEN."""
    return {"holder": this_process_as_owner(), "second": this_second(work)}


def check_free(run: ProgramRun, now: datetime, stale_after: timedelta) -> bool:
    """Whether a run is to be taken over from a process that is gone. Raises RunHeld if its process is there.

    False: no process holds the run, or this one does and the run was ended by another program.
    """
    if run.held_by is None:
        return False
    mine = run.held_by == this_process_as_owner()
    if mine and run.status != RunStatus.RUNNING:
        return False
    seen = run.seen_at or run.held_since
    if not mine and (seen is None or is_stale(run.held_by, seen, now, stale_after)):
        return True
    host, pid = place_of(run.held_by)
    raise RunHeld(run.id, str(run.status), host, pid, run.held_since, run.seen_at)


def lost(run: ProgramRun) -> LeaseLost:
    """The error of a process that is not the one that runs it."""
    if run.held_by is None or run.status != RunStatus.RUNNING:
        reason = f"the run is {run.status}, and no process runs it."
    else:
        host, pid = place_of(run.held_by)
        reason = f"process {pid or '?'} on {named(host)} runs it; resume it when that process is gone."
    return LeaseLost(run.id, None, reason, kind="program run")
