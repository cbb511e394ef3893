"""Claiming runs for a worker: in one statement where the database can, else one run after the other, within all limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import CTE, ColumnElement, bindparam, literal_column, select, union_all, update
from sqlalchemy.sql.expression import FromClause

from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.repository import NothingToDo
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable, number_after
from persist.db.values.arguments import check_list, check_timedelta
from persist.db.values.clock import epoch_ms, instant_after
from persist.errors import InvalidValue
from persist.workflows.models import claim_order, queued_since, runs
from persist.workflows.schemas import Lease, RunStatus, WorkflowRun
from persist.workflows.storage import limited_queue, queue
from persist.workflows.storage.limited_queue import DUE, READY
from persist.workflows.storage.queue import ANY_LIMIT, is_plain, lease_on
from persist.workflows.storage.run_rows import NO_LEASE, RUN
from persist.workflows.verbs import limits, recovery

# The statements with which claims of the first runs of the queue end.

_R = runs.c
_id = param("row_id")
_undo = (
    update(runs)
    .where(_R.id == _id)
    .values(status=RunStatus.QUEUED, **NO_LEASE, lease_token=_R.lease_token - 1, updated_at=param("at"))
)
_UNDO_CLAIM = Statement(_undo, silent=True)
GIVE_BACK = Statement(_undo)
"""Undo the claim of a queued run, which the log of events has. Parameters: `row_id`, and `at`, when it was updated before."""
CLAIMED = {
    "status": RunStatus.RUNNING,
    "lease_owner": param("worker"),
    "lease_expires_at": param("until"),
    "lease_token": _R.lease_token + 1,
    "updated_at": param("at"),
}
"""What a claim writes to a queued run. Parameters: `worker`, `until`, `at`."""


def rounded(count: int) -> int:
    """The power of two from `count` on; 0 stays 0."""
    return 1 << (count - 1).bit_length() if count else 0


def _claim_first(found: list[CTE]) -> Statement:
    """Claim the first `many` of what was found, in the order of the queue: the runs, and when each was updated before."""
    both = union_all(*[select(*one.c) for one in found]).subquery("both") if found[1:] else found[0]
    many = bindparam("many", type_=Int64())
    chosen = select(both.c.id, both.c.updated_at).order_by(*claim_order(both)).limit(many).cte("chosen")
    return Statement(update(runs).where(_R.id == chosen.c.id).values(CLAIMED).returning(*RUN.columns, chosen.c.updated_at))


def readable_or_undone(work: UnitOfWork, found: list[Row], mark: Any) -> list[WorkflowRun] | None:
    """The claimed runs in their order; None, and the claim is undone, if one of them cannot be decoded."""
    rows = [row[: len(RUN.fields)] for row in found]
    if not work.carried or not any(is_unreadable(cell) for row in rows for cell in row):
        return sorted(map(RUN, rows), key=queue.place)
    work.go_on()
    for row in found:
        work.run(_UNDO_CLAIM, row_id=row[RUN.fields.index("id")], at=row[-1])
    if work.journal is not None and mark is not None:
        work.journal.rollback_to(mark)
    return None


# Claims where there are limits. What a limit allows is decided under its lock, after everything that others have committed.

_ATTEMPTS = 4
"""How often a claim begins anew that met locks of others."""


def try_at_once(work: UnitOfWork, count: int, taken: dict[str, Any], values: dict[str, str]) -> list[WorkflowRun] | None:
    """Try to claim in one round trip, on Postgres; None: do it step by step. Limits are counted again once they are locked."""
    names, now_ms = len(values), epoch_ms(taken["at"])
    given = {"at": taken["at"], "now_ms": now_ms, **values}
    ours = {"worker": taken["worker"], "until": taken["until"], "many": count, "now_ms": now_ms}
    way, rows = _SearchRange(far=False, with_due=False), rounded(count)
    for _ in range(_ATTEMPTS):
        mark = None if work.journal is None else work.journal.mark()
        with work.batch() as batch:
            found = batch.returned_rows(_claim_limited_at_once(names, rows, way), many=count, now_ms=now_ms, **taken, **values)
            standings = batch.rows(queue.standing_of_claimed(), **ours)
        if found.result:
            claimed = readable_or_undone(work, found.result, mark)
            if claimed is None:
                return None
            settled = limits.settle(claimed, standings.result, count, counted=True)
            _put_back(work, settled.excess, {row[RUN.fields.index("id")]: row[-1] for row in found.result})
            if settled.starts:
                with work.batch(last=True) as batch:
                    limits.count_starts(batch, settled.starts, now_ms)
            if settled.kept:
                return settled.kept
            continue
        left = work.row(limited_queue.first_with_room(names, far=way.far, one_writer=False), **given)
        assert left is not None
        unheld, ready, due, any_ready, any_due, any_limit = left
        limits.know(work, any_limit)
        if unheld is not None:
            return None
        elif ready is None and due is None:
            if way.far or (any_ready is None and any_due is None):
                return []
            way = _SearchRange(far=True, with_due=True)
        elif due is not None:
            way = way._replace(with_due=True)
        else:
            rows = 1  # several are ranked, also after runs that have no room
    return None


def _put_back(work: UnitOfWork, excess: list[WorkflowRun], updated: dict[str, datetime]) -> None:
    if excess:
        with work.batch() as batch:
            for run in excess:
                batch.run(GIVE_BACK, row_id=run.id, at=updated[run.id])


def settled_by_limits(work: UnitOfWork, run: WorkflowRun, now: datetime, *, placed: bool) -> limits.Claimed | None:
    """Whether a locked run may be claimed, with its limits locked; None if they are taken. `placed`: it has had its place."""
    one_writer = work.runtime.dialect.one_writer
    with work.batch() as batch:
        mine = None if one_writer else batch.rows(queue.lock_of_run(), row_id=run.id)
        standings = batch.rows(queue.standing_of_run(), row_id=run.id, many=1, now_ms=epoch_ms(now))
    if mine is not None and not {row[0] for row in standings.result} <= {row[0] for row in mine.result}:
        return None
    return limits.settle([run], standings.result, 1, counted=False, placed=placed)


@cache
def _claim_limited_at_once(names: int, rows: int, way: "_SearchRange") -> Statement:
    def waiting(line: Any) -> Any:
        table = limited_queue.chosen(line, names, rows, far=way.far).subquery(f"{line.word}_chosen")
        query = select(*table.c).where(limited_queue.any_unheld(names).is_(None))
        if not way.with_due:
            query = query.where(limited_queue.first_of(DUE, names, far=False, lateral=True).is_(None))
        return query.cte(f"{line.word}_runs")

    sources = [waiting(READY), *([waiting(DUE)] if way.with_due else [])]
    return _claim_first(sources)


class _SearchRange(NamedTuple):
    """Which runs a claim considers: those far behind the front of the queue, and delayed ones whose time has come."""

    far: bool
    with_due: bool


_MOST = 1000
"""How many runs one call claims, and how many names of workflows it takes."""
_CLAIM = Statement(
    update(runs)
    .where(_R.id == _id)
    .values(
        status=RunStatus.RUNNING,
        restart_count=param("count"),
        lease_owner=param("worker"),
        lease_expires_at=param("until"),
        lease_token=param("token"),
        updated_at=param("at"),
    )
    .returning(*RUN.columns)
)
_CLAIM_READY = Statement(update(runs).where(_R.id == _id).values(CLAIMED).returning(*RUN.columns))


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a worker wants to claim: the checked arguments of Runs.claim."""

    worker: str
    until: datetime
    names: list[str]
    """Workflows; an empty list stands for any workflow."""
    limit: int | None

    @classmethod
    def of(
        cls,
        work: UnitOfWork,
        worker: str,
        lease: timedelta,
        workflow_name: str | None,
        workflow_names: Sequence[str] | None,
        limit: int | None,
    ) -> "ClaimRequest":
        """Check the arguments. Raises InvalidValue."""
        owner = work.label("worker", worker)
        until = instant_after("lease", work.now(), check_timedelta("lease", lease, zero=False))
        names = [] if workflow_name is None else [work.label("workflow_name", workflow_name)]
        if workflow_names is not None:
            if names:
                raise InvalidValue("workflow_names", "give one of workflow_name and workflow_names.")
            given = {work.label("workflow_names", name) for name in check_list("workflow_names", workflow_names)}
            if not 0 < len(given) <= _MOST:
                raise InvalidValue("workflow_names", f"expected from 1 to {_MOST} names.")
            names = sorted(given)
        if limit is not None and (type(limit) is not int or not 0 < limit <= _MOST):
            raise InvalidValue("limit", f"expected a whole number from 1 to {_MOST}.")
        return cls(owner, until, names, limit)

    def values(self) -> dict[str, str]:
        """The names as parameters, padded to a power of two, so that there are few statements."""
        padded = [*self.names, *self.names[-1:] * (rounded(len(self.names)) - len(self.names))]
        return {f"name_{number}": name for number, name in enumerate(padded)}


