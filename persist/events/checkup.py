"""Findings of `persist doctor` about the log: consumers that keep old events from being trimmed, positions given twice."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select

from persist.db.dialects.findings import Problem, Severity
from persist.db.statements.prepared import Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.events.models import event_consumers, event_heads, event_log, event_positions
from persist.events.settling import MARK, last_given
from persist.events.switching import take_positions

BEHIND = timedelta(days=7)
"""A consumer with an event of that age before it is behind."""

_C, _E = event_consumers.c, event_log.c
# The consumer's next event, by the index of positions: an ungrouped min() of `at` would read all events after the position.
_next = select(_E.at).where(_E.position > _C.position).order_by(_E.position).limit(1).correlate(event_consumers).scalar_subquery()
_USED = Statement(
    select(func.coalesce(select(func.max(_E.position)).scalar_subquery(), 0), func.coalesce(func.max(_C.position), 0))
)
_WAITING = select(_C.name, _next.label("since")).order_by(_C.name)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each consumer that is far behind, and for a sequence that gives positions which were given before."""
    numbers = work.row(_USED)
    if not work.runtime.dialect.one_writer and numbers is not None and last_given(work) < max(numbers):
        message = (
            "the next events would get positions that others have, and consumers would miss them, as after a logical copy of the "
            "database, which has no sequences: run `persist events on`."
        )
        yield Problem("positions_behind", Severity.ERROR, event_positions.name, message)
    mark = work.row(MARK)
    if work.runtime.dialect.one_writer and mark is not None and mark[0] is not None:
        message = "the positions of events are those of a server, as an older release imported them: nobody can read them here."
        yield Problem("positions_foreign", Severity.ERROR, event_heads.name, message, repair=take_positions)
    old = work.now() - BEHIND
    waiting: Iterable[Any] = work.found(_WAITING, unreadable=OnUnreadable.LEAVE_OUT)
    for name, since in waiting:
        if since is not None and since < old:
            message = (
                f"it has not acknowledged events since {since:%Y-%m-%d %H:%M} UTC, which no trim deletes meanwhile: "
                "start what consumes them, or remove it."
            )
            yield Problem("consumer_behind", Severity.WARNING, f"consumer {name}", message)
