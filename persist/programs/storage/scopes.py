"""Resolves a name in a frame: its own binding, else that of the nearest calling frame, else the root's.

One recursive query walks from a frame to its parents and counts the distance, so that the nearest frame wins regardless of
ids, and a circle of parents made by a raw writer ends at the maximum.
"""

from sqlalchemy import func, literal, select

from persist.db.changes.batch import Batch, Pending
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.own_scope import ScopedValues, stored_scope
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.counts import UNBOUNDED
from persist.errors import Conflict, NotFound
from persist.programs.models import FRAME, bindings, executions
from persist.programs.schemas import Binding

_MAX = 1000
_ROOT = -1

_B, _E, _frame = bindings.c, executions.c, FRAME
BINDING = ScopedValues(Binding, bindings, "run_id")

_parent = executions.alias("parent")
_start = select(_E.id, _E.parent_id, literal(0, Int64()).label("depth")).where(_E.run_id == param("run"), _E.id == param("frame"))
_walked = _start.cte("chain", recursive=True)
_CHAIN = _walked.union_all(
    select(_parent.c.id, _parent.c.parent_id, _walked.c.depth + literal(1, Int64()))
    .select_from(_walked.join(_parent, _parent.c.id == _walked.c.parent_id))
    .where(_parent.c.run_id == param("run"), _walked.c.depth < param("maximum"))
)
_frames = (
    select(_CHAIN.c.id.label("frame"), _CHAIN.c.depth)
    .union_all(select(literal(_ROOT, Int64()), literal(UNBOUNDED, Int64())))
    .cte("frames")
)
_deepest = select(func.max(_CHAIN.c.depth)).scalar_subquery()
_RESOLVE = Statement(
    select(_deepest, *BINDING.columns)
    .select_from(_frames.join(bindings, _frame == _frames.c.frame))
    .where(_B.run_id == param("run"), _B.name == param("name"))
    .order_by(_frames.c.depth)
    .limit(1)
)
_DEEPEST = Statement(select(func.max(_CHAIN.c.depth)))


def resolve(work: UnitOfWork, run_id: str, name: str, execution_id: int) -> Row:
    """The row of the binding that the name resolves to in that frame.

    Raises NotFound for the execution or the name, Conflict where the frames it was called from form a circle.
    """
    maximum = _maximum(work)
    stored = stored_scope(work, "run_id", run_id)
    row = work.row(_RESOLVE, run=stored, frame=execution_id, name=name, maximum=maximum)
    deepest = depth(work, run_id, execution_id) if row is None else row[0]
    if deepest is None:
        raise NotFound("execution", str(execution_id))
    if deepest >= maximum:
        raise Conflict(f"The parents of execution {execution_id} form a circle.")
    if row is None:
        raise NotFound("binding", name)
    return row[1:]


def depth(work: UnitOfWork, run_id: str, execution_id: int) -> int | None:
    """How many frames are above that one; None if it does not exist. A circle of parents counts as the maximum depth."""
    stored = stored_scope(work, "run_id", run_id)
    return depth_in(work.row(_DEEPEST, run=stored, frame=execution_id, maximum=_maximum(work)))


def ask_depth(work: UnitOfWork, batch: Batch, run_id: str, execution_id: int) -> Pending[Row | None]:
    """Count the frames above an execution with a batch; `depth_in` the row is what `depth` returns."""
    stored = stored_scope(work, "run_id", run_id)
    return batch.row(_DEEPEST, run=stored, frame=execution_id, maximum=_maximum(work))


def depth_in(row: Row | None) -> int | None:
    """The number of frames in a row of `ask_depth`; None if the execution does not exist."""
    return None if row is None or row[0] is None else int(row[0])


def _maximum(work: UnitOfWork) -> int:
    return max(_MAX, work.runtime.settings.max_depth + 1)
