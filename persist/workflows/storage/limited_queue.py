"""SQL that finds the runs that a worker may claim where there are limits: those for which their limits have room.

The first runs of a line are looked at one by one. If none of them has room, others are looked for behind them: runs of one workflow
with one key form a group, and only the first ones of each group that has room are read. So a hundred thousand runs that wait for
a place cost a claim as much as one.

On Postgres a run is chosen together with a lock on its limits. What another claim has locked is passed over, never waited for.
"""

from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ScalarSelect, Select, and_, func, literal_column, or_, select, true, union_all
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import FromClause

from persist.db.statements.prepared import Statement
from persist.workflows.models import IS_READY, claim_order, key_group, queued_since, runs
from persist.workflows.storage import queue
from persist.workflows.storage.hold_guard import is_plain
from persist.workflows.storage.limit_conditions import ANY_LIMIT, has_room, locked, may_be_taken_over
from persist.workflows.storage.run_rows import COLUMNS

_R = runs.c
_ONE = literal_column("1")
_AHEAD = literal_column(str(queue.AHEAD))


class _Line(NamedTuple):
    """A line of queued runs: the ready ones, or the delayed ones whose time has come."""

    word: str

    @property
    def is_ready(self) -> bool:
        return self.word == "ready"

    def of(self, table: FromClause) -> tuple[ColumnElement[bool], ...]:
        """Whether a run is in the line."""
        return (IS_READY,) if self.is_ready else queue.is_due(table)

    def order(self, table: FromClause) -> tuple[ColumnElement[Any], ...]:
        """The order of the line's index."""
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


def _sorted_by_turn(found: FromClause) -> Select[Any]:
    return select(*found.c).order_by(*_in_order(found))


def _in_order(found: FromClause) -> tuple[ColumnElement[Any], ...]:
    return found.c.priority.desc(), found.c.since, found.c.id


def _names(line: _Line, names: int) -> FromClause:
    """The workflows that have runs in the line, or those that are wanted."""
    if names:
        return queue.wanted_names(names)
    first, following = runs.alias("first"), runs.alias("following")
    each = select(queue.one(_sorted(line, first, first.c.workflow_name)).label("name")).cte(f"{line.word}_names", recursive=True)
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
    """The first runs of each group that has room: `most` of each, or one where there is no LATERAL."""
    groups, table, run = _groups(line, names), runs.alias("member"), runs.alias("head")
    in_group = (table.c.workflow_name == groups.c.name, key_group(table) == groups.c.key)
    members = select(table.c.id).where(*line.of(table), *in_group).order_by(*line.order(table)).correlate(groups)
    open_groups = (
        groups.c.key.is_not(None),
        queue.enabled(groups.c.name),
        has_room(groups.c.name, groups.c.key),
    )
    if lateral:
        each = members.limit(literal_column(str(most))).lateral("members")
        ids = select(each.c.id).select_from(groups.join(each, true())).where(*open_groups)
    else:
        ids = select(queue.one(members).label("id")).select_from(groups).where(*open_groups)
    first = ids.subquery("heads")
    return select(*_columns(run)).select_from(first.join(run, run.c.id == first.c.id))


def _front(line: _Line, names: int, most: int, *, lateral: bool) -> Select[Any]:
    """The first runs of the line, whether their limits have room or not."""
    table, several = runs.alias("front"), names > 1 and line.is_ready
    if several and not lateral:
        table_of = queue.first_of_several(names).with_only_columns(_R.id).subquery("firsts")
        return select(*_columns(table)).where(table.c.id.in_(select(table_of.c.id)))
    if several:
        ids = queue.first_of_each(names, most).subquery("firsts")
        return select(*_columns(table)).select_from(ids.join(table, table.c.id == ids.c.id))
    conditions = queue.conditions(table, names, indexed=line.is_ready)
    first = select(*_columns(table)).where(*line.of(table), *conditions).order_by(*line.order(table))
    return first.limit(literal_column(str(most)))


