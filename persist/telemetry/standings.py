"""What no verb reads and onlookers want to see: usage of an instance by pieces of time, and the workspaces that have tasks."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import bindparam, func, select, type_coerce

from persist.db.expressions.numbers import whole_total
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.transactions.own_scope import resolve_scope
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.telemetry.models import tasks, usage_samples

_U, _T = usage_samples.c, tasks.c
_second = type_coerce(_U.occurred_at, Int64())
_piece = (_second - bindparam("start", type_=Int64())).op("/", precedence=8)(bindparam("each", type_=Int64())).label("piece")
_figures = (_U.token_input, _U.token_output, _U.cost_usd_micros)
# the piece is a column of a query of its own: as an expression with parameters, Postgres would take it for two
_samples = (
    select(_piece, *_figures)
    .where(_U.instance_id == param("owner"), _U.occurred_at >= param("since"), _U.occurred_at < param("until"))
    .subquery("samples")
)
_USED = Statement(
    select(_samples.c.piece, *(whole_total(_samples.c[one.name]) for one in _figures)).group_by(_samples.c.piece),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_other = tasks.alias("other")
# from one workspace to the next by the index, however many tasks each has
_walked = select(func.min(_T.workspace_id).label("id")).cte("walked", recursive=True)
_next = select(func.min(_other.c.workspace_id)).where(_other.c.workspace_id > _walked.c.id).scalar_subquery()
_walk = _walked.union_all(select(_next).where(_walked.c.id.is_not(None)))
_WORKSPACES = Statement(
    select(_walk.c.id).where(_walk.c.id.is_not(None), _walk.c.id != "").limit(LIMIT), unreadable=OnUnreadable.LEAVE_OUT
)


class Used(NamedTuple):
    """Sums over the samples of a piece of time; what nobody knows counts as 0."""

    tokens: int
    cost_usd_micros: int


def used_by_piece(work: UnitOfWork, instance_id: str | None, since: datetime, until: datetime, pieces: int) -> list[Used]:
    """What an instance used in each of so many pieces of the time from `since` until `until`, which are whole seconds."""
    start, each = int(since.timestamp()), int((until - since).total_seconds()) // pieces
    owner = resolve_scope(work, "instance_id", instance_id)
    rows = work.rows(_USED, owner=owner, since=since, until=until, start=start, each=each)
    found = {place: Used(read + written, cost) for place, read, written, cost in rows}
    return [found.get(place, Used(0, 0)) for place in range(pieces)]


def workspaces_with_tasks(work: UnitOfWork, limit: int) -> list[str]:
    """The workspaces that have tasks, by their ids; that of the file itself, which has none in its rows, is left out."""
    return [id for (id,) in work.rows(_WORKSPACES, limit=limit)]
