"""Every sample of usage that is still in a window, and the instances that have any, for who exports them."""

from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import select

from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.telemetry.models import tool_history, usage_samples
from persist.telemetry.schemas import UsageSample

_U, _H = usage_samples.c, tool_history.c
_SAMPLE = Values(UsageSample, usage_samples)
_INSTANCES = [
    Statement(select(column).distinct().order_by(column), unreadable=OnUnreadable.LEAVE_OUT)
    for column in (_U.instance_id, _H.instance_id)
]


@cache
def _page(after: bool) -> Statement:
    query = select(*_SAMPLE.columns).where(_U.instance_id == param("owner"))
    if after:
        query = query.where(_U.occurred_at > param("after"))
    return Statement(query.order_by(_U.occurred_at).limit(LIMIT), unreadable=OnUnreadable.LEAVE_OUT)


def instances(work: UnitOfWork) -> list[str]:
    """The ids of the instances that have usage or tool calls, in order."""
    return sorted({str(row[0]) for statement in _INSTANCES for row in work.rows(statement)})


def samples(work: UnitOfWork, instance_id: str, *, after: datetime | None, limit: int) -> list[UsageSample]:
    """The next samples of an instance after that second, oldest first."""
    values: dict[str, Any] = {} if after is None else {"after": after}
    rows = work.rows(_page(after is not None), owner=instance_id, limit=limit, **values)
    return [_SAMPLE(row) for row in rows]
