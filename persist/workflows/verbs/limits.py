"""Limits on how many runs run at once and start in a period, what claims do about them, and an operator's overrides."""

from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import delete, insert, select, update

from persist.db.changes.batch import Batch
from persist.db.dialects.interface import RUNS
from persist.db.expressions.upsert import insert_missing, seen, upsert
from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork, acting
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import check_count, check_flag, check_timedelta
from persist.db.values.pages import PagedList
from persist.errors import InvalidValue
from persist.workflows.fire_times import check_schedule
from persist.workflows.models import cron_overrides, limits, starts, workflow_overrides
from persist.workflows.schemas import ANY_WORKFLOW, WORKFLOW_PREFIX, CronOverride, Limit, WorkflowOverride, WorkflowRun
from persist.workflows.storage.run_rows import announce_claimable

# What claims do about limits: whether there are any, which of the claimed runs have to go back, and counting starts.

_S = starts.c
_ADD = Statement(insert(starts))
_FORGET = Statement(delete(starts).where(_S.key == param("of_key"), _S.seq <= param("until_seq")))
_known: WeakKeyDictionary[Runtime, bool] = WeakKeyDictionary()
"""Whether a store has met limits lately. It only decides which statement comes first: each finds out if it is the wrong one."""


def are_known(work: UnitOfWork) -> bool:
    """Whether claims of this store have met limits lately."""
    return _known.get(work.runtime, False)


def know(work: UnitOfWork, found: bool) -> None:
    """Remember whether there are limits."""
    _known[work.runtime] = found


def keys_of(run: WorkflowRun) -> tuple[str, ...]:
    """The keys of the limits under which a run is."""
    of_workflow = WORKFLOW_PREFIX + run.workflow_name
    return (of_workflow,) if run.concurrency_key is None else (of_workflow, run.concurrency_key)


def announce_freed(work: UnitOfWork, run: WorkflowRun) -> None:
    """Wake idle workers after the commit: a run no longer runs, and has perhaps left its place to another one."""
    if run.concurrency_key is not None:
        work.announce(RUNS, ANY_WORKFLOW)
    elif _known.get(work.runtime, True):
        announce_claimable(work, run)


class Standing(NamedTuple):
    """How one limit stands, as `limit_conditions` reads it under the limit's lock."""

    key: str
    concurrency: int | None
    rate: int | None
    per_ms: int | None
    running: int
    last: int
    blocked: int
    """How many of the next `many` starts would be too many within the period."""


class Claimed(NamedTuple):
    """Claimed runs, as their limits have it."""

    kept: list[WorkflowRun]
    excess: list[WorkflowRun]
    """The claimed runs for which there is no room after all."""
    starts: dict[str, tuple[Standing, int]]
    """The starts to be counted, by key."""


def settle(claimed: Sequence[WorkflowRun], rows: Sequence[Row], many: int, *, counted: bool, placed: bool = False) -> Claimed:
    """Which of the claimed runs may start.

    rows     the limits; those of `blocked` are counted for the next `many` starts
    counted  whether the claimed runs are among the running ones of these rows
    placed   whether they have had their places before
    """
    standings = {row[0]: Standing(*row) for row in rows}
    under: dict[str, int] = dict.fromkeys(standings, 0)
    for run in claimed:
        for key in keys_of(run):
            if key in under:
                under[key] += 1
    places, free = {}, {}
    for key, one in standings.items():
        if one.concurrency is not None and not placed:
            places[key] = one.concurrency - one.running + (under[key] if counted else 0)
        if one.rate is not None and one.per_ms is not None and one.per_ms > 0:
            free[key] = min(many, one.rate) - one.blocked
    result = Claimed([], [], {})
    for run in claimed:
        keys = [key for key in keys_of(run) if key in standings]
        if any(places.get(key, 1) < 1 or free.get(key, 1) < 1 for key in keys):
            result.excess.append(run)
            continue
        result.kept.append(run)
        for key in keys:
            if key in places:
                places[key] -= 1
            if key in free:
                free[key] -= 1
                result.starts[key] = standings[key], result.starts.get(key, (standings[key], 0))[1] + 1
    return result


def count_starts(batch: Batch, counted: dict[str, tuple[Standing, int]], now_ms: int) -> None:
    """Store the starts, and forget those that no longer matter."""
    rows: list[dict[str, Any]] = []
    for key, (standing, count) in counted.items():
        assert standing.rate is not None
        rows += [{"key": key, "seq": standing.last + number, "at_ms": now_ms} for number in range(1, count + 1)]
        batch.run(_FORGET, of_key=key, until_seq=standing.last + count - standing.rate)
    batch.run_many(_ADD, rows)


# Limits: how many runs of a workflow, or with one concurrency key, run at once, and how many start in a period.

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
        know(work, found=True)
        work.announce(RUNS, ANY_WORKFLOW)
        assert written.result is not None
        return _LIMIT(written.result)

    @reads
    def get(self, key: str) -> Limit | None:
        """The limit, None if there is none."""
        return _LIMIT.optional(self._work.row(_GET, row_key=self._work.label("key", key)))

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
    return timedelta(milliseconds=max(-_LONGEST_MS + _DAY_MS, min(per_ms, _LONGEST_MS)))


class Omitted(Enum):
    """The default of an argument for which None has a meaning."""

    OMITTED = "omitted"


