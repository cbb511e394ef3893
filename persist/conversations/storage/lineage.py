"""The effective history of a branch: items inherited from its parents, then its own, in one query however deep the fork."""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Text, bindparam, case, cast, exists, func, insert, literal, literal_column, null, or_, select, update
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import FromClause

from persist.conversations.models import branches, members, messages, progressions, sessions
from persist.conversations.schemas import Branch, ConvMessage
from persist.conversations.storage import records
from persist.conversations.storage.progressions import Places, add_members, ask_ids, member_ids, unchanged
from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.upsert import insert_missing
from persist.db.schema.column_types import Int64, Label
from persist.db.schema.instants import EpochReal
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.arguments import UNBOUNDED, must_exist
from persist.errors import Conflict, StoreCorrupt, shown

# A position counts from 0 at the root. A branch inherits the first `forked_at_ord` items of its parent's history, and none that
# the parent adds later; each branch in the line contributes the items at [inherited, upto).

POINTERS = ("parent_branch_id", "forked_at_ord")
"""The published keys of node_metadata that say where a branch was forked; written once, beside columns of the same names."""
_B = branches.c
_MEMBERS = members.c
_parent = branches.alias("parent")


def _place_in(branch: FromClause) -> ColumnElement[int]:
    """The number of items that a branch inherits. A fork without one is as broken as one at a place below 0."""
    columns = branch.c
    return func.coalesce(columns.forked_at_ord, case((columns.parent_branch_id.is_(None), 0), else_=-1))


