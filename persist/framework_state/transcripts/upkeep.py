"""Upkeep of transcripts: sessions with all their parts, found by a session's id in whatever project."""

import json
from collections.abc import Iterator
from functools import partial

from sqlalchemy import func, select, update

from persist.db.dialects.interface import Problem, Severity
from persist.db.operations.erasing import LOGS, SESSION, equal
from persist.db.operations.upkeep import Aggregate, Upkeep, aged, erasable, exported
from persist.db.schema.base import json_text, optional
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.framework_state.transcripts.models import entries, transcripts

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


def _object(value: str) -> str | None:
    return json_text(value) or (None if isinstance(json.loads(value), dict) else "no object")


_transcripts = Aggregate(transcripts)
UPKEEP = Upkeep(
    prunings=(aged(_transcripts, _T.updated_at),),
    erasables=(erasable(_transcripts, {SESSION: equal(_T.id, _T.session_id), LOGS: equal(_T.session_id)}),),
    exports=(exported(_transcripts, "transcript", also=_T.session_id),),
    checkup=checkup,
    shapes={entries.c.entry: _object, transcripts.c.summary: optional(json_text)},
)
