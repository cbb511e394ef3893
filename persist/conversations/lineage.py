"""The effective history of a branch: what it inherits of its parents, then its own, in one query however deep the fork.

A position counts from 0 at the root. Of every branch in the line the items at [inherited, upto) are its own: a branch
inherits `forked_at_ord` items of its parent's history, whatever the parent says later.
"""

from operator import itemgetter

from sqlalchemy import bindparam, case, func, literal, select

from persist.conversations.message_rows import COLUMNS, WITH_TYPE, message_values
from persist.conversations.models import branches, members, messages
from persist.conversations.schemas import ConvMessage
from persist.db.hot import Hot, Row, param
from persist.db.types import Whole
from persist.db.work import Work
from persist.errors import Conflict, NotFound

NO_END = 2**62
POINTERS = ("parent_branch_id", "forked_at_ord")
"""The published keys of node_metadata that say where a branch was forked; written once, beside columns of the same names."""

_B, _P = branches.c, members.c
_parent = branches.alias("parent")
_leaf = select(
    _B.id,
    _B.progression_id,
    _B.parent_branch_id,
    func.coalesce(_B.forked_at_ord, 0).label("inherited"),
    literal(NO_END, Whole()).label("upto"),
).where(_B.id == param("row_id"))
_chain = _leaf.cte("line", recursive=True)
# UNION drops what was there already, so that even a circle of branches comes to an end
LINE = _chain.union(
    select(
        _parent.c.id,
        _parent.c.progression_id,
        _parent.c.parent_branch_id,
        func.coalesce(_parent.c.forked_at_ord, 0),
        case((_chain.c.upto < _chain.c.inherited, _chain.c.upto), else_=_chain.c.inherited),
    )
    .select_from(_chain.join(_parent, _parent.c.id == _chain.c.parent_branch_id))
    .where(_chain.c.inherited > 0)
)
"""The branch `row_id` and the branches it descends from, each with the positions that are its own."""

_L = LINE.c
_position = (_L.inherited + _P.ord).label("position")
_first, _end = bindparam("first", type_=Whole()), bindparam("end", type_=Whole())
ITEMS = LINE.join(
    members,
    (_P.progression_id == _L.progression_id)
    & (_P.ord >= _first - _L.inherited)
    & (_P.ord < _L.upto - _L.inherited)
    & (_P.ord < _end - _L.inherited),
)
"""The items at the positions from `first` to before `end`."""

_line, _next = LINE.alias("walked"), branches.alias("next_parent")
_ENDS = (
    select(_line.c.id)
    .select_from(_line.outerjoin(_next, _next.c.id == _line.c.parent_branch_id))
    .where((_line.c.inherited == 0) | _next.c.id.is_(None))
    .exists()
)
"""Whether the line comes to a branch that inherits nothing: a circle of pointers does not."""

_IDS = Hot(select(_position, _P.message_id).select_from(ITEMS))
_MESSAGES = Hot(select(_position, _ENDS, *COLUMNS).select_from(ITEMS.join(WITH_TYPE, messages.c.id == _P.message_id)))
_HAS_END = Hot(select(_ENDS).where(_B.id == param("row_id")))
_DESCENDS = Hot(select(_L.id).where((_L.id == param("branch")) | (_L.parent_branch_id == param("branch"))).limit(1))
_INHERITS = Hot(
    select(_P.message_id)
    .select_from(LINE.join(members, (_P.progression_id == _L.progression_id) & (_P.ord < _L.upto - _L.inherited)))
    .where(_L.id != param("branch"), _P.message_id == param("message"))
    .limit(1)
)
_own = select(func.coalesce(func.max(_P.ord) + 1, 0)).where(_P.progression_id == _B.progression_id).scalar_subquery()
SIZE = func.coalesce(_B.forked_at_ord, 0) + _own
"""How many items the history of a row of branches has."""

_LENGTH = Hot(select(SIZE).where(_B.id == param("row_id")))


def length(work: Work, branch_id: str) -> int:
    """How many items the history has; NotFound."""
    row = work.row(_LENGTH, row_id=branch_id)
    if row is None:
        raise NotFound("branch", branch_id)
    return int(row[0])


def item_ids(work: Work, branch_id: str, end: int = NO_END) -> list[str]:
    """The message ids at the positions before `end`, in order, whether or not the messages are there."""
    return [message_id for _, message_id in _ordered(work.rows(_IDS, row_id=branch_id, first=0, end=end))]


def history(work: Work, branch_id: str, *, first: int, end: int) -> list[ConvMessage]:
    """The messages at these positions, in order; what is no longer there is left out.

    NotFound for the branch, Conflict where its parents form a circle.
    """
    rows = work.rows(_MESSAGES, row_id=branch_id, first=first, end=end)
    ends = rows[0][1] if rows else _has_end(work, branch_id)
    if not ends:
        raise Conflict(f"The parents of the branch {branch_id!r} form a circle.")
    return [*message_values(row[2:] for row in _ordered(rows))]


def descends(work: Work, branch_id: str, ancestor_id: str) -> bool:
    """Whether the branch is the other one, or has it among its parents, be it there or not."""
    return branch_id == ancestor_id or work.row(_DESCENDS, row_id=branch_id, branch=ancestor_id) is not None


def inherits(work: Work, branch_id: str, message_id: str) -> bool:
    """Whether what the branch inherits names the message."""
    return work.row(_INHERITS, row_id=branch_id, branch=branch_id, message=message_id) is not None


def _has_end(work: Work, branch_id: str) -> bool:
    row = work.row(_HAS_END, row_id=branch_id)
    if row is None:
        raise NotFound("branch", branch_id)
    return bool(row[0])


def _ordered(rows: list[Row]) -> list[Row]:
    """Sorted here: only the positions move, and not the messages as they would in the database's sorter."""
    rows.sort(key=itemgetter(0))
    return rows
