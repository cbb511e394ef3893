"""Limits: how many runs of a workflow, or with one concurrency key, run at once, and how many start in a period."""

from datetime import timedelta

from sqlalchemy import delete, select

from persist.db.dialects.event_log import RUNS
from persist.db.expressions.upsert import upsert
from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import check_count, check_timedelta
from persist.db.values.pages import PagedList
from persist.errors import InvalidValue
from persist.workflows.limit_values import ANY_WORKFLOW, WORKFLOW_PREFIX, Limit
from persist.workflows.models import limits, starts
from persist.workflows.verbs import limiting

List = list
_L = limits.c
_key = param("row_key")
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_MS, _DAY_MS = timedelta.max // _MILLISECOND, 86_400_000
_LIMIT = Values(Limit, limits, per=_L.per_ms, decode={"per": lambda ms: ms if ms is None or is_unreadable(ms) else _span(ms)})
_LIMITS = Keyset("workflows.limits", _LIMIT, (_L.key,), descending=False, exact=True)
_GET = Statement(select(*_LIMIT.columns).where(_L.key == _key))
_SET = Statement(upsert(limits, "key"))
_DELETE = Statement(delete(limits).where(_L.key == _key))
_FORGET_STARTS = Statement(delete(starts).where(starts.c.key == _key))


class Limits(Repository[F]):
    """`tx.workflows.limits`. A key is `workflow:NAME`, for all runs of a workflow, or the `concurrency_key` of runs."""

    @writes
    def set(self, key: str, concurrency: int | None = None, rate: int | None = None, per: timedelta | None = None) -> Limit:
        """Limit the runs of the key: at most `concurrency` run at once, at most `rate` are claimed in any time as long as `per`.

        Replaces what was set before; None limits nothing. Runs that run already go on. Raises InvalidValue.
        """
        work = self._work
        row_key = work.label("key", key)
        if row_key == WORKFLOW_PREFIX:
            raise InvalidValue("key", f"the name of a workflow follows after {WORKFLOW_PREFIX!r}.")
        if concurrency is None and rate is None:
            raise InvalidValue("concurrency", "name a concurrency, a rate, or both; delete the limit to have none.")
        if (rate is None) != (per is None):
            raise InvalidValue("per", "a rate is so many starts per length of time: name both, or none.")
        for path, number in (("concurrency", concurrency), ("rate", rate)):
            if number is not None and check_count(path, number) < 1:
                raise InvalidValue(path, "expected at least 1; switch a workflow off with an override.")
        per_ms = None if per is None else check_timedelta("per", per, zero=False) // _MILLISECOND
        given = {"concurrency": concurrency, "rate": rate, "per_ms": per_ms, "updated_at": work.now()}
        with work.batch(last=True) as batch:
            batch.run(_SET, key=row_key, **given)
            if rate is None:
                batch.run(_FORGET_STARTS, row_key=row_key)
            written = batch.row(_GET, row_key=row_key)
        limiting.know(work, found=True)
        work.announce(RUNS, ANY_WORKFLOW)
        assert written.result is not None
        return _LIMIT(written.result)

    @reads
    def get(self, key: str) -> Limit | None:
        """The limit, None if there is none."""
        row = self._work.row(_GET, row_key=self._work.label("key", key))
        return _LIMIT.optional(row)

    @reads
    def list(self, *, limit: int | None = None, after: str | None = None) -> PagedList[Limit]:
        """Every limit, by key; with a `limit` a page, whose `cursor` is `after` for the next one."""
        return _LIMITS.pages(self._work, limit, after)

    @writes
    def delete(self, key: str) -> bool:
        """Lift the limit; False if there was none."""
        work = self._work
        row_key = work.label("key", key)
        with work.batch(last=True) as batch:
            batch.run(_FORGET_STARTS, row_key=row_key)
            deleted = batch.run(_DELETE, row_key=row_key)
        work.announce(RUNS, ANY_WORKFLOW)
        return bool(deleted.result)


def _span(per_ms: int) -> timedelta:
    """The length of time, or the longest one that there is."""
    return timedelta(milliseconds=max(-_LONGEST_MS + _DAY_MS, min(per_ms, _LONGEST_MS)))