def _with_room(found: FromClause, rows: int) -> Select[Any]:
    """Those for which there is room, also together with those before them; in the order of the queue."""
    if rows == 1:
        return select(*found.c).where(has_room(found.c.name, found.c.key))

    def place(column: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.row_number().over(partition_by=column, order_by=_in_order(found))

    ranked = select(*found.c, place(found.c.name).label("of_name"), place(found.c.key).label("of_key")).subquery("ranked")
    columns = [ranked.c[column.name] for column in found.c]
    return (
        select(*columns)
        .where(has_room(ranked.c.name, ranked.c.key, ranked.c.of_name, ranked.c.of_key))
        .order_by(*_in_order(ranked))
    )


def waiting(line: _Line, names: int, rows: int, *, lateral: bool) -> FromClause:
    """The first runs of the line that may be claimed, in their order; not locked. A reader who is satisfied early costs less."""
    most, few = rows + queue.AHEAD, rows + queue.FEW_AHEAD
    nearest = _front(line, names, few if names > 1 else most, lateral=lateral).cte(f"{line.word}_nearest")
    first = _sorted_by_turn(nearest).limit(literal_column(str(most))).cte(f"{line.word}_front")
    heads = _heads(line, names, few, lateral=lateral).cte(f"{line.word}_heads")
    behind = _sorted_by_turn(heads).limit(literal_column(str(most * queue.AHEAD))).cte(f"{line.word}_behind")
    others = _with_room(behind, rows)
    if lateral:  # several may be wanted, and each is to be found once
        others = others.where(~_with_room(first, 1).exists())
    parts = [_with_room(first, rows).subquery("with_room"), others.subquery("behind_with_room")]
    return union_all(*[select(*part.c) for part in parts]).subquery("waiting_runs")


def _free(names: int) -> ColumnElement[bool]:
    """Whether the limits let the run of `queue.unheld` be claimed: one that was resumed needs a place, others have theirs."""
    name, key = _R.workflow_name, _R.concurrency_key
    return or_(
        and_(_R.lease_owner.is_(None), has_room(name, key)),
        and_(_R.lease_owner.is_not(None), may_be_taken_over(name, key)),
    )


def any_unheld(names: int) -> ScalarSelect[Any]:
    """The id of a running run that no worker holds and that may be claimed, or NULL; not locked."""
    return queue.one(queue.unheld(names, _R.id).where(_free(names)))


def _lockable(table: FromClause, found: FromClause, *conditions: Any) -> tuple[ColumnElement[bool], ...]:
    """Whether the run and its limits could be locked."""
    lock = select(table.c.id).where(table.c.id == found.c.id, *conditions).with_for_update(skip_locked=True)
    return locked(found.c.name, found.c.key), lock.correlate(found).scalar_subquery().is_not(None)


def chosen(line: _Line, names: int, rows: int) -> Select[Any]:
    """On Postgres, the first runs of the line that may be claimed, locked with their limits: id, priority, since, updated_at."""
    found, table = waiting(line, names, rows, lateral=True), runs.alias("locked_run")
    columns = (found.c.id, found.c.priority, found.c.since, found.c.updated_at)
    return select(*columns).where(*_lockable(table, found, *line.of(table), is_plain(table))).limit(literal_column(str(rows)))


@cache
def look(names: int, *, one_writer: bool) -> Statement:
    """What `queue.look` finds, without runs for which their limits have no room."""
    ready, due = (queue.one(_id_of(waiting(line, names, 1, lateral=not one_writer))) for line in (READY, DUE))
    return Statement(select(any_unheld(names), ready, due, ANY_LIMIT.label("any_limit")))


def _id_of(found: FromClause) -> Select[Any]:
    return select(found.c.id)


@cache
def lines(names: int, *, one_writer: bool) -> tuple[queue.Line, queue.Line, queue.Line]:
    """What `queue.lines` finds, without runs for which their limits have no room."""
    columns = (*COLUMNS, ANY_LIMIT.label("any_limit"))
    free = queue.unheld(names, *columns).where(_free(names)).with_for_update(of=runs, skip_locked=True)
    if one_writer:
        return queue.Line(free), *(
            _line(line, names, columns, _id_of(waiting(line, names, 1, lateral=False))) for line in (READY, DUE)
        )
    table = runs.alias("locked_run")
    at_hand = queue.unheld(names, *_columns(runs), _R.lease_owner).where(_free(names)).limit(_AHEAD).subquery("at_hand")
    quick = _by_id(columns, select(at_hand.c.id).where(*_lockable(table, at_hand)).limit(_ONE))
    first = {line: _id_of(chosen(line, names, 1).subquery("chosen_run")) for line in (READY, DUE)}
    ready, due = (_line(line, names, columns, ids) for line, ids in first.items())
    return queue.Line(free, quick), ready, due


def _by_id(columns: Any, ids: Select[Any]) -> Select[Any]:
    return select(*columns).where(_R.id == queue.one(ids)).with_for_update(of=runs, skip_locked=True)


def _line(line: _Line, names: int, columns: Any, ids: Select[Any]) -> queue.Line:
    room = has_room(_R.workflow_name, _R.concurrency_key)
    slow = select(*columns).where(*line.of(runs), *queue.conditions(runs, names, indexed=line.is_ready), room)
    slow = slow.order_by(*claim_order(runs)).with_for_update(of=runs, skip_locked=True)
    return queue.Line(slow, _by_id(columns, ids))
