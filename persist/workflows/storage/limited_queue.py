"""SQL that finds the runs that a worker may claim where there are limits: those for which their limits have room.

The first runs of a line are looked at one by one. If none of these runs has room, more runs are looked for behind them: runs of
one workflow with one key form a group, and a claim reads only the first runs of groups with room. So a hundred thousand runs that
wait for a place cost a claim as much as one.

On Postgres a run is chosen together with a lock on its limits. What another claim has locked is passed over, never waited for.
"""

from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ScalarSelect, Select, func, literal_column, select, true
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import FromClause

from persist.db.statements.prepared import Statement
from persist.workflows.models import IS_READY, claim_order, key_group, queued_since, runs
from persist.workflows.storage import queue
from persist.workflows.storage.queue import ANY_LIMIT, has_room, is_plain, locked, may_be_taken
from persist.workflows.storage.run_rows import RUN

_R = runs.c
_ONE: ColumnElement[Any] = literal_column("1")
_ALL = 2**31
_AHEAD: ColumnElement[Any] = literal_column(str(queue.AHEAD))


class _Line(NamedTuple):
    """A line of queued runs: the ready ones, or the delayed ones whose time has come."""

    word: str

    @property
    def is_ready(self) -> bool:
        return self.word == "ready"

    def of(self, table: FromClause) -> tuple[ColumnElement[bool], ...]:
        return (IS_READY,) if self.is_ready else queue.is_due(table)

    def order(self, table: FromClause) -> tuple[ColumnElement[Any], ...]:
        return claim_order(table) if self.is_ready else (table.c.not_before,)


READY, DUE = _Line("ready"), _Line("due")


def _columns(table: FromClause) -> tuple[ColumnElement[Any], ...]:
    return (
        table.c.id,
        table.c.workflow_name.label("name"),
        key_group(table).label("key"),
        table.c.priority,
        queued_since(table).label("since"),
        table.c.updated_at,
    )


def _names(line: _Line, names: int) -> FromClause:
    if names:
        return queue.wanted_names(names)
    first, following = runs.alias("first"), runs.alias("following")
    least = _sorted(line, first, first.c.workflow_name).where(first.c.workflow_name > literal_column("''"))  # by the line's index
    each = select(queue.one(least).label("name")).cte(f"{line.word}_names", recursive=True)
    more = _sorted(line, following, following.c.workflow_name).where(following.c.workflow_name > each.c.name).correlate(each)
    return each.union_all(select(queue.one(more)).select_from(each).where(each.c.name.is_not(None)))


def _sorted(line: _Line, table: FromClause, column: ColumnElement[Any]) -> Select[Any]:
    return select(column).select_from(table).where(*line.of(table)).order_by(column)


def _groups(line: _Line, names: int) -> FromClause:
    """The groups in the line, by `name` and `key`: each step reads one entry of an index."""
    workflows, first, following = _names(line, names), runs.alias("first"), runs.alias("following")
    least = _sorted(line, first, key_group(first)).where(first.c.workflow_name == workflows.c.name).correlate(workflows)
    each = select(workflows.c.name, queue.one(least).label("key")).select_from(workflows)
    groups = each.where(workflows.c.name.is_not(None)).cte(f"{line.word}_groups", recursive=True)
    more = _sorted(line, following, key_group(following)).where(
        following.c.workflow_name == groups.c.name, key_group(following) > groups.c.key
    )
    step = select(groups.c.name, queue.one(more.correlate(groups))).select_from(groups)
    return groups.union_all(step.where(groups.c.key.is_not(None)))


def _heads(line: _Line, names: int, most: int, *, lateral: bool) -> Select[Any]:
    """The first runs of each group that has room: `most` per group, or one where LATERAL is missing."""
    groups, table, run = _groups(line, names), runs.alias("member"), runs.alias("head")
    is_open = (groups.c.key.is_not(None), queue.enabled(groups.c.name), has_room(groups.c.name, groups.c.key))
    # the LIMIT keeps a planner from asking for room once for each member
    free = select(groups.c.name, groups.c.key).where(*is_open).limit(literal_column(str(_ALL))).subquery("free")
    in_group = (table.c.workflow_name == free.c.name, key_group(table) == free.c.key)
    members = select(*_columns(table)).where(*line.of(table), *in_group).order_by(*line.order(table)).correlate(free)
    if lateral:
        each = members.limit(literal_column(str(most))).lateral("members")
        return select(*each.c).select_from(free.join(each, true()))
    first = select(queue.one(members.with_only_columns(table.c.id)).label("id")).select_from(free).subquery("heads")
    return select(*_columns(run)).select_from(first.join(run, run.c.id == first.c.id))


def _front(line: _Line, names: int, most: int, *, lateral: bool) -> Select[Any]:
    """The first runs of the line, whether their limits have room or not."""
    table = runs.alias("front")
    if line.is_ready and 1 < names <= queue.MOST_APART:
        firsts = queue.first_of_each(names, most).subquery("firsts") if lateral else queue.each_of_several(names, most)
        return select(*_columns(table)).where(table.c.id.in_(select(firsts.c.id)))
    conditions = queue.conditions(table, names, indexed=line.is_ready)
    first = select(*_columns(table)).where(*line.of(table), *conditions).order_by(*line.order(table))
    return first.limit(literal_column(str(most)))


