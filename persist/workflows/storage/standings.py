"""How runs stand, for those who look on: what a list leaves out, gates by age, the queue in groups, and what a run waits for."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, literal_column, select

from persist.db.operations.keyset import Keyset, counting
from persist.db.schema.base import json_label
from persist.db.schema.column_types import among_labels
from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.clock import epoch_ms
from persist.db.values.pages import PagedList
from persist.workflows.models import IS_DELAYED, IS_PENDING, IS_READY, approvals, executions, key_group, queued_since, runs, waits
from persist.workflows.schemas import Approval
from persist.workflows.storage.queue import MOST, enabled, has_room, standing_of_all
from persist.workflows.storage.run_rows import APPROVAL

_A, _R, _W = approvals.c, runs.c, waits.c
_HEAD = (_R.id, _R.workflow_name, _R.status, _R.current_phase, _R.lease_owner, _R.lease_expires_at, _R.last_error)
_HEADS = Statement(
    select(*_HEAD, json_label(_R.context, "error")).where(among_labels(_R.id, "ids")), unreadable=OnUnreadable.LEAVE_OUT
)
_OLDEST = Keyset("workflows.approvals.oldest", APPROVAL, (_A.created_at, _A.id), where=[IS_PENDING], descending=False, exact=True)
_GATES = Statement(counting(select(_A.id).where(IS_PENDING), MOST))
_WAIT = Statement(select(_W.name, _W.since, _W.expires_at).where(_W.run_id == param("run_id")), unreadable=OnUnreadable.LEAVE_OUT)
_ready = select(_R.workflow_name.label("name"), key_group(runs).label("key"), queued_since(runs).label("since"))
_some = _ready.where(IS_READY).limit(literal_column(str(MOST))).subquery("some")
_each = (
    select(_some.c.name, _some.c.key, func.count().label("number"), func.min(_some.c.since).label("since"))
    .group_by(_some.c.name, _some.c.key)
    .order_by(func.min(_some.c.since))
    .limit(LIMIT)
    .subquery("each")
)
_GROUPS = Statement(
    select(*_each.c, enabled(_each.c.name), has_room(_each.c.name, _each.c.key)).order_by(
        _each.c.since, _each.c.name, _each.c.key
    ),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_EXECUTIONS = Statement(counting(select(executions.c.id), MOST))
_DELAYED = Statement(counting(select(_R.id).where(IS_DELAYED, _R.not_before > param("at")), MOST))


_ANY = 2**31
"""More starts than any rate allows."""


class RunHead(NamedTuple):
    """What lists leave out of a run: who holds it, until when, and what went wrong."""

    id: str
    workflow_name: str
    status: str
    current_phase: str
    lease_owner: str | None
    lease_expires_at: datetime | None
    last_error: str | None
    """The error of the last attempt that is tried again."""
    error: str | None
    """The beginning of the error that its context holds: why it failed."""


class AwaitedSignal(NamedTuple):
    """The signal that a paused run waits for."""

    name: str
    since: datetime
    expires_at: datetime | None


class ReadyGroup(NamedTuple):
    """Ready runs of one workflow and with one key, empty without one. `since`: when the oldest of them was queued."""

    workflow_name: str
    key: str
    number: int
    since: datetime
    is_on: bool
    """Whether the workflow is not switched off."""
    has_room: bool
    """Whether the limits and budgets let one more of them start."""

    @property
    def is_held(self) -> bool:
        """Whether none of them can start now."""
        return not (self.is_on and self.has_room)


class LimitStanding(NamedTuple):
    """How full a limit is."""

    key: str
    concurrency: int | None
    rate: int | None
    per_ms: int | None
    running: int
    """How many runs take a place."""
    started: int
    """How many starts count for the rate now."""


def run_heads(work: UnitOfWork, ids: Sequence[str]) -> dict[str, RunHead]:
    """The runs of the ids that are there, and can be read."""
    return {row[0]: RunHead(*row) for row in work.rows(_HEADS, ids=list(ids))} if ids else {}


def oldest_gates(work: UnitOfWork, limit: int, after: str | None) -> PagedList[Approval]:
    """A page of the gates that wait for an answer, those that wait longest coming first."""
    return _OLDEST.pages(work, limit, after)


def pending_gates(work: UnitOfWork) -> int:
    """How many gates wait, counted as far as one more than MOST."""
    return _number(work, _GATES)


def awaited_signal(work: UnitOfWork, run_id: str) -> AwaitedSignal | None:
    """The signal that the run waits for, None if it waits for none."""
    row = work.row(_WAIT, run_id=run_id)
    return None if row is None else AwaitedSignal(*row)


def ready_groups(work: UnitOfWork, limit: int) -> list[ReadyGroup]:
    """Ready runs in groups, by their oldest run; of a long queue the first MOST are counted."""
    rows = work.rows(_GROUPS, now_ms=epoch_ms(work.now()), limit=limit)
    return [ReadyGroup(name, key, number, since, bool(on), bool(room)) for name, key, number, since, on, room in rows]


def delayed_runs(work: UnitOfWork) -> int:
    """How many queued runs wait for their time, counted as far as one more than MOST."""
    return _number(work, _DELAYED, at=work.now())


def has_many_executions(work: UnitOfWork) -> bool:
    """Whether there are more than MOST executions, all of which a sum of their costs would read."""
    return _number(work, _EXECUTIONS) > MOST


def limit_standings(work: UnitOfWork, limit: int) -> list[LimitStanding]:
    """How limits stand, by key."""
    rows = work.rows(standing_of_all(), many=_ANY, now_ms=epoch_ms(work.now()), limit=limit)
    return [LimitStanding(key, most, rate, per_ms, running, started) for key, most, rate, per_ms, running, _, started in rows]


def _number(work: UnitOfWork, statement: Statement, **values: object) -> int:
    row = work.row(statement, **values)
    return 0 if row is None else int(row[0])
