"""Lists of runs: one prepared statement per combination of filters, each served in order by one index.

Lists never touch the blobs of a run. With several statuses each is read in its own order, and the heads are merged, so
that a rare status costs as little as a frequent one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any, TypeVar

from sqlalchemy import Select, bindparam, cast, func, select, union_all
from sqlalchemy.sql.elements import ColumnElement

from persist.db.expressions.keyset import behind
from persist.db.operations.keyset import Keyset
from persist.db.operations.literal_limits import limit_of, page_rows
from persist.db.schema.column_types import Float64
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.statements.row_values import Values
from persist.db.transactions.bounded_counts import BoundedCount
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.excerpts import excerpt
from persist.db.values.arguments import check_choice
from persist.db.values.clock import as_utc, epoch_ms
from persist.db.values.pages import Page, PagedList, check_limit, optional_limit, values_after
from persist.errors import InvalidValue
from persist.workflows.models import HAS_FAILURE_KIND, IS_CHILD, USED_TOKENS, executions, runs
from persist.workflows.schemas import FailureKind, RunRow, RunStatus, WorkflowRunSummary
from persist.workflows.transitions import ACTIVE

S = TypeVar("S", WorkflowRunSummary, RunRow)
_LIST = "workflows.runs"
MOST_COUNTED = 10_000
"""Up to how many runs a count is exact that need not be exact."""
_R, _E = runs.c, executions.c
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
"""What a list shows of a run, with the usage of its executions."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which runs a list shows: the statement it takes, and the statement's values."""

    statuses: int
    values: dict[str, Any]

    @classmethod
    def of(
        cls,
        work: UnitOfWork,
        *,
        status: str | Sequence[str] | None,
        workflow_name: str | None = None,
        trigger_id: str | None = None,
        since: datetime | None = None,
        failure_kind: str | None = None,
        parent_run_id: str | None = None,
    ) -> "Filters":
        """Check the filters. No status, or every status, is no filter."""
        given = () if status is None else (status,) if isinstance(status, str) else status
        if not isinstance(given, Iterable):
            raise InvalidValue("status", "expected a status, or a sequence of them.")
        statuses = sorted({check_choice("status", one, RunStatus) for one in given})
        if len(statuses) == len(RunStatus):
            statuses = []
        values: dict[str, Any] = {f"status_{number}": one for number, one in enumerate(statuses)}
        if workflow_name is not None:
            values["workflow_name"] = work.label("workflow_name", workflow_name)
        if trigger_id is not None:
            values["trigger_id"] = work.label("trigger_id", trigger_id)
        if since is not None:
            values["since"] = as_utc("since", since)
        if failure_kind is not None:
            values["failure_kind"] = check_choice("failure_kind", failure_kind, FailureKind)
        if parent_run_id is not None:
            values["parent_run_id"] = work.label("parent_run_id", parent_run_id)
        return cls(len(statuses), values)

    def given(self, name: str) -> bool:
        """Whether that filter is set."""
        return name in self.values

    def plain(self) -> dict[str, Any]:
        """The filters in the form that a cursor stores."""
        return {name: epoch_ms(value) if name == "since" else value for name, value in self.values.items()}


def page(work: UnitOfWork, filters: Filters, limit: int, after: str | None, make: Callable[[Row], S]) -> Page[S]:
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


def active(work: UnitOfWork, limit: int | None, after: str | None) -> PagedList[WorkflowRunSummary]:
    """The runs that are running or paused, newest first; the cursors are those of `page` for these statuses."""
    if optional_limit(limit, after) is None:
        return PagedList(map(SUMMARY, work.rows(ACTIVE_RUNS)))
    assert limit is not None
    found = page(work, Filters.of(work, status=sorted(ACTIVE)), limit, after, SUMMARY)
    return PagedList(found.items, found.cursor)


def queued(work: UnitOfWork, limit: int | None, after: str | None) -> PagedList[WorkflowRunSummary]:
    """The runs that wait to be admitted or claimed, oldest first."""
    return _QUEUED.pages(work, limit, after)


def count(work: UnitOfWork, filters: Filters, *, exact: bool) -> int:
    """How many runs meet the filters; unless `exact`, a Count of BoundedCount."""
    given = {"named": filters.given("workflow_name"), "since": filters.given("since"), "failed": filters.given("failure_kind")}
    if not exact:
        return bounded_count(filters.statuses, **given).count(work, **filters.values)
    row = work.row(count_statement(filters.statuses, **given), **filters.values)
    assert row is not None
    return int(row[0])


def _with_usage(chosen: Select[Any]) -> Statement:
    """Join the chosen runs (id, started_at) with their columns and the usage of their executions.

    Runs are chosen by indexed columns alone, so that no run is read that is not shown.
    """
    found = chosen.subquery("chosen")
    shown = select(*SUMMARY.columns).select_from(found.join(runs, _R.id == found.c.id))
    return Statement(shown.order_by(found.c.started_at.desc(), found.c.id.desc()))


@cache
def page_statement(
    rows: int | None, *, statuses: int, named: bool, triggered: bool, since: bool, failed: bool, of_parent: bool, after: bool
) -> Statement:
    """The newest runs, for a number of statuses (parameters status_0 …) and the other filters that are given.

    `rows`: see persist.db.operations.literal_limits.
    """

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
    """The condition that a run has the wanted failure kind, in the words of the index of those that have one."""
    return HAS_FAILURE_KIND, _R.failure_kind == param("failure_kind")


ACTIVE_RUNS = _with_usage(select(_R.id, _R.started_at).where(among(_R.status, ACTIVE)))
_QUEUED = Keyset(
    "workflows.runs.queued",
    SUMMARY,
    (_R.started_at, _R.id),
    where=[_R.status == RunStatus.QUEUED],
    descending=False,
    exact=True,
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