def _with_room(found: FromClause, rows: int) -> Select[Any]:
    """The found runs with room, counted together with the runs before; in the order of the queue."""
    if rows == 1:
        return select(*found.c).where(has_room(found.c.name, found.c.key))

    def place(column: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.row_number().over(partition_by=column, order_by=claim_order(found))

    ranked = select(*found.c, place(found.c.name).label("of_name"), place(found.c.key).label("of_key")).subquery("ranked")
    room = has_room(ranked.c.name, ranked.c.key, ranked.c.of_name, ranked.c.of_key)
    return select(*[ranked.c[column.name] for column in found.c]).where(room).order_by(*claim_order(ranked))


def waiting(line: _Line, names: int, rows: int, *, far: bool, lateral: bool) -> FromClause:
    """The first runs of the line that may be claimed, in order, unlocked. `far`: those behind runs without room."""
    few = rows + queue.FEW_AHEAD
    if far:
        found, most = _heads(line, names, few, lateral=lateral), few * queue.AHEAD
    else:
        most = rows + queue.AHEAD
        found = _front(line, names, few if names > 1 else most, lateral=lateral)
    first = found.cte(f"{line.word}_found")
    first = select(*first.c).order_by(*claim_order(first)).limit(literal_column(str(most))).cte(f"{line.word}_first")
    # the LIMIT keeps a planner from looking for room after what a reader asks of each run, which may lock it
    return _with_room(first, rows).limit(literal_column(str(most))).subquery("waiting_runs")


def any_unheld(names: int) -> ScalarSelect[Any]:
    """The id of a running run that no worker holds and that may be claimed, or NULL; not locked."""
    return queue.one(queue.unheld(names, _R.id).where(may_be_taken(runs)))


def _lockable(table: FromClause, found: FromClause, *conditions: Any) -> tuple[ColumnElement[bool], ...]:
    lock = select(table.c.id).where(table.c.id == found.c.id, *conditions).with_for_update(skip_locked=True)
    return locked(found.c.name, found.c.key), lock.correlate(found).scalar_subquery().is_not(None)


def chosen(line: _Line, names: int, rows: int, *, far: bool) -> Select[Any]:
    """On Postgres, the first runs of the line that may be claimed, locked with their limits: id, priority, since, updated_at."""
    found, table = waiting(line, names, rows, far=far, lateral=True), runs.alias("locked_run")
    columns = (found.c.id, found.c.priority, found.c.since, found.c.updated_at)
    return select(*columns).where(*_lockable(table, found, *line.of(table), is_plain(table))).limit(literal_column(str(rows)))


def first_of(line: _Line, names: int, *, far: bool, lateral: bool) -> ScalarSelect[Any]:
    """The id of the first run of the line that may be claimed, or NULL; not locked."""
    found = waiting(line, names, 1, far=far, lateral=lateral)
    return queue.one(select(found.c.id))


@cache
def first_with_room(names: int, *, far: bool, one_writer: bool) -> Statement:
    """The ids of an unheld run, a ready run and a due run for which there is room, each NULL if there is none near the front.

    Then the ids of a ready and a due run, whether there is room or not, and whether there are limits. `far` as for `waiting`.
    """
    ready, due = (first_of(line, names, far=far, lateral=not one_writer) for line in (READY, DUE))
    any_ready, any_due = queue.any_ready(names), queue.any_due(names)
    return Statement(select(any_unheld(names), ready, due, any_ready, any_due, ANY_LIMIT.label("any_limit")))


@cache
def lines(names: int, *, one_writer: bool) -> tuple[queue.Line, queue.Line, queue.Line]:
    """What `queue.lines` finds, without runs for which their limits have no room."""
    columns = (*RUN.columns, ANY_LIMIT.label("any_limit"))
    free = queue.unheld(names, *columns).where(may_be_taken(runs)).with_for_update(of=runs, skip_locked=True)
    quick = []
    if not one_writer:
        table = runs.alias("locked_run")
        at_hand = queue.unheld(names, *_columns(runs)).where(may_be_taken(runs)).limit(_AHEAD).subquery("at_hand")
        quick = [_by_id(columns, select(at_hand.c.id).where(*_lockable(table, at_hand)).limit(_ONE))]
    ready, due = (_line(line, names, columns, one_writer=one_writer) for line in (READY, DUE))
    return queue.Line(free, *quick), ready, due


def _line(line: _Line, names: int, columns: Any, *, one_writer: bool) -> queue.Line:
    room = has_room(_R.workflow_name, _R.concurrency_key)
    slow = select(*columns).where(*line.of(runs), *queue.conditions(runs, names, indexed=line.is_ready), room)
    slow = slow.order_by(*claim_order(runs)).with_for_update(of=runs, skip_locked=True)
    quick = []
    for far in (False, True):
        found = (
            waiting(line, names, 1, far=far, lateral=False)
            if one_writer
            else chosen(line, names, 1, far=far).subquery("chosen_run")
        )
        quick.append(_by_id(columns, select(found.c.id)))
    return queue.Line(slow, *quick)


def _by_id(columns: Any, ids: Select[Any]) -> Select[Any]:
    return select(*columns).where(_R.id == queue.one(ids)).with_for_update(of=runs, skip_locked=True)
