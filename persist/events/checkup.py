"""Findings of `persist doctor` about consumers of the log: those that keep old events from being trimmed, or get none."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select

from persist.db.dialects.findings import Problem, Severity
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.events.models import event_consumers, event_log
from persist.events.switching import is_on

BEHIND = timedelta(days=7)
"""A consumer with an event of that age before it is behind."""

_C, _E = event_consumers.c, event_log.c
# The consumer's next event, by the index of positions: an ungrouped min() of `at` would read all events after the position.
_next = select(_E.at).where(_E.position > _C.position).order_by(_E.position).limit(1).correlate(event_consumers).scalar_subquery()
_WAITING = select(_C.name, _next.label("since")).order_by(_C.name)
_NAMES = select(func.count()).select_from(event_consumers)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each consumer that is far behind, and one if there are consumers and the log is off."""
    old = work.now() - BEHIND
    waiting: Iterable[Any] = work.found(_WAITING, unreadable=OnUnreadable.LEAVE_OUT)
    for name, since in waiting:
        if since is not None and since < old:
            message = (
                f"it has not acknowledged events since {since:%Y-%m-%d %H:%M} UTC, which no trim deletes meanwhile: "
                "start what consumes them, or remove it."
            )
            yield Problem("consumer_behind", Severity.WARNING, f"consumer {name}", message)
    if not is_on(work) and (count := work.select(_NAMES).scalar_one()):
        message = f"the log is off, and {count} of its consumers wait for events: switch it on, or remove them."
        yield Problem("consumers_without_log", Severity.INFO, "consumers", message)
