"""Reading workflow runs: single runs, lists, counts, holders, and the cost of a run with its descendants."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from sqlalchemy import ColumnElement, Select, bindparam, cast, func, select, union_all

from persist.db.expressions.keyset import behind
from persist.db.expressions.numbers import whole_total
from persist.db.operations.keyset import BoundedCount, Keyset, limit_of, page_rows
from persist.db.schema.column_types import Float64
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import Async, F, Repository, Sync, reads
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.unreadable.excerpts import excerpt
from persist.db.values.arguments import Count, check_choice, check_flag, check_keywords
from persist.db.values.clock import as_utc, epoch_ms
from persist.db.values.frozen import construct
from persist.db.values.pages import Page, PagedList, check_limit, optional_limit, values_after
from persist.errors import InvalidValue, NotFound
from persist.workflows.models import HAS_FAILURE_KIND, IS_CHILD, IS_UNFINISHED_RUN, USED_TOKENS, executions, runs
from persist.workflows.schemas import ACTIVE, FailureKind, FamilyTotals, Lease, RunRow, RunStatus, WorkflowRun, WorkflowRunSummary
from persist.workflows.storage.run_rows import RUN, family, get_run
from persist.workflows.verbs import recovery

# What a run and its descendants cost together.

_R = runs.c
_E = executions.c
_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


def _statuses(*, orphans: bool) -> Statement:
    tree = family(_R.status, orphans=orphans)
    return Statement(select(tree.c.status, func.count()).group_by(tree.c.status), unreadable=OnUnreadable.RAISE)


def _usage(*, orphans: bool) -> Statement:
    tree = family(orphans=orphans)
    sums: list[Any] = [whole_total(_E[name]) for name in _TOKENS]
    cost = func.coalesce(func.sum(_E.cost_usd), cast(0, Float64()))
    query = select(func.count(), *sums, USED_TOKENS, cost)
    return Statement(query.select_from(tree.join(executions, _E.workflow_run_id == tree.c.id)))


_BY_STATUS, _USAGE = ({orphans: made(orphans=orphans) for orphans in (False, True)} for made in (_statuses, _usage))


# Lists of runs: one prepared statement per combination of filters, each served in order by one index.
#
# Lists never touch the blobs of a run. With several statuses each is read in its own order, and the heads are merged, so that a
# rare status costs as little as a frequent one.

S = TypeVar("S", WorkflowRunSummary, RunRow)
_LIST = "workflows.runs"
MOST_COUNTED = 10_000
"""Up to how many runs a count is exact that need not be exact."""
_PHASES = excerpt(_R.phase_history, "phase", "timestamp", optional=("status", "success"))
"""The short fields of each phase; entries of up to 64 KiB are read only by `get`."""
_used = select(executions).where(_E.workflow_run_id == _R.id)
_cost = func.coalesce(func.sum(_E.cost_usd), cast(0, Float64()))
SUMMARY = Values(
    WorkflowRunSummary,
    runs,
    phase_history=_PHASES.label("phase_history"),
    total_tokens=_used.with_only_columns(USED_TOKENS).scalar_subquery().label("total_tokens"),
    cost_usd=_used.with_only_columns(_cost).scalar_subquery().label("cost_usd"),
)
"""A run as lists show it, with the usage of its executions."""


class CountFilters(TypedDict, total=False):
    """Which runs are counted. `since` is inclusive; no status means every status. None filters nothing."""

    status: str | Sequence[str] | None
    workflow_name: str | None
    since: datetime | None
    failure_kind: str | None


class RunFilters(CountFilters, total=False):
    """Which runs are listed."""

    trigger_id: str | None
    parent_run_id: str | None


@dataclass(frozen=True, slots=True)
class Filters:
    """Which runs a list shows: the statement it takes, and the statement's values."""

    statuses: int
    values: dict[str, Any]

    @classmethod
    def of(cls, work: UnitOfWork, status: str | Sequence[str] | None = None, **others: Any) -> "Filters":
        """Check RunFilters. No status, or every status, is no filter."""
        given = () if status is None else (status,) if isinstance(status, str) else status
        if not isinstance(given, Iterable):
            raise InvalidValue("status", "expected a status, or a sequence of them.")
        statuses = sorted({check_choice("status", one, RunStatus) for one in given})
        if len(statuses) == len(RunStatus):
            statuses = []
        values: dict[str, Any] = {f"status_{number}": one for number, one in enumerate(statuses)}
        for name, value in check_keywords(others, RunFilters).items():
            if name == "since":
                values[name] = as_utc(name, value)
            elif name == "failure_kind":
                values[name] = check_choice(name, value, FailureKind)
            else:
                values[name] = work.label(name, value)
        return cls(len(statuses), values)

    def given(self, name: str) -> bool:
        """Whether that filter is set."""
        return name in self.values

    def plain(self) -> dict[str, Any]:
        """The filters in the form that a cursor stores."""
        return {name: epoch_ms(value) if name == "since" else value for name, value in self.values.items()}


