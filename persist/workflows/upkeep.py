"""Upkeep of workflows: runs that ended long ago, and old executions and answered approvals without a run.

A person's are the runs with an execution of an erased session, the runs they started, and executions without a run. The doctor
names stuck runs, runs that wait for children although these have ended, approvals that are pending although their run has
ended, gates and schedules that nobody sees to, and limits that let nothing start.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import and_, exists, func, literal_column, or_, select
from sqlalchemy.sql.elements import ColumnElement

from persist.db.dialects.interface import Problem, Severity
from persist.db.operations.erasing import LINK, LOGS, SESSION, ErasableRows, Lead, SelectorPath, equal, found_by
from persist.db.operations.pruning import AgedRows
from persist.db.operations.upkeep import Aggregate, Rules, Upkeep, aged, erasable, exported
from persist.db.schema.base import flag_set
from persist.db.statements.prepared import among
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.workflows.models import IS_EXPIRING_GATE, approvals, effects, executions, limits, runs, schedules, signals, waits
from persist.workflows.schemas import TERMINAL, UNFINISHED, ApprovalStatus, JoinUntil, RunStatus

_R, _E, _A, _S, _L = runs.c, executions.c, approvals.c, schedules.c, limits.c
_runs = Aggregate(runs, also={executions: "workflow_run_id", approvals: "workflow_run_id"})
RUNS = aged(
    _runs,
    _R.finished_at,
    may_go=among(_R.status, TERMINAL) & ~exists().where(_E.workflow_run_id == _R.id, _E.finished_at.is_(None)),
    only={executions: _E.finished_at.is_not(None)},
)
EXECUTIONS = AgedRows(
    executions, _E.finished_at, _E.id, only=_E.workflow_run_id.is_(None) | ~exists().where(_R.id == _E.workflow_run_id)
)
APPROVALS = AgedRows(
    approvals,
    _A.responded_at,
    _A.id,
    only=~exists().where(_R.id == _A.workflow_run_id),
    may_go=_A.status != ApprovalStatus.PENDING,
)


class _Runs(ErasableRows):
    derived_from = _R.parent_run_id


QUIET = timedelta(hours=24)
"""A run without a lease that has not changed for so long is stuck."""
_PENDING = _A.status == literal_column(f"'{ApprovalStatus.PENDING}'")  # a literal: partial index


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """Yield runs that are stuck, pending approvals of runs that have ended, what was due and was not done, and shut limits."""
    now, found = work.now(), _finding(work)
    quiet = select(_R.id, _R.workflow_name, _R.updated_at).where(_R.updated_at < now - QUIET).order_by(_R.updated_at, _R.id)
    unleased = or_(_R.lease_expires_at.is_(None), _R.lease_expires_at <= now)
    for id, name, updated in found(quiet.where(_R.status == RunStatus.RUNNING, unleased)):
        message = (
            f"{name} says running, nobody holds it, and nothing changed since {updated:%Y-%m-%d %H:%M} UTC: recover or cancel it."
        )
        yield Problem("run_stuck", Severity.WARNING, f"run {id}", message)
    asked = exists().where(_A.workflow_run_id == _R.id, _PENDING)
    told = exists().where(waits.c.run_id == _R.id)
    idle = quiet.where(_R.status == RunStatus.PAUSED, ~asked, ~told, _R.join_until.is_(None))
    for id, name, updated in found(idle):
        message = f"{name} is paused since {updated:%Y-%m-%d %H:%M} UTC, and nothing will let it go on: resume or cancel it."
        yield Problem("run_paused", Severity.WARNING, f"run {id}", message)
    yield from _joined(work, asked)
    ended = select(_A.id, _A.gate, _R.id, _R.status).join(runs, _R.id == _A.workflow_run_id)
    over = ended.where(_PENDING, _R.status.in_(list(TERMINAL))).order_by(_A.created_at, _A.id)
    for id, gate, run, status in found(over):
        message = f"{gate} still waits for an answer, and run {run} is {status}: answer it, and it leaves the list."
        yield Problem("approval_moot", Severity.WARNING, f"approval {id}", message)
    expired = select(_A.id, _A.gate, _A.expires_at).where(IS_EXPIRING_GATE, _A.expires_at < now - QUIET)
    for id, gate, due in found(expired.order_by(_A.expires_at, _A.id)):
        message = (
            f"{gate} expired at {due:%Y-%m-%d %H:%M} UTC, and nobody has closed it: run a worker, or call approvals.expire_due()."
        )
        yield Problem("approval_overdue", Severity.WARNING, f"approval {id}", message)
    late = select(_S.name, _S.next_fire_at).where(flag_set(_S.enabled), _S.next_fire_at < now - QUIET).order_by(_S.name)
    for name, due in found(late):
        message = f"nobody has asked for what is due since {due:%Y-%m-%d %H:%M} UTC: run a worker, or call schedules.fire_due()."
        yield Problem("schedule_overdue", Severity.WARNING, f"schedule {name}", message)
    yield from _shut_limits(work)


def _finding(work: UnitOfWork) -> Callable[..., Iterable[Any]]:
    return partial(work.found, unreadable=OnUnreadable.LEAVE_OUT)


def _joined(work: UnitOfWork, asked: ColumnElement[bool]) -> Iterator[Problem]:
    """Runs that wait for children of which none is left, as another program that ends runs leaves them."""
    child = runs.alias("child")
    of_run = child.c.parent_run_id == _R.id
    unfinished = exists().where(of_run, child.c.status.in_(list(UNFINISHED)))
    failed = exists().where(of_run, child.c.status.in_([RunStatus.FAILED, RunStatus.CANCELLED]))
    over = or_(~unfinished, and_(_R.join_until == JoinUntil.FIRST_FAILURE, failed))
    query = select(_R.id, _R.workflow_name).where(_R.status == RunStatus.PAUSED, _R.join_until.is_not(None), ~asked, over)
    for id, name in _finding(work)(query.order_by(_R.updated_at, _R.id)):
        message = f"{name} waits for its children, and those that it waits for have ended or are gone: resume it."
        yield Problem("run_joined", Severity.WARNING, f"run {id}", message)


def _shut_limits(work: UnitOfWork) -> Iterator[Problem]:
    nothing = or_(_L.concurrency < 1, and_(_L.rate < 1, _L.per_ms > 0))
    for (key,) in _finding(work)(select(_L.key).where(nothing).order_by(_L.key)):
        yield Problem(
            "limit_shut", Severity.WARNING, f"limit {key}", "no run under it can ever start: set it anew, or delete it."
        )


UPKEEP = Upkeep(
    prunings=(RUNS, EXECUTIONS, APPROVALS),
    erasables=(
        erasable(
            _runs,
            {SESSION: equal(_R.id)},
            kind=_Runs,
            further=[SelectorPath(by, equal(_E.session_id), (_E.workflow_run_id,)) for by in (SESSION, LINK)],
            # of the run's other phases only the logs: the session itself may be of somebody else
            leading=(Lead((_E.workflow_run_id,), found_by(LOGS), (_E.session_id,)),),
        ),
        ErasableRows(executions, ("id",), {SESSION: equal(_E.session_id), LINK: equal(_E.session_id)}, own_streams=False),
    ),
    exports=(
        exported(
            _runs,
            "workflow run",
            order={
                executions: (_E.started_at, _E.id),
                approvals: (_A.created_at, _A.id),
                effects: (effects.c.begun_at, effects.c.key),
                signals: (signals.c.seq,),
            },
        ),
    ),
    checkup=checkup,
    # files of workflow engines whose releases added columns one by one
    adoption=Rules(values={_R.updated_at: func.coalesce(_R.finished_at, _R.started_at)}),
)
