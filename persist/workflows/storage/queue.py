"""SQL that finds the runs that a worker may claim.

First come running runs that no worker holds, then the queue: runs that are ready, and delayed ones whose time has come. Ready and
delayed runs have partial indexes of their own, so that neither finished runs nor delayed ones cost a claim anything.
"""

from functools import cache
from typing import Any

from sqlalchemy import ScalarSelect, Select, and_, bindparam, literal_column, select, true, union, union_all
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import FromClause

from persist.db.schema.base import flag_set
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.first_readable import FirstReadable
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.workflows.models import IS_DELAYED, IS_LEASED, IS_READY, IS_RUNNING, claim_order, runs, workflow_overrides
from persist.workflows.schemas import WorkflowRun
from persist.workflows.storage.hold_guard import is_plain
from persist.workflows.storage.limit_conditions import ANY_LIMIT
from persist.workflows.storage.run_rows import RUN

_R, _O = runs.c, workflow_overrides.c
AHEAD, FEW_AHEAD = 64, 16
"""So many runs of a line, or of each of several lines, are looked at besides those that are wanted: some may be locked."""
MOST_APART = 256
"""For so many workflows at once each is looked for by itself; SQLite has a limit."""
_DUE_AT_ONCE = 1000
"""Among so many delayed runs whose time has come first, those of the highest priority are claimed first."""


def _of_names(table: FromClause, names: int, *, indexed: bool) -> list[ColumnElement[bool]]:
    """The condition that a run is of one of the workflows `name_0` …; of any if there are 0.

    `indexed`: whether an index by the name may serve it. For several names none has the order of the queue.
    """
    if not names:
        return []
    column: ColumnElement[Any] = table.c.workflow_name
    if not indexed or names > 1:
        column = column.concat("")
    wanted = _wanted(names)
    return [column == wanted[0] if names == 1 else column.in_(wanted)]


def _wanted(names: int) -> list[ColumnElement[Any]]:
    return [bindparam(f"name_{number}", type_=_R.workflow_name.type) for number in range(names)]


def wanted_names(names: int) -> FromClause:
    """The wanted workflows as a table with the column `name`, each once."""
    first, *others = [select(name.label("name")) for name in _wanted(names)]
    return union(first, *others).subquery("wanted")


