"""Claims where there are limits. What a limit allows is decided under its lock, after everything that others have committed."""

from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import bindparam, select, union_all

from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import epoch_ms
from persist.workflows.schemas import WorkflowRun
from persist.workflows.storage import limit_conditions, limited_queue
from persist.workflows.storage.limited_queue import DUE, READY
from persist.workflows.storage.run_rows import RUN
from persist.workflows.verbs import limiting
from persist.workflows.verbs.claim_statements import GIVE_BACK, claim_chosen, readable_or_undone, rounded

_ATTEMPTS = 4
"""How often a claim begins anew that met locks of others."""


def try_at_once(work: UnitOfWork, count: int, taken: dict[str, Any], values: dict[str, str]) -> list[WorkflowRun] | None:
    """Try to claim in one round trip, on Postgres: the claimed runs, or None if it is to be done step by step.

    The statement that claims has counted before it got the locks of the limits. So the next one counts again, and what is too
    many goes back.
    """
    names, now_ms = len(values), epoch_ms(taken["at"])
    given = {"at": taken["at"], "now_ms": now_ms, **values}
    ours = {"worker": taken["worker"], "until": taken["until"], "many": count, "now_ms": now_ms}
    way, rows = _Way(far=False, with_due=False), rounded(count)
    for _ in range(_ATTEMPTS):
        mark = None if work.journal is None else work.journal.mark()
        with work.batch() as batch:
            found = batch.returned_rows(_claim_at_once(names, rows, way), many=count, now_ms=now_ms, **taken, **values)
            standings = batch.rows(limit_conditions.standing_of_claimed(), **ours)
        if found.result:
            claimed = readable_or_undone(work, found.result, mark)
            if claimed is None:
                return None
            settled = limiting.settle(claimed, standings.result, count, counted=True)
            _put_back(work, settled.excess, {row[RUN.fields.index("id")]: row[-1] for row in found.result})
            if settled.starts:
                with work.batch(last=True) as batch:
                    limiting.count_starts(batch, settled.starts, now_ms)
            if settled.kept:
                return settled.kept
            continue
        left = work.row(limited_queue.look(names, far=way.far, one_writer=False), **given)
        assert left is not None
        unheld, ready, due, any_ready, any_due, any_limit = left
        limiting.know(work, any_limit)
        if unheld is not None:
            return None
        elif ready is None and due is None:
            if way.far or (any_ready is None and any_due is None):
                return []
            way = _Way(far=True, with_due=True)
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


def settled(work: UnitOfWork, run: WorkflowRun, now: datetime, *, placed: bool) -> limiting.Claimed | None:
    """Whether a locked run may be claimed, with its limits locked; None if another claim has locked one of them.

    `placed`: whether it has had its place before, and is taken over.
    """
    one_writer = work.runtime.dialect.one_writer
    with work.batch() as batch:
        mine = None if one_writer else batch.rows(limit_conditions.lock_of_run(), row_id=run.id)
        standings = batch.rows(limit_conditions.standing_of_run(), row_id=run.id, many=1, now_ms=epoch_ms(now))
    if mine is not None and not {row[0] for row in standings.result} <= {row[0] for row in mine.result}:
        return None
    return limiting.settle([run], standings.result, 1, counted=False, placed=placed)


@cache
def _claim_at_once(names: int, rows: int, way: "_Way") -> Statement:
    """Claim the first runs of the queue for which there is room, as `claiming` does it without limits."""

    def waiting(line: Any) -> Any:
        table = limited_queue.chosen(line, names, rows, far=way.far).subquery(f"{line.word}_chosen")
        query = select(*table.c).where(limited_queue.any_unheld(names).is_(None))
        if not way.with_due:
            query = query.where(limited_queue.first_of(DUE, names, far=False, lateral=True).is_(None))
        return query.cte(f"{line.word}_runs")

    sources = [waiting(READY), *([waiting(DUE)] if way.with_due else [])]
    both = union_all(*[select(*one.c) for one in sources]).subquery("both") if way.with_due else sources[0]
    order = (both.c.priority.desc(), both.c.since, both.c.id)
    many = bindparam("many", type_=Int64())
    return claim_chosen(select(both.c.id, both.c.updated_at).order_by(*order).limit(many).cte("chosen"))


class _Way(NamedTuple):
    """Which runs a claim considers: those far behind the front of the queue, and delayed ones whose time has come."""

    far: bool
    with_due: bool
