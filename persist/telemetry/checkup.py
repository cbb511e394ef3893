"""What may be wrong with telemetry: links that several rows tell of, because others write URLs in ways of their own."""

from collections.abc import Iterator
from itertools import groupby

from sqlalchemy import func, select

from persist.db.own import shown_scope
from persist.db.spoilt import Spoilt
from persist.db.trouble import Severity, Trouble
from persist.db.work import Work
from persist.telemetry.link_urls import meaning
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


def checkup(work: Work) -> Iterator[Trouble]:
    """Links with more rows than one: the one fetched last counts, and the next write of the link lets the others go."""
    candidates = work.found(_CANDIDATES, spoilt=Spoilt.LEAVE_OUT)
    for owner, rows in groupby(candidates, lambda row: row[0]):
        counts: dict[str, int] = {}
        for _, url in rows:
            link = meaning(url)
            if link is not None:
                counts[link] = counts.get(link, 0) + 1
        whose = shown_scope(work, "instance_id", owner)
        for link, count in counts.items():
            if count > 1:
                message = f"{count} rows tell of it, with URLs of different spelling; the one fetched last counts."
                subject = f"link {link} of instance {whose}" if whose else f"link {link}"
                yield Trouble("link_repeated", Severity.INFO, subject, message)
