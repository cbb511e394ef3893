"""Findings of `persist doctor` in transcripts: those whose length is behind their entries, so that nothing can be appended."""

from collections.abc import Iterator
from functools import partial

from sqlalchemy import func, select, update

from persist.db.dialects.findings import Problem, Severity
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.transcripts.models import entries, transcripts

_T, _E = transcripts.c, entries.c
_next = select(func.max(_E.position) + 1).where(_E.transcript_id == _T.id).scalar_subquery()
_BEHIND = select(_T.id, _T.length, _next).where(_T.length < _next).order_by(_T.id)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each transcript whose next position is taken. The repair counts anew."""
    for id, length, following in work.found(_BEHIND, unreadable=OnUnreadable.LEAVE_OUT):
        message = f"its length is {length:,}, but it has an entry at {following - 1:,}: nothing can be appended."
        yield Problem("transcript_length", Severity.ERROR, f"transcript {id}", message, partial(_count_anew, id=id))


def _count_anew(work: UnitOfWork, *, id: str) -> None:
    work.change(update(transcripts).where(_T.id == id).values(length=_next))
