"""Which value a name has in a frame: its own, else that of the nearest frame it was called from, else the root's.

One recursive query walks from a frame to its parents and carries how far it came, so that the nearest frame wins whatever the
ids are, and a circle that a raw writer made comes to an end.
"""

from sqlalchemy import func, literal, select

from persist.db.hot import Hot, Row, param
from persist.db.own import stored_scope
from persist.db.types import Whole
from persist.db.work import Work
from persist.errors import Conflict, NotFound
from persist.programs.models import FRAME, bindings, executions
from persist.programs.schemas import Binding

_MOST = 1000
_ROOT, _LAST = -1, 2**62

FIELDS = tuple(Binding.model_fields)
_B, _E, _frame = bindings.c, executions.c, FRAME
COLUMNS = tuple(_B[name] for name in FIELDS)

_parent = executions.alias("parent")
_start = select(_E.id, _E.parent_id, literal(0, Whole()).label("depth")).where(_E.run_id == param("run"), _E.id == param("frame"))
_walked = _start.cte("chain", recursive=True)
_CHAIN = _walked.union_all(
    select(_parent.c.id, _parent.c.parent_id, _walked.c.depth + literal(1, Whole()))
    .select_from(_walked.join(_parent, _parent.c.id == _walked.c.parent_id))
    .where(_parent.c.run_id == param("run"), _walked.c.depth < param("most"))
)
_frames = (
    select(_CHAIN.c.id.label("frame"), _CHAIN.c.depth)
    .union_all(select(literal(_ROOT, Whole()), literal(_LAST, Whole())))
    .cte("frames")
)
_deepest = select(func.max(_CHAIN.c.depth)).scalar_subquery()
_RESOLVE = Hot(
    select(_deepest, *COLUMNS)
    .select_from(_frames.join(bindings, _frame == _frames.c.frame))
    .where(_B.run_id == param("run"), _B.name == param("name"))
    .order_by(_frames.c.depth)
    .limit(1)
)
_DEEPEST = Hot(select(func.max(_CHAIN.c.depth)))


def resolve(work: Work, run_id: str, name: str, execution_id: int) -> Row:
    """The row of the binding that the name means in that frame.

    NotFound for the execution or the name; Conflict where the frames it was called from form a circle.
    """
    most = _most(work)
    stored = stored_scope(work, "run_id", run_id)
    row = work.row(_RESOLVE, run=stored, frame=execution_id, name=name, most=most)
    deepest = depth(work, run_id, execution_id) if row is None else row[0]
    if deepest is None:
        raise NotFound("execution", str(execution_id))
    if deepest >= most:
        raise Conflict(f"The parents of execution {execution_id} form a circle.")
    if row is None:
        raise NotFound("binding", name)
    return row[1:]


def depth(work: Work, run_id: str, execution_id: int) -> int | None:
    """How many frames are above that one; None if it is not there. A circle is as deep as anything can be."""
    stored = stored_scope(work, "run_id", run_id)
    row = work.row(_DEEPEST, run=stored, frame=execution_id, most=_most(work))
    return None if row is None or row[0] is None else int(row[0])


def _most(work: Work) -> int:
    return max(_MOST, work.runtime.settings.max_depth + 1)
