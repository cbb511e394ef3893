"""Every sample of usage that is still in a window, and the instances that have any, for who exports them."""

from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import select

from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.telemetry.models import tool_history, usage_samples

_U, _H = usage_samples.c, tool_history.c
_INSTANCES = [
    Statement(select(column).distinct().order_by(column), unreadable=OnUnreadable.LEAVE_OUT)
    for column in (_U.instance_id, _H.instance_id)
]


@cache
def _page(after: bool) -> Statement:
    names = ("occurred_at", "token_input", "token_output", "token_cache_read", "token_cache_write", "cost_usd_micros")
    query = select(*(_U[name] for name in names)).where(_U.instance_id == param("owner"))
    if after:
        query = query.where(_U.occurred_at > param("after"))
    return Statement(query.order_by(_U.occurred_at).limit(LIMIT), unreadable=OnUnreadable.LEAVE_OUT)


class Sample(NamedTuple):
    """The usage of one instance in one second."""

    occurred_at: datetime
    token_input: int | None
    token_output: int | None
    token_cache_read: int | None
    token_cache_write: int | None
    cost_usd_micros: int | None


def instances(work: UnitOfWork) -> list[str]:
    """The ids of the instances that have usage or tool calls, in order."""
    return sorted({str(row[0]) for statement in _INSTANCES for row in work.rows(statement)})


def samples(work: UnitOfWork, instance_id: str, *, after: datetime | None, limit: int) -> list[Sample]:
    """The next samples of an instance after that second, oldest first."""
    values: dict[str, Any] = {} if after is None else {"after": after}
    rows = work.rows(_page(after is not None), owner=instance_id, limit=limit, **values)
    return [Sample(*row) for row in rows]