_leaf = select(
    _B.id,
    _B.progression_id,
    _B.parent_branch_id,
    _place_in(branches).label("inherited"),
    literal(UNBOUNDED, Int64()).label("upto"),
).where(_B.id == param("row_id"))
_chain = _leaf.cte("line", recursive=True)
# UNION drops rows it has seen, so the recursion ends even if parents form a circle
LINE = _chain.union(
    select(
        _parent.c.id,
        _parent.c.progression_id,
        _parent.c.parent_branch_id,
        _place_in(_parent),
        case((_chain.c.upto < _chain.c.inherited, _chain.c.upto), else_=_chain.c.inherited),
    )
    .select_from(_chain.join(_parent, _parent.c.id == _chain.c.parent_branch_id))
    .where(_chain.c.inherited > 0)
)
"""The branch `row_id` and the branches it descends from, each with the range of positions it contributes."""
_L = LINE.c
_position = (_L.inherited + _MEMBERS.ord).label("position")
_first, _end = bindparam("first", type_=Int64()), bindparam("end", type_=Int64())
ITEMS = LINE.join(
    members,
    (_MEMBERS.progression_id == _L.progression_id)
    & (_MEMBERS.ord >= _first - _L.inherited)
    & (_MEMBERS.ord < _L.upto - _L.inherited)
    & (_MEMBERS.ord < _end - _L.inherited),
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
_LAST_PLACE = 2**40
"""The highest place at which a branch may have been forked: positions that are reckoned from it stay far below 64 bits."""
_BROKEN = (
    select(_line.c.id)
    .select_from(_line.outerjoin(_next, _next.c.id == _line.c.parent_branch_id))
    .where(
        ~_known
        | (cast(_line.c.inherited, Int64()) != _line.c.inherited)
        | ~_line.c.inherited.between(0, literal_column(str(_LAST_PLACE)))
        | ((_line.c.inherited != 0) & _next.c.id.is_(None))
    )
    .exists()
)
"""Whether a branch of the line names a progression or a parent that is not there, or begins at what is no place."""
_IS_WHOLE = _ENDS & ~_BROKEN
_IDS = Statement(select(_position, _MEMBERS.message_id).select_from(ITEMS))
_MESSAGES = Statement(
    select(_position, _IS_WHOLE, *records.COLUMNS).select_from(
        ITEMS.join(records.WITH_TYPE, messages.c.id == _MEMBERS.message_id)
    )
)
_HAS_END = Statement(select(_ENDS).where(_B.id == param("row_id")))
_has_pool = exists().where(_pools.c.id == _B.progression_id)
_LINE_OF = Statement(
    select(_B.id, _B.progression_id, _B.parent_branch_id, _B.forked_at_ord, _has_pool).where(_B.id.in_(select(_L.id))),
    unreadable=OnUnreadable.RAISE,
)
_DESCENDS = Statement(select(_L.id).where((_L.id == param("branch")) | (_L.parent_branch_id == param("branch"))).limit(1))
_INHERITS = Statement(
    select(_MEMBERS.message_id)
    .select_from(LINE.join(members, (_MEMBERS.progression_id == _L.progression_id) & (_MEMBERS.ord < _L.upto - _L.inherited)))
    .where(_L.id != param("branch"), _MEMBERS.message_id == param("message"))
    .limit(1)
)
_own = select(func.coalesce(func.max(_MEMBERS.ord) + 1, 0)).where(_MEMBERS.progression_id == _B.progression_id).scalar_subquery()
SIZE = func.coalesce(_B.forked_at_ord, 0) + _own
"""The number of items in a branch's history."""
_LENGTH = Statement(select(SIZE).where(_B.id == param("row_id")))


def length(work: UnitOfWork, branch_id: str) -> int:
    """The number of items in the branch's history. Raises NotFound."""
    return int(must_exist(work.row(_LENGTH, row_id=branch_id), "branch", branch_id)[0])


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
    """The messages at positions from `first` to before `end`. Raises NotFound, Conflict for a circle, StoreCorrupt."""
    rows = work.rows(_MESSAGES, row_id=branch_id, first=first, end=end)
    if not rows or not rows[0][1]:
        _check_line(work, branch_id)
    return [*records.message_values(row[2:] for row in _ordered(rows))]


def descends(work: UnitOfWork, branch_id: str, ancestor_id: str) -> bool:
    """Whether the branch is the ancestor or descends from it; the ancestor's own row may be gone."""
    return branch_id == ancestor_id or work.row(_DESCENDS, row_id=branch_id, branch=ancestor_id) is not None


class Ancestry:
    """Whether a branch may be made as a fork of `parent`, asked for with a batch that holds the parent until the end."""

    def __init__(self, batch: Batch, parent: str, branch_id: str) -> None:
        self._parent, self._branch = parent, branch_id
        self._named = records.BRANCHES.ask(batch, parent)
        records.hold_with(batch, parent)
        self._held, self._descends = records.BRANCHES.ask(batch, parent), batch.row(_DESCENDS, row_id=parent, branch=branch_id)

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


def _no_place(parent: str | None, place: int | None) -> str | None:
    """What is wrong with the place at which a branch was forked; None if nothing is."""
    wrong = parent is not None if place is None else not 0 <= place <= _LAST_PLACE
    return f"it was forked at {'NULL' if place is None else place}, which is no place" if wrong else None


def _check_line(work: UnitOfWork, branch_id: str) -> None:
    row = must_exist(work.row(_HAS_END, row_id=branch_id), "branch", branch_id)
    for id, progression_id, parent, place, known in work.rows(_LINE_OF, row_id=branch_id):
        if not known:
            raise StoreCorrupt(f"branch {shown(id)}", f"its progression {shown(progression_id)} is not there.")
        if wrong := _no_place(parent, place):
            raise StoreCorrupt(f"branch {shown(id)}", f"{wrong}.")
    if not row[0]:
        raise Conflict(f"The parents of the branch {branch_id!r} form a circle.")


def _ordered(rows: list[Row]) -> list[Row]:
    """Sort rows by position in Python: the database's sorter would also move the contents of the messages."""
    rows.sort(key=itemgetter(0))
    return rows


# Small inheritances are copied when their branch is deleted or reordered. Large ones stay in a *former branch*, which no list
# shows and which becomes the forks' parent.

MAX_COPIED = 1_000
"""The most places copied to forks at once; if there are more, former branches keep them."""
_S = sessions.c
_PROGRESSIONS = progressions.c
_id = param("row_id")
_of_others = or_(
    exists().where(_B.progression_id == _PROGRESSIONS.id, _B.id != param("branch")),
    exists().where(_S.progression_id == _PROGRESSIONS.id),
)
_SHARED = Statement(select(_PROGRESSIONS.id).where(_PROGRESSIONS.id == _id, _of_others))
_STAND_ALONE = Statement(
    update(branches)
    .where(_B.id == _id)
    .values(progression_id=param("pool"), node_metadata=param("value"), parent_branch_id=null(), forked_at_ord=null())
)
_POINT = Statement(update(branches).where(_B.id == _id).values(parent_branch_id=param("parent"), node_metadata=param("value")))
_ADD = Statement(insert_missing(branches, "id"))
_to = bindparam("to", type_=Label())
_COPY = (
    Statement(
        insert(progressions).from_select(
            ["id", "created_at", "folded", "collection"],
            select(_to, bindparam("at", type_=EpochReal()), _PROGRESSIONS.folded, _PROGRESSIONS.collection).where(
                _PROGRESSIONS.id == _id
            ),
        )
    ),
    Statement(
        insert(members).from_select(
            ["progression_id", "ord", "message_id"],
            select(_to, _MEMBERS.ord, _MEMBERS.message_id).where(_MEMBERS.progression_id == _id),
        )
    ),
)


class Heirs:
    """Forks of branches that are being deleted or changed, with the items they inherit, read before the change."""

    def __init__(self, work: UnitOfWork, changing: Sequence[Branch], forks: Sequence[Branch]) -> None:
        self._work = work
        self._changing = {branch.id: branch for branch in changing}
        few = sum(_inherited(fork) for fork in forks) <= MAX_COPIED
        self._copying = [fork for fork in forks if few or not _inherited(fork)]
        self.keeping = [fork for fork in forks if not few and _inherited(fork)]
        """Forks that inherit too many places to copy."""
        with work.batch() as batch:
            asked = {fork.id: ask_item_ids(batch, fork.id, end=_inherited(fork)) for fork in self._copying}
        self._items = {id: found_item_ids(items.result) for id, items in asked.items()}

    def keep(self, *, of: str | None = None) -> list[str]:
        """Add former branches for the forks; their ids. They show the copy `of`, or else the deleted branch's progression."""
        former = self._former_ids()
        for id, (new, session_id) in former.items():
            self._add_former(self._changing[id], new, session_id, former, of)
        for fork in self.keeping:
            assert fork.parent_branch_id is not None
            self._point(fork, former[fork.parent_branch_id][0])
        return [new for new, _ in former.values()]

    def copy(self) -> None:
        """Copy small inheritances to their forks; call it once deleted branches no longer share the forks' progressions."""
        waiting = self._copying
        while waiting:  # a fork that gets a progression of its own leaves the one that it shared to the next
            now = {fork.progression_id: fork for fork in reversed(waiting)}.values()
            _stand_alone(self._work, {fork.id: fork for fork in now}, self._items)
            waiting = [fork for fork in waiting if all(fork is not one for one in now)]

    def _former_ids(self) -> dict[str, tuple[str, str]]:
        """By id of a branch whose places must be kept: the new former branch's id, and the session of a fork for it."""
        former: dict[str, tuple[str, str]] = {}
        for fork in self.keeping:
            line: Branch | None = fork
            while line is not None and line.parent_branch_id is not None and _inherited(line):
                line = self._changing.get(line.parent_branch_id)
                if line is None or line.id in former:
                    break
                former[line.id] = self._work.runtime.ids.mint_uuid(), fork.session_id
        return former

    def _add_former(
        self, branch: Branch, new: str, session_id: str, former: Mapping[str, tuple[str, str]], copied: str | None
    ) -> None:
        parent = branch.parent_branch_id
        if parent is not None and parent in former:
            parent = former[parent][0]
        pointers = None if parent is None else dict(zip(POINTERS, (parent, _inherited(branch)), strict=True))
        fields: dict[str, Any] = {
            **dict.fromkeys(records.BRANCHES.values.fields),
            "id": new,
            "created_at": branch.created_at,
            "name": branch.name,
            "session_id": session_id,
            "progression_id": branch.progression_id if copied is None else copied,
            **({} if pointers is None else pointers),
            "node_metadata": None if pointers is None else self._work.json("node_metadata", pointers),
            "former_of": branch.id,
        }
        self._work.run(_ADD, **fields)

    def _point(self, fork: Branch, parent: str) -> None:
        metadata = {**(fork.node_metadata or {}), **dict(zip(POINTERS, (parent, fork.forked_at_ord), strict=True))}
        self._work.run(_POINT, row_id=fork.id, parent=parent, value=self._work.json("node_metadata", metadata))


def is_shared(work: UnitOfWork, pool: str, branch_id: str) -> bool:
    """Whether another branch or a session owns the branch's progression too."""
    return work.row(_SHARED, row_id=pool, branch=branch_id) is not None


def copied_progression(work: UnitOfWork, id: str) -> str:
    """Copy a progression with its members inside the database; return the id of the copy."""
    new = work.runtime.ids.mint_uuid()
    for statement, values in zip(_COPY, ({"at": work.now()}, {}), strict=True):
        work.run(statement, row_id=id, to=new, **values)
    return new


def _inherited(branch: Branch) -> int:
    return branch.forked_at_ord or 0


def _stand_alone(work: UnitOfWork, forks: Mapping[str, Branch], inherited: Mapping[str, Sequence[str]]) -> None:
    """Make the inherited items the forks' own, in a new progression if others share the one it has. No two have the same."""
    asked = []
    with work.batch() as batch:
        for fork in forks.values():
            places = Places(work, batch, fork.progression_id)  # waits for a message that is being recorded, to read it
            own = ask_ids(batch, fork.progression_id)
            asked.append((fork, places, own, batch.row(_SHARED, row_id=fork.progression_id, branch=fork.id)))
    with work.batch() as batch:
        for fork, places, own, shared in asked:
            pool, items = fork.progression_id, [*inherited[fork.id], *(one for (one,) in own.result)]
            if shared.result is None:
                places.replace(batch, unchanged(own.result, items), items)
            else:
                pool = work.runtime.ids.mint_uuid()
                add_members(work, batch, pool, items)
            metadata = {key: value for key, value in (fork.node_metadata or {}).items() if key not in POINTERS}
            batch.run(_STAND_ALONE, row_id=fork.id, pool=pool, value=work.json("node_metadata", metadata))


# Fork pointers that other programs wrote only into a branch's metadata, although the columns are what is read.

_said = cast(_B.node_metadata, Text())
_SUSPECTS = select(_B.id).where(or_(_B.parent_branch_id.is_not(None), *(_said.like(f"%{key}%") for key in POINTERS)))
_ADOPT = Statement(
    update(branches).where(_B.id == param("row_id")).values(parent_branch_id=param("parent"), forked_at_ord=param("inherited"))
)


def astray(work: UnitOfWork) -> Iterator[tuple[Branch, str, bool]]:
    """Branches whose published fork pointers have no effect, with the reason and whether `adopt` can repair them."""
    for (id,) in work.found(_SUSPECTS.order_by(_B.id), unreadable=OnUnreadable.LEAVE_OUT):
        branch = records.BRANCHES.find(work, id)
        if branch is None:
            continue
        why = _why(work, branch)
        if why is not None:
            yield branch, *why


def adopt(work: UnitOfWork, id: str) -> bool:
    """Copy the metadata's fork pointers into the columns; False if they are invalid, or equal already."""
    branch = records.BRANCHES.find(work, id, lock=True)
    why = None if branch is None else _why(work, branch)
    if branch is None or why is None or not why[1]:
        return False
    parent, inherited = _said_by(branch)
    return bool(work.run(_ADOPT, row_id=id, parent=parent, inherited=inherited))


def _why(work: UnitOfWork, branch: Branch) -> tuple[str, bool] | None:
    """What is wrong with the pointers and whether `adopt` can repair it; None if nothing is wrong."""
    columns, said = (branch.parent_branch_id, branch.forked_at_ord), _said_by(branch)
    if wrong := _no_place(*columns):
        return f"{wrong}: its history cannot be read.", False
    if columns[0] is not None and records.BRANCHES.find(work, columns[0]) is None:
        return f"it was forked from {columns[0]!r}, which is gone: it shows its own messages alone.", False
    if said == columns:
        return None
    if columns != (None, None):
        return (
            f"its metadata says that it was forked from {said[0]!r} at {said[1]!r}, and the columns, which count, do not.",
            False,
        )
    parent, inherited = said
    fork = f"its metadata says that it was forked from {parent!r} at {inherited!r}"
    if not isinstance(parent, str) or type(inherited) is not int or inherited < 0:
        return f"{fork}, which is no place: it shows its own messages alone.", False
    if records.BRANCHES.find(work, parent) is None:
        return f"{fork}, which names no branch: it shows its own messages alone.", False
    wrong = _not_shown(work, branch, parent, inherited)
    if wrong is not None:
        return f"{fork}, and {wrong}", False
    return f"{fork}, which the columns do not: it shows its own messages alone.", True


def _not_shown(work: UnitOfWork, branch: Branch, parent: str, inherited: int) -> str | None:
    """Why the branch cannot begin with the items its metadata says it inherits; None if it can."""
    if descends(work, parent, branch.id):
        return "that one descends from it."
    try:
        history(work, parent, first=0, end=0)
    except Conflict:
        return "the parents of that one form a circle."
    items = item_ids(work, parent, end=inherited)
    if len(items) < inherited:
        return f"that one shows no more than {len(items)} items."
    if items and member_ids(work, branch.progression_id)[: len(items)] == items:
        return "its own messages begin with them already."
    return None


def _said_by(branch: Branch) -> tuple[Any, Any]:
    metadata = branch.node_metadata if isinstance(branch.node_metadata, dict) else {}
    parent, inherited = (metadata.get(key) for key in POINTERS)
    return parent, inherited