def nothing_to_claim(work: UnitOfWork, wanted: ClaimRequest) -> NothingToDo | None:
    """Whether there is nothing to claim, by a look that locks nothing."""
    values, now = wanted.values(), work.now()
    found = work.row(queue.first_of_each_line(len(values)), at=now, **values)
    if _is_anything(found) and found is not None:
        limits.know(work, bool(found[-1]))
        if found[-1]:
            one_writer = work.runtime.dialect.one_writer
            for far in (False, True):
                statement = limited_queue.first_with_room(len(values), far=far, one_writer=one_writer)
                found = work.row(statement, at=now, now_ms=epoch_ms(now), **values)
                if found is None or _is_anything(found[:4]) or not _is_anything(found):
                    break
            found = found and found[:4]
    return None if _is_anything(found) else NothingToDo(None if wanted.limit is None else [])


def _is_anything(found: Row | None) -> bool:
    return found is not None and any(id is not None for id in found[:-1])


def claim(work: UnitOfWork, wanted: ClaimRequest) -> list[Lease]:
    """See Runs.claim.

    On Postgres one round trip settles most calls: it claims the first runs of the queue, or finds an empty queue. If a value of a
    claimed row cannot be decoded, the claim is undone. Whatever it does not settle is then done step by step, and on SQLite,
    where no statement waits for a network, everything is.
    """
    values, now = wanted.values(), work.now()
    count = wanted.limit or 1
    taken = {"worker": wanted.worker, "until": wanted.until, "at": now}
    one_writer = work.runtime.dialect.one_writer
    claimed = None if limits.are_known(work) else (_try_first if one_writer else _try_at_once)(work, count, taken, values)
    if claimed is None and not one_writer and limits.are_known(work):
        claimed = try_at_once(work, count, taken, values)
    if claimed is not None:
        return [lease_on(run, wanted.worker) for run in claimed]
    leases: list[Lease] = []
    while len(leases) < count:
        run = _first(work, values, now)
        if run is None:
            break
        died = run.lease_owner is not None
        if died and recovery.at_cap(run):
            recovery.fail_by_cap(work, run, "stale: lease expired")
            continue
        settled = None
        if limits.are_known(work) and (settled := settled_by_limits(work, run, now, placed=died)) is None:
            break
        if settled is not None and settled.excess:
            continue
        with work.batch(last=count == 1) as batch:
            if died:
                recovery.fail_executions_of_run(work, batch, run, "stale: lease expired")
            number = {"count": run.restart_count + died, "token": number_after("lease_token", run.lease_token)}
            written = batch.returned(_CLAIM, row_id=run.id, **number, **taken)
            if settled is not None and settled.starts:
                limits.count_starts(batch, settled.starts, epoch_ms(now))
        assert written.result is not None, "it is locked"
        leases.append(lease_on(RUN(written.result), wanted.worker))
    return leases


