"""Findings of `persist doctor` in telemetry: links with several rows, because other programs spell URLs differently."""

from collections.abc import Iterator
from itertools import groupby

from sqlalchemy import func, select

from persist.db.dialects.findings import Problem, Severity
from persist.db.transactions.own_scope import public_scope
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.telemetry.link_urls import canonical_url
from persist.telemetry.models import links

_L = links.c
_repeated = (
    select(_L.instance_id, _L.resource_number).group_by(_L.instance_id, _L.resource_number).having(func.count() > 1).subquery()
)
_CANDIDATES = (
    select(_L.instance_id, _L.url)
    .join(_repeated, (_L.instance_id == _repeated.c.instance_id) & (_L.resource_number == _repeated.c.resource_number))
    .order_by(_L.instance_id, _L.resource_number)
)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each link with several rows. The row fetched last counts; the link's next write deletes the others."""
    candidates = work.found(_CANDIDATES, unreadable=OnUnreadable.LEAVE_OUT)
    for owner, rows in groupby(candidates, lambda row: row[0]):
        counts: dict[str, int] = {}
        for _, url in rows:
            link = canonical_url(url)
            if link is not None:
                counts[link] = counts.get(link, 0) + 1
        public_owner = public_scope(work, "instance_id", owner)
        for link, count in counts.items():
            if count > 1:
                message = f"{count} rows tell of it, with URLs of different spelling; the one fetched last counts."
                subject = f"link {link} of instance {public_owner}" if public_owner else f"link {link}"
                yield Problem("link_repeated", Severity.INFO, subject, message)
