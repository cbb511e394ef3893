"""Erasing workflows: runs with an execution of an erased session, the runs they started, and executions without a run."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from persist.db.operations.erasing import LINK, LOGS, SESSION, Erasable, ErasableRows, Key, Values, equal, holding
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.workflows.models import approvals, effects, executions, runs, signals, waits

_R, _E = runs.c, executions.c


class _Runs(ErasableRows):
    derived_from = _R.parent_run_id

    def find(self, work: UnitOfWork, selector: str, values: Values) -> list[Key]:
        found = super().find(work, selector, values)
        if selector in (SESSION, LINK):
            of_session = select(_E.workflow_run_id).where(_E.session_id.in_(values), _E.workflow_run_id.is_not(None)).distinct()
            found += [tuple(row) for row in work.found(of_session, unreadable=OnUnreadable.LEAVE_OUT)]
        return found

    def leads(self, work: UnitOfWork, keys: Sequence[Key]) -> dict[str, list[str]]:
        query = select(_E.session_id).where(_E.workflow_run_id.in_([id for (id,) in keys]), _E.session_id.is_not(None))
        # of the run's other phases only the logs: the session itself may be of somebody else
        return {LOGS: [id for (id,) in work.found(query.distinct(), unreadable=OnUnreadable.LEAVE_OUT)]}

    def told_leads(self, table: str, cells: Mapping[str, Any], found: Container[Key]) -> dict[str, list[str]]:
        session = cells.get("session_id")
        of_run = table == executions.name and (cells.get("workflow_run_id"),) in found
        return {LOGS: [session]} if of_run and isinstance(session, str) else {}


ERASABLES: tuple[Erasable, ...] = (
    _Runs(
        runs,
        ("id",),
        {SESSION: equal(_R.id)},
        (
            holding(executions, "workflow_run_id"),
            holding(approvals, "workflow_run_id"),
            holding(effects, "run_id"),
            holding(signals, "run_id"),
            holding(waits, "run_id"),
        ),
    ),
    ErasableRows(executions, ("id",), {SESSION: equal(_E.session_id), LINK: equal(_E.session_id)}, own_streams=False),
)
