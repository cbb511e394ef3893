"""Reading the row of an execution, and checking the lease on its run."""

from sqlalchemy import bindparam, func, literal_column, select

from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.conditions import reader_of
from persist.errors import InvalidValue, NotFound
from persist.workflows.models import executions, runs
from persist.workflows.schemas import Execution, Lease
from persist.workflows.storage.run_rows import RUN, check_hold, find_run

_E = executions.c
EXECUTION = Values(Execution, executions)
"""Every column but `output_text`, which neither lists nor `get` read."""

_GET = Statement(select(*EXECUTION.columns).where(_E.id == param("row_id")))
_LOCK_RUN_OF = Statement(
    select(*RUN.columns)
    .where(
        runs.c.id
        == select(
            func.coalesce(func.nullif(_E.workflow_run_id, literal_column("''")), bindparam("of_lease", type_=runs.c.id.type))
        )
        .where(_E.id == param("row_id"))
        .scalar_subquery()
    )
    .with_for_update()
)
_NO_RUN_ID = reader_of(runs.c.id)
"""What is wrong with a text that cannot be the id of a run."""
_RUN_ID = Statement(select(_E.workflow_run_id).where(_E.id == param("row_id")))


def get_execution(work: UnitOfWork, id: str) -> Execution:
    """The execution. Raises NotFound."""
    return EXECUTION.found(work.row(_GET, row_id=work.label("id", id)), "execution", id)


def hold_run_of(work: UnitOfWork, workflow_run_id: str | None, lease: Lease | None) -> bool:
    """Lock the execution's run; False if it has no row. LeaseLost: another worker holds it. NotFound: a lease without run."""
    _check_lease(lease)
    run_id = workflow_run_id or (None if lease is None else lease.run_id)
    run = None if run_id is None else find_run(work, run_id, lock=True)
    if run is not None:
        check_hold(run, lease, work.now())
    elif lease is not None:
        raise NotFound("workflow run", lease.run_id)
    return run is not None


def holds(work: UnitOfWork, id: str, lease: Lease | None) -> bool:
    """Whether the execution exists. Raises LeaseLost if another worker holds its run."""
    row_id = work.label("id", id)
    _check_lease(lease)
    of_lease = None if lease is None or _NO_RUN_ID(lease.run_id) else lease.run_id
    with work.batch() as batch:
        row = batch.row(_RUN_ID, row_id=row_id)
        found = batch.row(_LOCK_RUN_OF, row_id=row_id, of_lease=of_lease)
    if row.result is None:
        return False
    if found.result is None:
        hold_run_of(work, row.result[0], lease)
    else:
        check_hold(RUN(found.result), lease, work.now())
    return True


def _check_lease(lease: object) -> None:
    if lease is not None and not isinstance(lease, Lease):
        raise InvalidValue("lease", f"expected a Lease, got {type(lease).__name__}.")
