"""One execution's row: reading it, locking it, and whose lease its run is under."""

from sqlalchemy import select

from persist.db.hot import Hot, Row, param
from persist.db.values import build
from persist.db.work import Work
from persist.errors import InvalidValue, NotFound
from persist.workflows.models import executions
from persist.workflows.run_rows import check_hold, find_run
from persist.workflows.schemas import Execution, Lease

_E = executions.c
FIELDS = tuple(Execution.model_fields)
COLUMNS = tuple(_E[name] for name in FIELDS)
"""Every column but `output_text`, which no list and no record reads."""

_GET = Hot(select(*COLUMNS).where(_E.id == param("row_id")))
_RUN_ID = Hot(select(_E.workflow_run_id).where(_E.id == param("row_id")))


def execution_value(row: Row) -> Execution:
    """A row of the columns above."""
    return build(Execution, dict(zip(FIELDS, row, strict=True)))


def values_of(rows: list[Row]) -> list[Execution]:
    """Each of them."""
    return [execution_value(row) for row in rows]


def get_execution(work: Work, id: str) -> Execution:
    """The execution; NotFound."""
    row = work.row(_GET, row_id=work.label("id", id))
    if row is None:
        raise NotFound("execution", id)
    return execution_value(row)


def hold_run_of(work: Work, workflow_run_id: str | None, lease: Lease | None) -> bool:
    """Whether the execution's run has a row; LeaseLost if it is another worker's; a run without one is nobody's."""
    _check_lease(lease)
    run_id = workflow_run_id or (None if lease is None else lease.run_id)
    run = None if run_id is None else find_run(work, run_id, lock=True)
    if run is not None:
        check_hold(run, lease, work.now())
    elif lease is not None:
        raise NotFound("workflow run", lease.run_id)
    return run is not None


def holds(work: Work, id: str, lease: Lease | None) -> bool:
    """Whether there is such an execution; LeaseLost if its run is another worker's."""
    row_id = work.label("id", id)
    _check_lease(lease)
    row = work.row(_RUN_ID, row_id=row_id)
    if row is None:
        return False
    hold_run_of(work, row[0], lease)
    return True


def _check_lease(lease: object) -> None:
    if lease is not None and not isinstance(lease, Lease):
        raise InvalidValue("lease", f"expected a Lease, got {type(lease).__name__}.")