def page_of_runs(work: UnitOfWork, filters: Filters, limit: int, after: str | None, make: Callable[[Row], S]) -> Page[S]:
    """One page, newest started first; `make` turns a row into an item."""
    limit = check_limit(limit)
    values = filters.values if after is None else filters.values | values_after(after, _LIST, filters.plain())
    statement = partial(
        page_statement,
        statuses=filters.statuses,
        named=filters.given("workflow_name"),
        triggered=filters.given("trigger_id"),
        since=filters.given("since"),
        failed=filters.given("failure_kind"),
        of_parent=filters.given("parent_run_id"),
        after=after is not None,
    )
    rows = page_rows(work, statement, limit, values)
    return Page.of(
        rows, limit, make, name=_LIST, filters=filters.plain(), key=lambda _, item: [epoch_ms(item.started_at), item.id]
    )


def _with_usage(chosen: Select[Any]) -> Statement:
    """Join chosen runs (id, started_at) with columns and usage of executions. Indexes choose, so only shown runs are read."""
    found = chosen.subquery("chosen")
    shown = select(*SUMMARY.columns).select_from(found.join(runs, _R.id == found.c.id))
    return Statement(shown.order_by(found.c.started_at.desc(), found.c.id.desc()))


@cache
def page_statement(
    rows: int | None, *, statuses: int, named: bool, triggered: bool, since: bool, failed: bool, of_parent: bool, after: bool
) -> Statement:
    """The newest runs, by statuses (parameters status_0 …) and other filters. `rows`: see bounded_deletion."""

    def newest(status: str | None, query: Select[Any]) -> Select[Any]:
        order = [_R.started_at.desc(), _R.id.desc()]
        if status is not None:
            query = query.where(_R.status == param(status))
        if named and not (statuses or triggered or since or failed or of_parent or after):
            # Only the index of names has this order: Postgres would rather walk that of all runs, as far as the name's last one.
            query = query.where(_R.workflow_name >= param("workflow_name"), _R.workflow_name <= param("workflow_name"))
            order = [_R.workflow_name.asc(), *order]
        elif named:
            query = query.where(_R.workflow_name == param("workflow_name"))
        query = query.order_by(*order).limit(limit_of(rows))
        if triggered:
            query = query.where(_R.trigger_id == param("trigger_id"))
        if since:
            query = query.where(_R.started_at >= param("since"))
        if failed:
            query = query.where(*_failed())
        if of_parent:
            query = query.where(IS_CHILD, _R.parent_run_id == param("parent_run_id"))
        if after:
            query = query.where(behind((_R.started_at, _R.id), ("after_at", "after_id"), descending=True))
        return query

    if not (statuses or named or triggered or failed or of_parent):
        return Statement(newest(None, select(*SUMMARY.columns)))  # one index has this order, and no other one fits
    key = select(_R.id, _R.started_at)
    if statuses < 2:
        return _with_usage(newest("status_0" if statuses else None, key))
    heads = [newest(f"status_{number}", key).subquery() for number in range(statuses)]
    merged = union_all(*[select(*head.c) for head in heads]).subquery()
    latest = select(*merged.c).order_by(merged.c.started_at.desc(), merged.c.id.desc())
    return _with_usage(latest.limit(limit_of(rows)))


