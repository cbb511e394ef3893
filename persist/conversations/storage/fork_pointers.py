"""Fork pointers that other programs wrote only into a branch's metadata, although the columns are what is read."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Text, cast, or_, select, update

from persist.conversations.models import branches
from persist.conversations.schemas import Branch
from persist.conversations.storage import lineage
from persist.conversations.storage.branch_rows import find_branch
from persist.conversations.storage.progression_folding import member_ids
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import Conflict

_B = branches.c
_said = cast(_B.node_metadata, Text())
_SUSPECTS = select(_B.id).where(or_(_B.parent_branch_id.is_not(None), *(_said.like(f"%{key}%") for key in lineage.POINTERS)))
_ADOPT = Statement(
    update(branches).where(_B.id == param("row_id")).values(parent_branch_id=param("parent"), forked_at_ord=param("inherited"))
)


def astray(work: UnitOfWork) -> Iterator[tuple[Branch, str, bool]]:
    """Branches whose published fork pointers have no effect, with the reason and whether `adopt` can repair them."""
    for (id,) in work.found(_SUSPECTS.order_by(_B.id), unreadable=OnUnreadable.LEAVE_OUT):
        branch = find_branch(work, id)
        if branch is None:
            continue
        why = _why(work, branch)
        if why is not None:
            yield branch, *why


def adopt(work: UnitOfWork, id: str) -> bool:
    """Copy the metadata's fork pointers into the columns; False if they are invalid, or equal already."""
    branch = find_branch(work, id, lock=True)
    why = None if branch is None else _why(work, branch)
    if branch is None or why is None or not why[1]:
        return False
    parent, inherited = _said_by(branch)
    return bool(work.run(_ADOPT, row_id=id, parent=parent, inherited=inherited))


def _why(work: UnitOfWork, branch: Branch) -> tuple[str, bool] | None:
    """What is wrong with the pointers and whether `adopt` can repair it; None if nothing is wrong."""
    columns, said = (branch.parent_branch_id, branch.forked_at_ord), _said_by(branch)
    if columns[0] is not None and find_branch(work, columns[0]) is None:
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
    if find_branch(work, parent) is None:
        return f"{fork}, which names no branch: it shows its own messages alone.", False
    wrong = _not_shown(work, branch, parent, inherited)
    if wrong is not None:
        return f"{fork}, and {wrong}", False
    return f"{fork}, which the columns do not: it shows its own messages alone.", True


def _not_shown(work: UnitOfWork, branch: Branch, parent: str, inherited: int) -> str | None:
    """Why the branch cannot begin with the items its metadata says it inherits; None if it can."""
    if lineage.descends(work, parent, branch.id):
        return "that one descends from it."
    try:
        lineage.history(work, parent, first=0, end=0)
    except Conflict:
        return "the parents of that one form a circle."
    items = lineage.item_ids(work, parent, end=inherited)
    if len(items) < inherited:
        return f"that one shows no more than {len(items)} items."
    if items and member_ids(work, branch.progression_id)[: len(items)] == items:
        return "its own messages begin with them already."
    return None


def _said_by(branch: Branch) -> tuple[Any, Any]:
    metadata = branch.node_metadata if isinstance(branch.node_metadata, dict) else {}
    parent, inherited = (metadata.get(key) for key in lineage.POINTERS)
    return parent, inherited
