"""SQL that finds the runs that a worker may claim.

First come running runs that no worker holds, then the queue: runs that are ready, and delayed ones whose time has come. Ready and
delayed runs have partial indexes of their own, so that neither finished runs nor delayed ones cost a claim anything.
"""

from functools import cache
from typing import Any

from sqlalchemy import ScalarSelect, Select, bindparam, literal_column, select
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import FromClause

from persist.db.schema.base import flag_set
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.first_readable import FirstReadable
from persist.workflows.models import IS_DELAYED, IS_LEASED, IS_READY, claim_order, runs, workflow_overrides
from persist.workflows.schemas import RunStatus, WorkflowRun
from persist.workflows.storage.run_rows import COLUMNS

_R, _O = runs.c, workflow_overrides.c
_DUE_AT_ONCE = 1000
"""Among so many delayed runs whose time has come first, those of the highest priority are claimed first."""
# `|| ''` keeps the planner off the index of all statuses, so that it uses the small partial index of the leased runs
_running = _R.status.concat("") == RunStatus.RUNNING


def _of_names(table: FromClause, names: int, *, indexed: bool) -> list[ColumnElement[bool]]:
    """The condition that a run is of one of the workflows `name_0` …; of any if there are 0.

    `indexed`: whether an index by the name may serve it. For several names none has the order of the queue.
    """
    if not names:
        return []
    column: ColumnElement[Any] = table.c.workflow_name
    if not indexed or names > 1:
        column = column.concat("")
    wanted = [bindparam(f"name_{number}", type_=_R.workflow_name.type) for number in range(names)]
    return [column == wanted[0] if names == 1 else column.in_(wanted)]


def _enabled(table: FromClause) -> ColumnElement[bool]:
    """Whether the workflow of the run was not switched off. A list that is read once, whatever the planner thinks of its size."""
    return table.c.workflow_name.not_in(select(_O.name).where(~flag_set(_O.enabled)))


def _conditions(table: FromClause, names: int, *, indexed: bool) -> list[ColumnElement[bool]]:
    return [*_of_names(table, names, indexed=indexed), _enabled(table)]


def _is_due(table: FromClause) -> tuple[ColumnElement[bool], ...]:
    return IS_DELAYED, table.c.not_before <= param("at")


def _first_due(names: int) -> Select[Any]:
    table = runs.alias("due")
    query = select(table.c.id).where(*_is_due(table), *_conditions(table, names, indexed=False))
    return query.order_by(table.c.not_before)  # the index's own order: to sort what is due is what a planner has to fear


def ready(table: FromClause, names: int, *columns: Any) -> Select[Any]:
    """The ready runs in the order of the queue, locked; those that another transaction has locked are left out."""
    query = select(*columns).where(IS_READY, *_conditions(table, names, indexed=True))
    return query.order_by(*claim_order(table)).with_for_update(skip_locked=True)


def due(table: FromClause, names: int, *columns: Any) -> Select[Any]:
    """Delayed runs whose time has come, in the order of the queue, locked as `ready` ones are."""
    first = _first_due(names).limit(literal_column(str(_DUE_AT_ONCE)))
    query = select(*columns).where(table.c.id.in_(first), *_is_due(table))
    return query.order_by(*claim_order(table)).with_for_update(skip_locked=True)


def _unheld(names: int, *columns: Any) -> Select[Any]:
    of_names = _of_names(runs, names, indexed=False)
    query = select(*columns).where(IS_LEASED, _R.lease_expires_at <= param("at"), _running, *of_names, _enabled(runs))
    return query.order_by(_R.lease_expires_at, _R.id)


def any_unheld(names: int) -> ScalarSelect[Any]:
    """The id of a running run that no worker holds, or NULL; not locked."""
    return _one(_unheld(names, _R.id))


def any_due(names: int) -> ScalarSelect[Any]:
    """The id of a delayed run whose time has come, or NULL; not locked."""
    return _one(_first_due(names))


def _one(query: Select[Any]) -> ScalarSelect[Any]:
    return query.limit(literal_column("1")).scalar_subquery()


@cache
def look(names: int) -> Statement:
    """The ids of an unheld run, a ready run and a due run, each NULL if there is none. Nothing is locked."""
    table = runs.alias("waiting")
    waiting = select(table.c.id).where(IS_READY, *_conditions(table, names, indexed=True)).order_by(*claim_order(table))
    return Statement(select(any_unheld(names), _one(waiting), any_due(names)))


@cache
def first_unheld(names: int) -> Statement:
    """The first running run that no worker holds, locked."""
    return Statement(_unheld(names, *COLUMNS).with_for_update(skip_locked=True).limit(literal_column("1")))


@cache
def sources(names: int) -> tuple[FirstReadable, FirstReadable, FirstReadable]:
    """The unheld, the ready and the due runs, locked, in the order in which they are claimed."""
    unheld = _unheld(names, *COLUMNS).with_for_update(skip_locked=True)
    return FirstReadable(unheld), FirstReadable(ready(runs, names, *COLUMNS)), FirstReadable(due(runs, names, *COLUMNS))


def place(run: WorkflowRun) -> tuple[Any, ...]:
    """The place of a queued run: the least is claimed first, as `claim_order` says."""
    return -run.priority, run.queued_at or run.started_at, run.id
