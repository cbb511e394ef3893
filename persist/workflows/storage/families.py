"""Parents and children: how the end of a run lets its parent go on.

Rows are locked from the children to the parents, by everything that ends runs: a child is locked first, and then its parent, in a
statement of its own. Later statements see every committed end of a child: if two children end at the same instant, the second
finds that no child is left. A parent is locked without hindering the creation of children.
"""

import logging
from collections.abc import Iterable
from typing import Any

from sqlalchemy import CTE, select

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.errors import InvalidValue, shown
from persist.workflows.models import IS_CHILD, IS_UNFINISHED_CHILD, runs
from persist.workflows.schemas import JoinUntil, RunStatus, WorkflowRun
from persist.workflows.storage.run_rows import RUN, announce_claimable, resume_ungated, resumption

# SQL that walks from a run to all its descendants.
#
# UNION, which keeps each row once, ends the walk even where another program has made a run its own ancestor.

_R = runs.c


def family(*columns: Any, orphans: bool) -> CTE:
    """The run `root` and its descendants, once each; with `orphans`, only a lost root's descendants. `columns`: beside the id."""
    first = (IS_CHILD, _R.parent_run_id == param("root")) if orphans else (_R.id == param("root"),)
    tree = select(_R.id, *columns).where(*first).cte("family", recursive=True)
    return tree.union(select(_R.id, *columns).where(IS_CHILD, _R.parent_run_id == tree.c.id))


def _members(*, orphans: bool) -> Statement:
    tree = family(_R.parent_run_id.label("parent"), orphans=orphans)
    return Statement(select(tree.c.id, tree.c.parent))


_MEMBERS = {orphans: _members(orphans=orphans) for orphans in (False, True)}


def first_look(work: UnitOfWork, root: str) -> tuple[Statement, list[tuple[str, str | None]]]:
    """The statement that finds the run and its descendants, or the descendants alone if the run is gone, and what it has found.

    The members are pairs of an id and the parent's id, in any order.
    """
    orphans = False
    rows = work.rows(_MEMBERS[orphans], root=root)
    if not rows:
        orphans = True
        rows = work.rows(_MEMBERS[orphans], root=root)
    return _MEMBERS[orphans], [(id, parent) for id, parent in rows]


def deepest_first(found: list[tuple[str, str | None]], root: str) -> list[str]:
    """The ids of members, those furthest from the root first, and by id where they are equally far."""
    children: dict[str | None, list[str]] = {}
    for id, parent in found:
        children.setdefault(parent, []).append(id)
    ordered, level, seen = [], {root}, {root}
    while level:
        ordered.append(sorted(level))
        level = {child for id in level for child in children.get(id, ()) if child not in seen}
        seen |= level
    present = {id for id, _ in found}
    return [id for ids in reversed(ordered) for id in ids if id in present]


log = logging.getLogger("persist")
_FAILED = (RunStatus.FAILED, RunStatus.CANCELLED)
_LOCK_PARENT = Statement(select(*RUN.columns).where(_R.id == param("row_id")).with_for_update(key_share=True))
_ANY_UNFINISHED = Statement(select(_R.id).where(IS_UNFINISHED_CHILD, _R.parent_run_id == param("parent")).limit(1))


def tell_parents(work: UnitOfWork, ended: Iterable[WorkflowRun]) -> None:
    """Let parents go on that waited for runs ended here, in the order of ids, so that two transactions cannot deadlock."""
    children: dict[str, list[WorkflowRun]] = {}
    for run in ended:
        if run.parent_run_id is not None and not is_unreadable(run.parent_run_id):
            children.setdefault(run.parent_run_id, []).append(run)
    for parent_id in sorted(children):
        _tell(work, parent_id, failed=any(run.status in _FAILED for run in children[parent_id]))


def _tell(work: UnitOfWork, parent_id: str, *, failed: bool) -> None:
    try:
        work.label("parent_run_id", parent_id)
    except InvalidValue:  # another program wrote it, and there cannot be such a run
        return
    with work.batch() as batch:
        locked = batch.row(_LOCK_PARENT, row_id=parent_id)
        unfinished = batch.row(_ANY_UNFINISHED, parent=parent_id)
    if locked.result is None:
        return
    parent = RUN(locked.result)
    needed = (parent.status, parent.join_until, parent.lease_owner, parent.lease_expires_at, parent.lease_token)
    if any(map(is_unreadable, needed)):
        log.warning("%s is left as it is: its row cannot be read", f"the workflow run {shown(parent_id)}, a parent,")
        return
    if parent.status != RunStatus.PAUSED or parent.join_until is None:
        return
    if unfinished.result is not None and not (failed and parent.join_until == JoinUntil.FIRST_FAILURE):
        return
    with work.batch() as batch:
        resume_ungated(batch, resumption(parent, work.now()))
    announce_claimable(work, parent)
