"""Reading and locking the row of an execution, and writing its status and metadata."""

from datetime import datetime
from typing import Any

from sqlalchemy import select, update

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.own_scope import ScopedValues, stored_scope
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_count
from persist.errors import NotFound
from persist.programs.models import executions
from persist.programs.schemas import SETTLED, ExecutionStatus, ProgramExecution
from persist.programs.storage.run_rows import this_second
from persist.programs.transitions import check_execution

_E = executions.c
EXECUTION = ScopedValues(ProgramExecution, executions, "run_id")
_THIS = (_E.run_id == param("row_run")) & (_E.id == param("row_id"))
GET_EXECUTION = Statement(select(*EXECUTION.columns).where(_THIS))
_LOCK = Statement(select(*EXECUTION.columns).where(_THIS).with_for_update())
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
    row = work.row(_LOCK if lock else GET_EXECUTION, row_run=stored, row_id=number)
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
    """Change the status of a locked execution, with the instants that go with it, as the last write of its verb.

    Raises TransitionError.
    """
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