def _first(work: UnitOfWork, values: dict[str, str], now: datetime) -> WorkflowRun | None:
    limited, one_writer = limits.are_known(work), work.runtime.dialect.one_writer
    given: dict[str, Any] = {"at": now, **values}
    if limited:
        given["now_ms"] = epoch_ms(now)
    lines = (limited_queue if limited else queue).lines(len(values), one_writer=one_writer)
    unheld = lines[0].find(work, **given)
    found = [unheld] if unheld is not None else [row for line in lines[1:] if (row := line.find(work, **given)) is not None]
    if not limited and any(row[-1] for row in found):
        limits.know(work, True)
        return _first(work, values, now)
    return min([RUN(row[:-1]) for row in found], key=queue.place, default=None)


def _try_first(work: UnitOfWork, count: int, taken: dict[str, Any], values: dict[str, str]) -> list[WorkflowRun] | None:
    """Try to claim the first ready runs, on SQLite: the claimed runs, or None if it is to be done step by step."""
    mark = None if work.journal is None else work.journal.mark()
    found = work.rows(queue.first_ready(len(values), rounded(count)), at=taken["at"], **values)[:count]
    if not found or not all(row[-1] and not any(map(is_unreadable, row)) for row in found):
        return None
    claimed = []
    for id, updated_at, _ in found:
        row = work.returned(_CLAIM_READY, row_id=id, **taken)
        assert row is not None, "nobody else writes"
        claimed.append((*row, updated_at))
    return readable_or_undone(work, claimed, mark)


