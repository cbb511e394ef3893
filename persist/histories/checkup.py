"""Findings of `persist doctor` in histories: messages that are missing, or that lead in a circle."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Select, exists, or_, select

from persist.db.dialects.findings import Problem, Severity
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.histories.models import branches, entries, histories, snapshots
from persist.quoting import named

_E, _H, _B, _S = entries.c, histories.c, branches.c, snapshots.c
_parent = entries.alias("parent")
# A message is one deeper than the one before it, in its tree, so that in a circle at least one is not.
_misplaced = or_(
    _parent.c.id.is_(None) & _E.parent_id.is_not(None),
    _parent.c.root_id != _E.root_id,
    _parent.c.depth != _E.depth - 1,
    (_parent.c.line_id != _E.line_id) & (_E.line_id != _E.id),
    _E.parent_id.is_(None) & (_E.depth != 0),
)
_MISPLACED = (
    select(_E.id, _E.parent_id)
    .select_from(entries.outerjoin(_parent, _parent.c.id == _E.parent_id))
    .where(_misplaced)
    .order_by(_E.id)
)


def _without_entry(owner: Any, pointer: Any) -> Select[Any]:
    return select(owner, pointer).where(pointer.is_not(None), ~exists().where(_E.id == pointer)).order_by(owner)


_DANGLING = (
    ("history", _without_entry(_H.id, _H.head_id)),
    ("history", _without_entry(_B.history_id, _B.entry_id)),
    ("history run", _without_entry(_S.run_id, _S.head_id)),
)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each message that does not follow the one it names, and for each history that ends at none."""
    for id, parent_id in work.found(_MISPLACED, unreadable=OnUnreadable.LEAVE_OUT):
        message = f"it does not follow {named(parent_id)}, so that no history can be read through it."
        yield Problem("history_chain", Severity.ERROR, f"history entry {id}", message)
    for kind, dangling in _DANGLING:
        for id, entry_id in work.found(dangling, unreadable=OnUnreadable.LEAVE_OUT):
            message = f"the message {named(entry_id)}, at which it ends, is gone."
            yield Problem("history_end", Severity.ERROR, f"{kind} {id}", message)
