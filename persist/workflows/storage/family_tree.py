"""SQL that walks from a run to all its descendants.

UNION, which keeps each row once, ends the walk even where another program has made a run its own ancestor.
"""

from typing import Any

from sqlalchemy import CTE, select

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.workflows.models import IS_CHILD, runs

_R = runs.c


def family(*columns: Any, orphans: bool) -> CTE:
    """The run `root` and its descendants, each once; with `orphans` the descendants alone, whose ancestor may be gone.

    `columns`: those beside the id.
    """
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
