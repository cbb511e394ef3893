"""The effective history of a branch: items inherited from its parents, then its own, in one query however deep the fork.

A position counts from 0 at the root. Each branch in the line contributes the items at [inherited, upto): a branch
inherits the first `forked_at_ord` items of its parent's history, and none that the parent adds later.
"""

from operator import itemgetter

from sqlalchemy import bindparam, case, cast, exists, func, literal, select

from persist.conversations.models import branches, members, messages, progressions
from persist.conversations.schemas import ConvMessage
from persist.conversations.storage.branch_rows import ask_branch, hold_with
from persist.conversations.storage.message_rows import COLUMNS, WITH_TYPE, message_values
from persist.db.changes.batch import Batch, Pending
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.counts import UNBOUNDED
from persist.errors import Conflict, NotFound

POINTERS = ("parent_branch_id", "forked_at_ord")
"""The published keys of node_metadata that say where a branch was forked; written once, beside columns of the same names."""

_B, _P = branches.c, members.c
_parent = branches.alias("parent")
_leaf = select(
    _B.id,
    _B.progression_id,
    _B.parent_branch_id,
    func.coalesce(_B.forked_at_ord, 0).label("inherited"),
    literal(UNBOUNDED, Int64()).label("upto"),
).where(_B.id == param("row_id"))
_chain = _leaf.cte("line", recursive=True)
# UNION drops rows it has seen, so the recursion ends even if parents form a circle
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
"""The branch `row_id` and the branches it descends from, each with the range of positions it contributes."""

_L = LINE.c
_position = (_L.inherited + _P.ord).label("position")
_first, _end = bindparam("first", type_=Int64()), bindparam("end", type_=Int64())
ITEMS = LINE.join(
    members,
    (_P.progression_id == _L.progression_id)
    & (_P.ord >= _first - _L.inherited)
    & (_P.ord < _L.upto - _L.inherited)
    & (_P.ord < _end - _L.inherited),
)
"""The items at the positions from `first` to before `end`."""

_line, _next, _pools = LINE.alias("walked"), branches.alias("next_parent"), progressions.alias("pools")
_ENDS = (
    select(_line.c.id)
    .select_from(_line.outerjoin(_next, _next.c.id == _line.c.parent_branch_id))
    .where((_line.c.inherited == 0) | _next.c.id.is_(None))
    .exists()
)
"""Whether the line ends at a branch that inherits nothing or whose parent is gone; a circle of pointers does not end."""

_known = exists().where(_pools.c.id == _line.c.progression_id)
_BROKEN = (
    select(_line.c.id)
    .select_from(_line.outerjoin(_next, _next.c.id == _line.c.parent_branch_id))
    .where(~_known | (cast(_line.c.inherited, Int64()) != _line.c.inherited) | ((_line.c.inherited != 0) & _next.c.id.is_(None)))
    .exists()
)
"""Whether a branch of the line names a progression or a parent that is not there, or begins at what is no number."""

_IS_WHOLE = _ENDS & ~_BROKEN

_IDS = Statement(select(_position, _P.message_id).select_from(ITEMS))
_MESSAGES = Statement(select(_position, _IS_WHOLE, *COLUMNS).select_from(ITEMS.join(WITH_TYPE, messages.c.id == _P.message_id)))
_HAS_END = Statement(select(_ENDS).where(_B.id == param("row_id")))
_LINE_OF = Statement(
    select(_B.id, _B.progression_id, _B.parent_branch_id, _B.forked_at_ord).where(_B.id.in_(select(_L.id))),
    unreadable=OnUnreadable.RAISE,
)
_DESCENDS = Statement(select(_L.id).where((_L.id == param("branch")) | (_L.parent_branch_id == param("branch"))).limit(1))
_INHERITS = Statement(
    select(_P.message_id)
    .select_from(LINE.join(members, (_P.progression_id == _L.progression_id) & (_P.ord < _L.upto - _L.inherited)))
    .where(_L.id != param("branch"), _P.message_id == param("message"))
    .limit(1)
)
_own = select(func.coalesce(func.max(_P.ord) + 1, 0)).where(_P.progression_id == _B.progression_id).scalar_subquery()
SIZE = func.coalesce(_B.forked_at_ord, 0) + _own
"""The number of items in a branch's history."""