def _failed() -> tuple[ColumnElement[bool], ...]:
    return HAS_FAILURE_KIND, _R.failure_kind == param("failure_kind")


ACTIVE_RUNS = _with_usage(select(_R.id, _R.started_at).where(among(_R.status, ACTIVE)))
_QUEUED = Keyset(
    "workflows.runs.queued", SUMMARY, (_R.started_at, _R.id), where=[_R.status == RunStatus.QUEUED], descending=False, exact=True
)


def _names() -> Statement:
    """Every workflow name once: a loose index scan that jumps from name to name."""
    first = select(func.min(_R.workflow_name).label("name")).cte("names", recursive=True)
    following = select(func.min(_R.workflow_name)).where(_R.workflow_name > first.c.name).scalar_subquery()
    names = first.union_all(select(following).where(first.c.name.is_not(None)))
    return Statement(select(names.c.name).where(names.c.name.is_not(None)).order_by(names.c.name))


NAMES = _names()


@cache
def count_statement(statuses: int, *, named: bool, since: bool, failed: bool) -> Statement:
    """How many runs meet the filters."""
    return Statement(_filtered(select(func.count()).select_from(runs), statuses, named=named, since=since, failed=failed))


@cache
def bounded_count(statuses: int, *, named: bool, since: bool, failed: bool) -> BoundedCount:
    """How many runs meet the filters, exact up to MOST_COUNTED."""
    return BoundedCount(_filtered(select(_R.id), statuses, named=named, since=since, failed=failed), MOST_COUNTED)


def _filtered(query: Select[Any], statuses: int, *, named: bool, since: bool, failed: bool) -> Select[Any]:
    if statuses:
        query = query.where(_R.status.in_([bindparam(f"status_{number}", type_=_R.status.type) for number in range(statuses)]))
    if named:
        query = query.where(_R.workflow_name == param("workflow_name"))
    if since:
        query = query.where(_R.started_at >= param("since"))
    if failed:
        query = query.where(*_failed())
    return query


List = list
_BY_TRIGGER = Statement(
    select(*RUN.columns)
    .where(_R.trigger_id == param("trigger_id"), IS_UNFINISHED_RUN)
    .order_by(_R.started_at.desc(), _R.id.desc())
    .limit(1)
)
_HAS_TRIGGER = Statement(select(_R.id).where(_R.trigger_id == param("trigger_id")).limit(1))