OMITTED = Omitted.OMITTED
_C, _W = cron_overrides.c, workflow_overrides.c
_name = param("row_name")
_CRON_VALUE, _WORKFLOW_VALUE = Values(CronOverride, cron_overrides), Values(WorkflowOverride, workflow_overrides)
_CRON = Statement(select(*_CRON_VALUE.columns).where(_C.name == _name))
_WORKFLOW = Statement(select(*_WORKFLOW_VALUE.columns).where(_W.name == _name))
_CRONS = Keyset("workflows.cron_overrides", _CRON_VALUE, (_C.name,), descending=False, exact=True)
_WORKFLOWS = Keyset("workflows.workflow_overrides", _WORKFLOW_VALUE, (_W.name,), descending=False, exact=True)
_ADD_CRON = Statement(insert_missing(cron_overrides, "name"))
_ADD_WORKFLOW = Statement(insert_missing(workflow_overrides, "name"))
_SET_WORKFLOW = Statement(
    update(workflow_overrides).where(_W.name == _name).values(enabled=param("on"), updated_at=param("at"), updated_by=param("by"))
)
_CLEAR_CRON = Statement(delete(cron_overrides).where(_C.name == _name))
_CLEAR_WORKFLOW = Statement(delete(workflow_overrides).where(_W.name == _name))


@cache
def _set_cron(*given: str) -> Statement:
    values = {name: param(f"set_{name}") for name in given}
    return Statement(
        update(cron_overrides).where(_C.name == _name).values(**values, updated_at=param("at"), updated_by=param("by"))
    )


class CronOverrides(Repository[F]):
    """`tx.workflows.cron_overrides`: an operator's changes to schedules."""

    @writes
    def set(
        self, name: str, *, enabled: bool | Omitted = OMITTED, schedule: str | Omitted | None = OMITTED, by: str | None = None
    ) -> CronOverride:
        """Change what is given and keep what is omitted; a schedule of None is the default one again.

        Raises InvalidValue for a schedule that is no cron expression (persist.workflows.fire_times).
        """
        work = self._work
        row_name, changed_by, now = work.label("name", name), acting(work, "by", by), work.now()
        given: dict[str, Any] = {}
        if not isinstance(enabled, Omitted):
            given["enabled"] = check_flag("enabled", enabled)
        if not isinstance(schedule, Omitted):
            given["schedule"] = None if schedule is None else check_schedule("schedule", work.label("schedule", schedule))
        values = {f"set_{field}": value for field, value in given.items()}
        with work.batch(last=True) as batch:
            batch.run(_ADD_CRON, name=row_name, enabled=True, schedule=None, updated_at=now, updated_by=changed_by)
            batch.run(_set_cron(*given), row_name=row_name, at=now, by=changed_by, **values)
            written = batch.row(_CRON, row_name=row_name)
        return _CRON_VALUE(seen(written.result, _ADD_CRON, "cron override", name))

    @reads
    def get(self, name: str) -> CronOverride | None:
        """The override, None where the defaults hold."""
        return _CRON_VALUE.optional(self._work.row(_CRON, row_name=self._work.label("name", name)))

    @reads
    def all(self, *, limit: int | None = None, after: str | None = None) -> PagedList[CronOverride]:
        """Every override, by name; with a `limit` a page, whose `cursor` is `after` for the next one."""
        return _CRONS.pages(self._work, limit, after)

    @writes
    def clear(self, name: str) -> bool:
        """Restore the defaults; False if they hold already."""
        return bool(self._work.run_last(_CLEAR_CRON, row_name=self._work.label("name", name)))


class WorkflowOverrides(Repository[F]):
    """`tx.workflows.workflow_overrides`: an operator's changes to workflows."""

    @writes
    def set(self, name: str, *, enabled: bool, by: str | None = None) -> WorkflowOverride:
        """Switch a workflow on or off."""
        work = self._work
        row_name, on = work.label("name", name), check_flag("enabled", enabled)
        changed_by, now = acting(work, "by", by), work.now()
        with work.batch(last=True) as batch:
            batch.run(_ADD_WORKFLOW, name=row_name, enabled=on, updated_at=now, updated_by=changed_by)
            batch.run(_SET_WORKFLOW, row_name=row_name, on=on, at=now, by=changed_by)
            written = batch.row(_WORKFLOW, row_name=row_name)
        return _WORKFLOW_VALUE(seen(written.result, _ADD_WORKFLOW, "workflow override", name))

    @reads
    def is_enabled(self, name: str) -> bool:
        """Whether the workflow may run: yes, unless it was switched off."""
        row = self._work.row(_WORKFLOW, row_name=self._work.label("name", name))
        return row is None or bool(row[_WORKFLOW_VALUE.fields.index("enabled")])

    @reads
    def all(self, *, limit: int | None = None, after: str | None = None) -> PagedList[WorkflowOverride]:
        """Every override, by name; with a `limit` a page, whose `cursor` is `after` for the next one."""
        return _WORKFLOWS.pages(self._work, limit, after)

    @writes
    def clear(self, name: str) -> bool:
        """Delete the override, which enables the workflow; False if there was none."""
        return bool(self._work.run_last(_CLEAR_WORKFLOW, row_name=self._work.label("name", name)))