_LENGTH = Statement(select(SIZE).where(_B.id == param("row_id")))


def length(work: UnitOfWork, branch_id: str) -> int:
    """The number of items in the branch's history. Raises NotFound."""
    row = work.row(_LENGTH, row_id=branch_id)
    if row is None:
        raise NotFound("branch", branch_id)
    return int(row[0])


def item_ids(work: UnitOfWork, branch_id: str, end: int = UNBOUNDED) -> list[str]:
    """The message ids at the positions before `end`, in order, whether or not the messages are there."""
    return found_item_ids(work.rows(_IDS, row_id=branch_id, first=0, end=end))


def ask_item_ids(batch: Batch, branch_id: str, end: int) -> Pending[list[Row]]:
    """Ask with a batch for the rows of `found_item_ids`."""
    return batch.rows(_IDS, row_id=branch_id, first=0, end=end)


def found_item_ids(items: list[Row]) -> list[str]:
    """The message ids of the rows that `ask_item_ids` asked for, in order."""
    return [message_id for _, message_id in _ordered(items)]


def history(work: UnitOfWork, branch_id: str, *, first: int, end: int) -> list[ConvMessage]:
    """The messages at the positions from `first` to before `end`, in order; deleted messages are left out.

    Raises NotFound for the branch, Conflict where its parents form a circle, and UnreadableRow where one of them says what cannot
    be read: without it the history would be another one.
    """
    rows = work.rows(_MESSAGES, row_id=branch_id, first=first, end=end)
    if not rows or not rows[0][1]:
        _check_line(work, branch_id)
    return [*message_values(row[2:] for row in _ordered(rows))]


def descends(work: UnitOfWork, branch_id: str, ancestor_id: str) -> bool:
    """Whether the branch is the ancestor or descends from it; the ancestor's own row may be gone."""
    return branch_id == ancestor_id or work.row(_DESCENDS, row_id=branch_id, branch=ancestor_id) is not None


class Ancestry:
    """Whether a branch may be made as a fork of `parent`, asked for with a batch that holds the parent until the end."""

    def __init__(self, batch: Batch, parent: str, branch_id: str) -> None:
        self._parent, self._branch = parent, branch_id
        self._named = ask_branch(batch, parent)
        hold_with(batch, parent)
        self._held, self._descends = ask_branch(batch, parent), batch.row(_DESCENDS, row_id=parent, branch=branch_id)

    def check(self) -> None:
        """Raises Conflict if the parent was deleted since it was named, or is the branch itself or descends from it."""
        if self._named.result is not None and self._held.result is None:
            raise Conflict(f"The branch {self._parent!r} was deleted while a fork of it was made.")
        if self._parent == self._branch or self._descends.result is not None:
            raise Conflict(f"The branch {self._branch!r} would descend from itself.")


def inherits(work: UnitOfWork, branch_id: str, message_id: str) -> bool:
    """Whether the message is among the items that the branch inherits."""
    return work.row(_INHERITS, row_id=branch_id, branch=branch_id, message=message_id) is not None


def ask_inherits(batch: Batch, branch_id: str, message_id: str) -> Pending[Row | None]:
    """Look with a batch for the message among the items that the branch inherits: a row if it is there."""
    return batch.row(_INHERITS, row_id=branch_id, branch=branch_id, message=message_id)


def _check_line(work: UnitOfWork, branch_id: str) -> None:
    row = work.row(_HAS_END, row_id=branch_id)
    if row is None:
        raise NotFound("branch", branch_id)
    work.rows(_LINE_OF, row_id=branch_id)
    if not row[0]:
        raise Conflict(f"The parents of the branch {branch_id!r} form a circle.")


def _ordered(rows: list[Row]) -> list[Row]:
    """Sort rows by position in Python: the database's sorter would also move the contents of the messages."""
    rows.sort(key=itemgetter(0))
    return rows