class RunReads(Repository[F]):
    """The reading verbs of `tx.workflows.runs`."""

    @reads
    def get(self, id: str) -> WorkflowRun:
        """The run with all columns. Raises NotFound."""
        return get_run(self._work, id)

    @reads
    def list(self, *, limit: int = 20, after: str | None = None, **filters: Unpack[RunFilters]) -> Page[WorkflowRunSummary]:
        """Runs, newest started first, without their blobs; `since` is inclusive, no status means every status.

        Pass `cursor` as `after` for the next page. Totals: `count`.
        """
        return page_of_runs(self._work, Filters.of(self._work, **filters), limit, after, SUMMARY)

    @reads
    def list_rows(self, *, limit: int = 20, after: str | None = None, **filters: Unpack[RunFilters]) -> Page[RunRow]:
        """The page of `list` as named tuples, which cost less to make; cursors of both verbs are interchangeable."""
        return page_of_runs(self._work, Filters.of(self._work, **filters), limit, after, RunRow._make)

    @overload
    def count(self: Repository[Sync], /, *, exact: Literal[False], **filters: Unpack[CountFilters]) -> Count: ...
    @overload
    def count(self: Repository[Sync], /, *, exact: bool = True, **filters: Unpack[CountFilters]) -> int: ...
    @overload
    def count(
        self: Repository[Async], /, *, exact: Literal[False], **filters: Unpack[CountFilters]
    ) -> Coroutine[Any, Any, Count]: ...
    @overload
    def count(self: Repository[Async], /, *, exact: bool = True, **filters: Unpack[CountFilters]) -> Coroutine[Any, Any, int]: ...
    @reads
    def count(self, *, exact: bool = True, **filters: Unpack[CountFilters]) -> Any:
        """How many runs meet the filters of `list`.

        An exact count reads all of them, and is an int. With `exact=False` at most 10,000 are read, and the result is a Count, an
        int with `exact` and `basis`. If there are more, it is an estimate of Postgres's planner, or on SQLite "at least" 10,000.
        """
        wanted = Filters.of(self._work, **check_keywords(filters, CountFilters))
        work, wanted = self._work, Filters.of(self._work, **check_keywords(filters, CountFilters))
        given = {"named": wanted.given("workflow_name"), "since": wanted.given("since"), "failed": wanted.given("failure_kind")}
        if not check_flag("exact", exact):
            return bounded_count(wanted.statuses, **given).count(work, **wanted.values)
        row = work.row(count_statement(wanted.statuses, **given), **wanted.values)
        assert row is not None
        return int(row[0])

    @reads
    def children(
        self, id: str, *, status: str | Sequence[str] | None = None, limit: int = 20, after: str | None = None
    ) -> Page[WorkflowRunSummary]:
        """The child runs of a run, as `list` shows them. Raises NotFound without the run and children."""
        filters = Filters.of(self._work, status=status, parent_run_id=self._work.label("id", id))
        page = page_of_runs(self._work, filters, limit, after, SUMMARY)
        if not page.items and after is None and not status:
            get_run(self._work, id)
        return page

    @reads
    def family(self, id: str) -> FamilyTotals:
        """The cost of the run and all its descendants, with counts by status; the run may be gone. Raises NotFound."""
        work, root = self._work, self._work.label("id", id)
        for orphans in (False, True):
            if counted := work.rows(_BY_STATUS[orphans], root=root):
                break
        else:
            raise NotFound("workflow run", id)
        used = work.row(_USAGE[orphans], root=root)
        assert used is not None
        number, *tokens, total, cost = used
        by_status = {str(status): int(count) for status, count in counted}
        return construct(
            FamilyTotals,
            {
                "run_id": root,
                "runs": sum(by_status.values()),
                "by_status": by_status,
                "executions": int(number),
                **{name: int(value) for name, value in zip(_TOKENS, tokens, strict=True)},
                "total_tokens": int(total),
                "cost_usd": float(cost),
            },
        )

    @reads
    def list_active(self, *, limit: int | None = None, after: str | None = None) -> PagedList[WorkflowRunSummary]:
        """Runs that are running or paused, newest first; with a `limit` a page, whose `cursor` is the next `after`."""
        if optional_limit(limit, after) is None:
            return PagedList(map(SUMMARY, self._work.rows(ACTIVE_RUNS)))
        assert limit is not None
        found = page_of_runs(self._work, Filters.of(self._work, status=sorted(ACTIVE)), limit, after, SUMMARY)
        return PagedList(found.items, found.cursor)

    @reads
    def list_queued(self, *, limit: int | None = None, after: str | None = None) -> PagedList[WorkflowRunSummary]:
        """Runs that wait to be admitted or claimed, oldest first; with a `limit` a page, whose `cursor` is the next `after`."""
        return _QUEUED.pages(self._work, limit, after)

    @reads
    def distinct_names(self) -> List[str]:
        """Every workflow name that has runs, sorted."""
        return [name for (name,) in self._work.rows(NAMES)]

    @reads
    def get_by_trigger(self, trigger_id: str) -> WorkflowRun | None:
        """The newest run of the trigger that has not ended."""
        row = self._work.row(_BY_TRIGGER, trigger_id=self._work.label("trigger_id", trigger_id))
        return RUN.optional(row)

    @reads
    def has_run_for_trigger(self, trigger_id: str) -> bool:
        """Whether the trigger ever had a run, of whatever status."""
        return self._work.row(_HAS_TRIGGER, trigger_id=self._work.label("trigger_id", trigger_id)) is not None

    @reads
    def held_by(self, worker: str) -> List[Lease]:
        """The unexpired leases that the worker holds, the run started first coming first.

        For a worker that was cancelled or restarted after a claim committed, before it received the lease.
        """
        return recovery.held_by(self._work, worker)
