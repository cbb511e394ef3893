"""Findings of `persist doctor` about consumers of the log: those that keep old events from being trimmed."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import select

from persist.db.dialects.findings import Problem, Severity
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.events.models import event_consumers, event_log

BEHIND = timedelta(days=7)
"""A consumer with an event of that age before it is behind."""

_C, _E = event_consumers.c, event_log.c
# The consumer's next event, by the index of positions: an ungrouped min() of `at` would read all events after the position.
_next = select(_E.at).where(_E.position > _C.position).order_by(_E.position).limit(1).correlate(event_consumers).scalar_subquery()
_WAITING = select(_C.name, _next.label("since")).order_by(_C.name)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each consumer that is far behind."""
    old = work.now() - BEHIND
    waiting: Iterable[Any] = work.found(_WAITING, unreadable=OnUnreadable.LEAVE_OUT)
    for name, since in waiting:
        if since is not None and since < old:
            message = (
                f"it has not acknowledged events since {since:%Y-%m-%d %H:%M} UTC, which no trim deletes meanwhile: "
                "start what consumes them, or remove it."
            )
            yield Problem("consumer_behind", Severity.WARNING, f"consumer {name}", message)
