"""The rows of a run and of its executions, the run's holder, and the columns of a strict file that only persist writes."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import exists, func, null, or_, select, update

from persist.db.changes.batch import Batch, Pending
from persist.db.concurrency.ownership import is_stale, place_of, this_process_as_owner
from persist.db.expressions.upsert import insert_missing
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.schema.row_guards import STRICT_BY_CONNECTION
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.statements.schema_version import STRICT
from persist.db.transactions.own_scope import ScopedValues, stored_scope
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_count
from persist.errors import LeaseLost, NotFound, RunHeld, named
from persist.programs.models import STRICT_TABLES, executions, runs
from persist.programs.schemas import (
    SETTLED,
    AgentScope,
    ExecutionStatus,
    ProgramExecution,
    ProgramRun,
    RunStatus,
    check_execution,
)

_NOTE = Statement(insert_missing(table_of(Meta), "key"))


def make_strict(work: UnitOfWork) -> None:
    """Make the file strict as the last step of the transaction."""
    work.run(_NOTE, key=STRICT, value=STRICT_BY_CONNECTION)
    work.whole_tables.guard_strictly(STRICT_TABLES)
    work.runtime.strict = True


_R = runs.c
RUN = Values(ProgramRun, runs)
GET_RUN = Statement(select(*RUN.columns).where(_R.id == param("row_id")))
_LOCK = Statement(select(*RUN.columns).where(_R.id == param("row_id")).with_for_update())
RUN_EXISTS = Statement(select(_R.id).where(_R.id == param("row_id")))
IS_THERE = exists().where(_R.id == param("row_id"))
"""The condition that the run `row_id` exists, for an INSERT of what belongs to it."""


def get_run(work: UnitOfWork, id: str, *, lock: bool = False) -> ProgramRun:
    """The run, with `lock` locked against other writers. Raises NotFound."""
    return RUN.found(work.row(_LOCK if lock else GET_RUN, row_id=work.label("id", id)), "program run", id)


def outlives_runs(id: object, own: str | None) -> bool:
    """Whether the id is "project" or "user", in a file of that owner's agents or in a database of many (`own` None)."""
    return id in (AgentScope.PROJECT, AgentScope.USER) and own in (None, id)


def ask_agents_owner(work: UnitOfWork, batch: Batch, id: str) -> Pending[Row | None] | None:
    """Look for the owner of agents with a batch, for `check_found`; None if the id is no run's."""
    if outlives_runs(work.label("run_id", id), work.runtime.scopes.get("run_id")):
        return None
    return batch.row(RUN_EXISTS, row_id=id)


def check_found(run: Pending[Row | None] | None, id: str) -> None:
    """Raises NotFound if a batch looked for the run and did not find it."""
    if run is not None and run.result is None:
        raise NotFound("program run", id)


def this_second(work: UnitOfWork) -> datetime:
    """The store's clock, truncated to whole seconds as these tables store them."""
    return work.now().replace(microsecond=0)


_E = executions.c
EXECUTION = ScopedValues(ProgramExecution, executions, "run_id")
_THIS = (_E.run_id == param("row_run")) & (_E.id == param("row_id"))
GET_EXECUTION = Statement(select(*EXECUTION.columns).where(_THIS))
_LOCK_EXECUTION = Statement(select(*EXECUTION.columns).where(_THIS).with_for_update())
_SET = Statement(
    update(executions)
    .where(_THIS)
    .values(
        status=param("to"),
        written_status=param("to"),
        started_at=param("started"),
        completed_at=param("completed"),
        updated_at=param("at"),
        error_message=param("error"),
        metadata=param("facts"),
    )
)
_SET_METADATA = Statement(update(executions).where(_THIS).values(metadata=param("facts"), updated_at=param("at")))


def get_execution(work: UnitOfWork, run_id: str, id: int, *, lock: bool = False) -> ProgramExecution:
    """The execution. Raises NotFound unless the run has it."""
    stored, number = stored_scope(work, "run_id", run_id), check_count("id", id)
    row = work.row(_LOCK_EXECUTION if lock else GET_EXECUTION, row_run=stored, row_id=number)
    if row is None:
        raise NotFound("execution", str(id))
    return EXECUTION.public(work, row)


def become(
    work: UnitOfWork,
    execution: ProgramExecution,
    to: ExecutionStatus,
    *,
    error: str | None = None,
    facts: dict[str, Any] | None = None,
) -> ProgramExecution:
    """Change a locked execution's status and its instants, as the last write of the verb. Raises TransitionError."""
    check_execution(execution.id, execution.status, to)
    at = this_second(work)
    started: datetime | None = execution.started_at
    if to is ExecutionStatus.EXECUTING and started is None:
        started = at
    return _write(
        work,
        execution,
        _SET,
        to=to,
        started=started,
        completed=at if to in SETTLED else None,
        at=at,
        error=execution.error_message if error is None else error,
        facts=execution.metadata if facts is None else facts,
    )


def set_metadata(work: UnitOfWork, execution: ProgramExecution, facts: dict[str, Any]) -> ProgramExecution:
    """Replace the metadata of a locked execution. The last write of its verb."""
    work.json("metadata", facts)
    return _write(work, execution, _SET_METADATA, facts=facts, at=this_second(work))


def _write(work: UnitOfWork, execution: ProgramExecution, statement: Statement, **values: Any) -> ProgramExecution:
    this = {"row_run": stored_scope(work, "run_id", execution.run_id), "row_id": execution.id}
    with work.batch(last=True) as batch:
        batch.run(statement, **this, **values)
        written = batch.row(GET_EXECUTION, **this)
    assert written.result is not None, "it is locked"
    return EXECUTION.public(work, written.result)


def facts_of(execution: ProgramExecution) -> dict[str, Any]:
    """The metadata as an object; empty if a raw writer stored something else."""
    return dict(execution.metadata) if isinstance(execution.metadata, dict) else {}


# A process notes itself when it begins or resumes a run, and says with `runs.seen` that it is there. Published programs know
# nothing of this: a run that only they have written has no holder.

STALE_AFTER = timedelta(minutes=5)
"""Where nobody can look whether the process of a run still lives, such as on another machine, others wait so long for `seen`."""
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
    """Whether a process that is gone held the run; False if none does, or this one. Raises RunHeld if it is there."""
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
    """The error of a process that does not hold the run."""
    if run.held_by is None or run.status != RunStatus.RUNNING:
        reason = f"the run is {run.status}, and no process runs it."
    else:
        host, pid = place_of(run.held_by)
        reason = f"process {pid or '?'} on {named(host)} runs it; resume it when that process is gone."
    return LeaseLost(run.id, None, reason, kind="program run")
