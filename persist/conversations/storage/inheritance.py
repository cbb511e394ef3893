"""Keeps what forks inherit unchanged when the branch that it comes from is deleted or reordered.

Small inheritances are copied: the fork gets the items as its own, and loses its parent. Large ones stay in place: a
*former branch*, a row of branches that no list shows, keeps the places for the forks and becomes their parent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, exists, insert, null, or_, select, update

from persist.conversations.models import branches, members, progressions, sessions
from persist.conversations.schemas import Branch
from persist.conversations.storage import lineage
from persist.conversations.storage.branch_rows import BRANCH
from persist.conversations.storage.progression_members import Places, add_members, ask_ids, unchanged
from persist.db.expressions.upsert import insert_missing
from persist.db.schema.column_types import EpochReal, Label
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork

MAX_COPIED = 1_000
"""The most places copied to forks at once; if there are more, former branches keep them."""

_S, _B, _P, _M = sessions.c, branches.c, progressions.c, members.c
_id = param("row_id")
_of_others = or_(
    exists().where(_B.progression_id == _P.id, _B.id != param("branch")),
    exists().where(_S.progression_id == _P.id),
)
_SHARED = Statement(select(_P.id).where(_P.id == _id, _of_others))
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
            select(_to, bindparam("at", type_=EpochReal()), _P.folded, _P.collection).where(_P.id == _id),
        )
    ),
    Statement(
        insert(members).from_select(
            ["progression_id", "ord", "message_id"], select(_to, _M.ord, _M.message_id).where(_M.progression_id == _id)
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
            asked = {fork.id: lineage.ask_item_ids(batch, fork.id, end=_inherited(fork)) for fork in self._copying}
        self._items = {id: lineage.found_item_ids(items.result) for id, items in asked.items()}

    def keep(self, *, of: str | None = None) -> list[str]:
        """Add former branches for the forks and return their ids.

        A former branch shows the progression `of`, a copy; without it, the progression of the branch being deleted.
        """
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
        pointers = None if parent is None else dict(zip(lineage.POINTERS, (parent, _inherited(branch)), strict=True))
        fields: dict[str, Any] = {
            **dict.fromkeys(BRANCH.fields),
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
        metadata = {**(fork.node_metadata or {}), **dict(zip(lineage.POINTERS, (parent, fork.forked_at_ord), strict=True))}
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
            metadata = {key: value for key, value in (fork.node_metadata or {}).items() if key not in lineage.POINTERS}
            batch.run(_STAND_ALONE, row_id=fork.id, pool=pool, value=work.json("node_metadata", metadata))
