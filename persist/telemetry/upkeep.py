"""Upkeep of telemetry, with an age for each table. In its windows the rows written last are the newest, whatever the clock."""

from collections.abc import Iterator
from itertools import groupby

from sqlalchemy import case, delete, func, select, update

from persist.db.dialects.interface import Problem, Severity
from persist.db.operations.erasing import SESSION, ErasableRows, equal, holding
from persist.db.operations.pruning import AgedRows
from persist.db.operations.upkeep import Rules, Takeover, Upkeep
from persist.db.statements.prepared import among
from persist.db.transactions.own_scope import public_scope
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.telemetry.links import canonical_url, parse_link
from persist.telemetry.models import agent_tags, links, status_log, tasks, tool_history, usage_samples, window_marks
from persist.telemetry.schemas import TaskState

_S, _U, _H, _G, _L, _T = status_log.c, usage_samples.c, tool_history.c, agent_tags.c, links.c, tasks.c

# The last entry of every instance is kept: it is the instance's current status.
STATUS_LOG = AgedRows(status_log, _S.occurred_at, _S.instance_id, _S.id, per=_S.instance_id, order=(_S.id,), min_kept=1)
USAGE_SAMPLES = AgedRows(
    usage_samples, _U.occurred_at, _U.instance_id, _U.occurred_at, per=_U.instance_id, order=(_U.seq, _U.occurred_at)
)
TOOL_HISTORY = AgedRows(tool_history, _H.occurred_at, _H.instance_id, _H.id, per=_H.instance_id, order=(_H.id,))
AGENT_TAGS = AgedRows(agent_tags, _G.last_seen, _G.instance_id, _G.kind, _G.value, per=_G.instance_id)
# A link that was never fetched has only the instant at which to try again.
_last_attempt = case((_L.refresh_after > _L.fetched_at, _L.refresh_after), else_=_L.fetched_at)
LINKS = AgedRows(links, _last_attempt, _L.instance_id, _L.url, per=_L.instance_id)
# Failed tasks are kept until `retry`.
TASKS = AgedRows(
    tasks,
    _T.completed_at,
    _T.workspace_id,
    _T.id,
    per=_T.workspace_id,
    may_go=among(_T.state, (TaskState.COMPLETED, TaskState.CANCELLED)),
)
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


def _canonical(takeover: Takeover) -> None:
    """Keep one row for each link, the one fetched last, under the link's canonical URL."""
    if not takeover.brought(links):
        return
    rows: dict[str, list[str]] = {}
    for (url,) in takeover.rows(select(_L.url).order_by(_L.fetched_at.desc(), _L.url)):
        canonical = canonical_url(url)
        if canonical is not None:
            rows.setdefault(canonical, []).append(url)
    older = [url for urls in rows.values() for url in urls[1:]]
    for url in older:
        takeover.run(delete(links).where(_L.url == url))
    others = {canonical: urls[0] for canonical, urls in rows.items() if urls[0] != canonical}
    for canonical, url in others.items():
        link = parse_link("url", canonical)
        pieces = {name: getattr(link, name) for name in ("url", "kind", "host", "owner", "repo", "resource_number")}
        takeover.run(update(links).where(_L.url == url).values(pieces))
    takeover.settle(links, "of several rows of one link all but the one fetched last went", len(older))
    takeover.settle(links, "URLs were written in their canonical form", len(others))


UPKEEP = Upkeep(
    prunings=(STATUS_LOG, USAGE_SAMPLES, TOOL_HISTORY, AGENT_TAGS, LINKS, TASKS),
    erasables=(
        ErasableRows(
            status_log,
            ("instance_id",),
            {SESSION: equal(_S.instance_id)},
            [holding(table, "instance_id") for table in (agent_tags, links, usage_samples, tool_history, window_marks)],
        ),
    ),
    checkup=checkup,
    adoption=Rules(settle=(_canonical,)),
)