def _try_at_once(work: UnitOfWork, count: int, taken: dict[str, Any], values: dict[str, str]) -> list[WorkflowRun] | None:
    """Try to claim and commit in one round trip, on Postgres: the claimed runs, or None if it is to be done step by step."""
    names, mark = len(values), None if work.journal is None else work.journal.mark()
    for with_due in (False, True):
        with work.batch(last=True) as batch:
            found = batch.returned_rows(_claim_at_once(names, rounded(count), with_due), many=count, **taken, **values)
            left = batch.row(queue.first_of_each_line(names), at=taken["at"], **values)
        if found.result:
            return readable_or_undone(work, found.result, mark)
        assert left.result is not None
        unheld, _, due, any_limit = left.result
        limits.know(work, any_limit)
        if not _is_anything(left.result):
            return []
        if any_limit or unheld is not None or due is None:
            break
    return None


@cache
def _claim_at_once(names: int, rows: int, with_due: bool) -> Statement:
    """Claim the first runs of the queue, at most `rows`, unless an unheld running run exists, which comes first, or a limit.

    `rows` is a literal in the statement: Postgres cannot know that a parameter is small, and would sort the queue. Without
    `with_due` it claims nothing while a delayed run is due: how many are due Postgres cannot know either, and would plan each
    claim anew. Returns the runs, and their `updated_at` from before the claim, with which the claim can be undone.
    """
    most: ColumnElement[Any] = literal_column(str(rows))

    def waiting(name: str, find: Any) -> Any:
        table: FromClause = runs.alias(name)
        columns = (table.c.id, table.c.priority, queued_since(table).label("since"), table.c.updated_at)
        query = find(table, names, *columns).where(~ANY_LIMIT, queue.any_unheld(names).is_(None), is_plain(table))
        if not with_due:
            query = query.where(queue.any_due(names).is_(None))
        return query.limit(most).cte(f"{name}_runs")

    def ready(table: FromClause, names: int, *columns: Any) -> Any:
        return queue.ready_of_several(table, names, rows, *columns) if names > 1 else queue.ready(table, names, *columns)

    sources = [waiting("ready", ready), *([waiting("due", queue.due)] if with_due else [])]
    return _claim_first(sources)
