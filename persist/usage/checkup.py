"""Findings of `persist doctor` in usage: calls whose number is so high that no trim of their window reaches them."""

from collections.abc import Iterator
from functools import partial

from sqlalchemy import select, update

from persist.db.dialects.findings import Problem, Severity
from persist.db.expressions.numbering import has_next, next_number
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.usage.models import calls

_C, _other = calls.c, calls.alias("other")
_OUT_OF_REACH = select(_C.scope, _C.seq).where(~has_next(_C.seq)).order_by(_C.scope, _C.seq)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each call that is never trimmed, which another program wrote. The repair numbers it after the others."""
    for scope, seq in work.found(_OUT_OF_REACH, unreadable=OnUnreadable.LEAVE_OUT):
        message = f"its number is {seq:,}: it is listed as the newest for ever, and no trim deletes it."
        yield Problem("call_number", Severity.WARNING, f"a call of {scope}", message, partial(_renumber, scope=scope, seq=seq))


def _renumber(work: UnitOfWork, *, scope: str, seq: int) -> None:
    following = select(next_number(_other.c.seq)).where(_other.c.scope == scope, has_next(_other.c.seq)).scalar_subquery()
    work.change(update(calls).where(_C.scope == scope, _C.seq == seq).values(seq=following))