def enabled(name: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the workflow was not switched off. A list that is read once, whatever the planner thinks of its size."""
    return name.not_in(select(_O.name).where(~flag_set(_O.enabled)))


def conditions(table: FromClause, names: int, *, indexed: bool) -> list[ColumnElement[bool]]:
    """Whether a run is of one of the wanted workflows, and of none that was switched off."""
    return [*_of_names(table, names, indexed=indexed), enabled(table.c.workflow_name)]


def is_due(table: FromClause) -> tuple[ColumnElement[bool], ...]:
    """Whether a queued run was delayed, and its time has come. Parameter: `at`."""
    return IS_DELAYED, table.c.not_before <= param("at")


def _first_due(names: int) -> Select[Any]:
    table = runs.alias("due")
    query = select(table.c.id).where(*is_due(table), *conditions(table, names, indexed=False))
    return query.order_by(table.c.not_before)  # the index's own order: to sort what is due is what a planner has to fear


def ready(table: FromClause, names: int, *columns: Any) -> Select[Any]:
    """The ready runs in the order of the queue, locked; those that another transaction has locked are left out."""
    query = select(*columns).where(IS_READY, *conditions(table, names, indexed=True))
    return query.order_by(*claim_order(table)).with_for_update(skip_locked=True)


def first_of_each(names: int, most: int) -> Select[Any]:
    """The ids of the first ready runs of each wanted workflow, at most `most` of each. Only Postgres has LATERAL."""
    table, wanted = runs.alias("first"), wanted_names(names)
    first = select(table.c.id).where(IS_READY, table.c.workflow_name == wanted.c.name, enabled(table.c.workflow_name))
    each = first.order_by(*claim_order(table)).limit(literal_column(str(most))).correlate(wanted).lateral("each")
    return select(each.c.id).select_from(wanted.join(each, true()))


def ready_of_several(table: FromClause, names: int, rows: int, *columns: Any) -> Select[Any]:
    """What `ready` finds for several workflows, on Postgres, passing no run of another one."""
    ahead = first_of_each(names, rows + FEW_AHEAD).subquery("ahead")
    query = select(*columns).select_from(ahead.join(table, table.c.id == ahead.c.id)).where(IS_READY)
    return query.order_by(*claim_order(table)).with_for_update(of=table, skip_locked=True)


def each_of_several(names: int, most: int) -> FromClause:
    """What `first_of_each` finds, for SQLite, which has no LATERAL and plans each workflow by itself."""
    parts = []
    for number, name in enumerate(_wanted(names)):
        table = runs.alias(f"first_{number}")
        first = select(table.c.id).where(IS_READY, table.c.workflow_name == name, enabled(table.c.workflow_name))
        parts.append(first.order_by(*claim_order(table)).limit(literal_column(str(most))).subquery(f"each_{number}"))
    return union_all(*[select(part.c.id) for part in parts]).subquery("ahead")


def first_of_several(names: int, rows: int = 1) -> Select[Any]:
    """The first `rows` of what `ready` finds for several workflows, for SQLite, passing no run of another one."""
    ids = select(each_of_several(names, rows).c.id)
    return select(*RUN.columns, ANY_LIMIT.label("any_limit")).where(_R.id.in_(ids)).order_by(*claim_order(runs))


def due(table: FromClause, names: int, *columns: Any) -> Select[Any]:
    """Delayed runs whose time has come, in the order of the queue, locked as `ready` ones are."""
    first = _first_due(names).limit(literal_column(str(_DUE_AT_ONCE)))
    query = select(*columns).where(table.c.id.in_(first), *is_due(table))
    return query.order_by(*claim_order(table)).with_for_update(skip_locked=True)


def unheld(names: int, *columns: Any) -> Select[Any]:
    """The running runs that no worker holds; not locked. Parameter: `at`."""
    of_names = _of_names(runs, names, indexed=False)
    is_unheld = and_(IS_LEASED, _R.lease_expires_at <= param("at"), IS_RUNNING)
    query = select(*columns).where(is_unheld, *of_names, enabled(_R.workflow_name))
    return query.order_by(_R.lease_expires_at, _R.id)


def any_unheld(names: int) -> ScalarSelect[Any]:
    """The id of a running run that no worker holds, or NULL; not locked."""
    return one(unheld(names, _R.id))


def any_ready(names: int) -> ScalarSelect[Any]:
    """The id of a ready run, or NULL; not locked."""
    table = runs.alias("waiting")
    if names <= 1:
        return one(select(table.c.id).where(IS_READY, *conditions(table, names, indexed=True)).order_by(*claim_order(table)))
    if names > MOST_APART:
        return one(select(table.c.id).where(IS_READY, *conditions(table, names, indexed=True)))
    return one(select(each_of_several(names, 1).c.id))


def any_due(names: int) -> ScalarSelect[Any]:
    """The id of a delayed run whose time has come, or NULL; not locked."""
    return one(_first_due(names))


def one(query: Select[Any]) -> ScalarSelect[Any]:
    """The first row of a query of one column, as a value."""
    return query.limit(literal_column("1")).scalar_subquery()


@cache
def look(names: int) -> Statement:
    """The ids of an unheld run, a ready run and a due run, each NULL if there is none, and whether there are limits.

    Nothing is locked.
    """
    return Statement(select(any_unheld(names), any_ready(names), any_due(names), ANY_LIMIT.label("any_limit")))


@cache
def first_ready(names: int, rows: int) -> Statement:
    """The first ready runs, at most `rows`, on SQLite: id, updated_at, and whether a claim may begin with them.

    It may not if an unheld or a due run could come before them, if there is a limit, or if such a claim could not be undone.
    """
    query = first_of_several(names, rows) if 1 < names <= MOST_APART else ready(runs, names, *RUN.columns)
    may_begin = and_(any_unheld(names).is_(None), any_due(names).is_(None), ~ANY_LIMIT, is_plain(runs))
    return Statement(query.limit(literal_column(str(rows))).with_only_columns(_R.id, _R.updated_at, may_begin))


class Line:
    """A line of waiting runs, of which the first readable one is wanted.

    slow     finds it in plain words, passing one run after the other
    quick    find it without passing runs that nobody may claim now, if they do not meet an unreadable one first; tried in turn
    is_sure  whether there is nothing to find where the quick ones find nothing
    """

    __slots__ = ("_is_sure", "_quick", "_slow")

    def __init__(self, slow: Select[Any], *quick: Select[Any], is_sure: bool = True) -> None:
        self._quick = [Statement(query.limit(literal_column("1"))) for query in quick]
        self._slow, self._is_sure = FirstReadable(slow), is_sure and bool(quick)

    def find(self, work: UnitOfWork, **values: Any) -> Row | None:
        """The first readable run of the line, or None."""
        for statement in self._quick:
            row = work.row(statement, **values)
            if row is not None:
                return self._slow.find(work, **values) if any(map(is_unreadable, row[: len(RUN.fields)])) else row
        return None if self._is_sure else self._slow.find(work, **values)


@cache
def lines(names: int, *, one_writer: bool) -> tuple[Line, Line, Line]:
    """The unheld, the ready and the due runs, locked, in the order in which they are claimed; and whether there are limits."""
    columns = (*RUN.columns, ANY_LIMIT.label("any_limit"))
    quick = []
    if 1 < names <= MOST_APART:
        quick = [first_of_several(names) if one_writer else ready_of_several(runs, names, 1, *columns)]
    free = unheld(names, *columns).with_for_update(of=runs, skip_locked=True)
    return Line(free), Line(ready(runs, names, *columns), *quick, is_sure=one_writer), Line(due(runs, names, *columns))


def place(run: WorkflowRun) -> tuple[Any, ...]:
    """The place of a queued run: the least is claimed first, as `claim_order` says."""
    return -run.priority, run.queued_at or run.started_at, run.id
