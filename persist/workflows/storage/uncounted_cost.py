"""What executions cost beyond the calls of models that usage has of their runs.

An execution that ended without the name of a model is no call: a recorder or a sample may have reported the same cost.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from sqlalchemy import Float, cast, func, literal, select

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.usage.models import rollups
from persist.usage.periods import bucket_start
from persist.usage.schemas import Bucket, Source
from persist.workflows.models import executions

_E, _R = executions.c, rollups.c
_LAST = datetime.max.replace(microsecond=999_000, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class UncountedCost:
    """The number of runs whose executions cost more than usage counts for them, and how much more, in millionths of a dollar."""

    runs: int
    cost_usd_micros: int


@cache
def _beyond() -> Statement:
    scope = literal(f"{Source.RUN}:").concat(func.coalesce(_E.workflow_run_id, _E.id))
    ended = (_E.finished_at >= param("since")) & (_E.finished_at < param("until"))
    each = select(scope.label("scope"), _E.cost_usd).where(_E.cost_usd > 0, ended).subquery("each")
    cost = func.sum(each.c.cost_usd) * literal(1_000_000.0, Float())
    spent = select(each.c.scope, cost.label("cost"), func.count().label("number")).group_by(each.c.scope).subquery("spent")
    hours = [_R.bucket == literal(Bucket.HOUR, _R.bucket.type), _R.starts_at >= param("from_hour"), _R.starts_at < param("to")]
    of_scope = select(_R.scope, cast(func.sum(_R.cost_usd_micros), Float()).label("cost")).where(*hours).group_by(_R.scope)
    counted = of_scope.subquery("counted")
    beyond = spent.c.cost - func.coalesce(counted.c.cost, 0.0)
    found = select(func.count(), func.sum(beyond)).select_from(spent.outerjoin(counted, counted.c.scope == spent.c.scope))
    # each cost was rounded to whole millionths on its own
    return Statement(found.where(beyond > cast(spent.c.number, Float())))


def uncounted_cost(work: UnitOfWork, since: datetime | None, until: datetime | None) -> UncountedCost:
    """Sum up executions that ended from the hour of `since` on and before `until`; None: all there are."""
    begins = datetime.min.replace(tzinfo=UTC) if since is None else bucket_start(Bucket.HOUR, since)
    ends = _LAST if until is None else until
    row = work.row(_beyond(), since=begins, until=ends, from_hour=begins, to=ends)
    return UncountedCost(0, 0) if row is None or not row[0] else UncountedCost(int(row[0]), round(row[1]))
