"""Chats as their executions show them: one thread per messaging session, even when the session's row is gone."""

from sqlalchemy import Column, MetaData, Table, cast, func, select

from persist.db.expressions.keyset import behind_newest
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.schema.column_types import Float64, FreeText, Int64, IsoMs, Label
from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.pages import check_limit
from persist.errors import NotFound
from persist.workflows.models import USED_TOKENS, executions
from persist.workflows.schemas import ChatThread

_E = executions.c
# The table is named, not imported: domains do not import each other, and only the latest message is read from it.
_messages = Table(
    "messaging_messages",
    MetaData(schema=SCHEMA_TOKEN),
    Column("id", Int64()),
    Column("session_id", Label()),
    Column("role", Label()),
    Column("timestamp", IsoMs()),
    Column("content", FreeText()),
)
_M = _messages.c
_last_used = func.max(func.coalesce(_E.finished_at, _E.started_at))
_last = _last_used.label("last_activity_at")
_said = (
    select(_M.content)
    .where(_M.session_id == _E.trigger_id, _M.role == "assistant")
    .order_by(_M.timestamp.desc(), _M.id.desc())
    .limit(1)
    .scalar_subquery()
)
_THREAD = Values(
    ChatThread,
    executions,
    session_id=_E.trigger_id,
    started_at=func.min(_E.started_at),
    last_activity_at=_last,
    turns=func.count(),
    total_tokens=USED_TOKENS,
    cost_usd=func.coalesce(func.sum(_E.cost_usd), cast(0, Float64())),
    last_message=_said,
)
_THREADS = select(*_THREAD.columns).where(_E.skill == "chat").group_by(_E.trigger_id)
_NEWEST = Statement(_THREADS.order_by(_last.desc(), _E.trigger_id).limit(LIMIT))
_EARLIER = Statement(
    _THREADS.having(behind_newest((_last_used, _E.trigger_id), ("at", "of_trigger")))
    .order_by(_last.desc(), _E.trigger_id)
    .limit(LIMIT)
)
_ONE = Statement(_THREADS.where(_E.trigger_id == param("of_trigger")))


def thread(work: UnitOfWork, trigger_id: str) -> ChatThread | None:
    """The thread of one messaging session; None if it had no turn."""
    row = work.row(_ONE, of_trigger=work.label("trigger_id", trigger_id))
    return _THREAD.optional(row)


def threads(work: UnitOfWork, limit: int, before: str | None) -> list[ChatThread]:
    """The threads with the latest activity, latest first; with `before` those after that thread."""
    maximum = check_limit(limit)
    if before is None:
        return [_THREAD(row) for row in work.rows(_NEWEST, limit=maximum)]
    last = thread(work, work.label("before", before))
    if last is None:
        raise NotFound("chat thread", before)
    return [_THREAD(row) for row in work.rows(_EARLIER, limit=maximum, at=last.last_activity_at, of_trigger=before)]
