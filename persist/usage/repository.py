"""`tx.usage`: single calls of models, and sums of them by hour and day."""

import builtins
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Unpack

from sqlalchemy import ColumnElement, literal, select

from persist.db.expressions.keyset import behind, behind_newest
from persist.db.expressions.numbers import whole_total
from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.own_scope import public_scope, resolve_scope
from persist.db.transactions.repository import F, Repository, on_demand, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice, check_flag, check_keywords, required_label
from persist.db.values.clock import as_utc, epoch_ms, from_epoch_ms
from persist.db.values.frozen import construct
from persist.db.values.pages import Page, check_limit, decode_cursor
from persist.errors import InvalidValue
from persist.usage.budgets import UsageBudgets
from persist.usage.models import calls, rollups
from persist.usage.schemas import Bucket, CallFields, Group, Source, UsageCall, UsageFilters, UsageSum
from persist.usage.spending import FIRST, bucket_start
from persist.usage.writing import SUMS, Call, refuse_unless_counted, window_of, write

# Sums of usage, added up from the stored ones of hours and days.

_R = rollups.c
_END = datetime.max.replace(tzinfo=UTC)
_SUMS = tuple(whole_total(_R[name]).label(name) for name in SUMS)


def _filtered(bucket: Bucket, filters: tuple[str, ...]) -> list[ColumnElement[bool]]:
    in_range = [_R.bucket == literal(bucket, _R.bucket.type), _R.starts_at >= param("since"), _R.starts_at < param("until")]
    return [*in_range, *(_R[name] == param(f"in_{name}") for name in filters)]


@cache
def _by_bucket(bucket: Bucket, group: Group | None, filters: tuple[str, ...], after: bool) -> Statement:
    name = literal("", _R.model.type) if group is None else _R[group]
    found = select(_R.starts_at, name.label("name"), *_SUMS).where(*_filtered(bucket, filters))
    columns = (_R.starts_at,) if group is None else (_R.starts_at, _R[group])
    found = found.group_by(*columns)
    if after:
        found = found.where(
            behind(columns, ("after_at",), descending=True)
            if group is None
            else behind_newest(columns, ("after_at", "after_name"))
        )
    return Statement(found.order_by(_R.starts_at.desc(), *columns[1:]).limit(LIMIT))


@cache
def _by_group(group: Group, filters: tuple[str, ...], after: bool) -> Statement:
    found = select(_R[group].label("name"), *_SUMS).where(*_filtered(Bucket.HOUR, filters)).group_by(_R[group]).subquery("found")
    query = select(found)
    if after:
        query = query.where(behind_newest((found.c.cost_usd_micros, found.c.name), ("after_cost", "after_name")))
    return Statement(query.order_by(found.c.cost_usd_micros.desc(), found.c.name).limit(LIMIT))


def by_bucket(
    work: UnitOfWork,
    size: str,
    since: datetime | None,
    until: datetime | None,
    group: str | None,
    given: UsageFilters,
    limit: int,
    after: str | None,
) -> Page[UsageSum]:
    """See Usage.by_day and by_hour."""
    bucket = Bucket(size)
    kind = None if group is None else check_choice("group", group, Group)
    filters, values = _filters(given), _range(bucket, since, until)
    name, bound = f"usage by {bucket}", {**filters, "group": kind, **_bound(values)}
    if after is not None:
        at, last = decode_cursor(required_label("after", after), name, bound, (int, str))
        values |= {"after_at": from_epoch_ms(at)} | ({} if kind is None else {"after_name": last})
    rows = work.rows(
        _by_bucket(bucket, kind, tuple(filters), after is not None), **values, **_in(filters), limit=check_limit(limit) + 1
    )

    def value(row: Row) -> UsageSum:
        at, named, *figures = row
        return _sum(at, None if kind is None else named, figures)

    return Page.of(rows, limit, value, name=name, filters=bound, key=lambda row, _: [epoch_ms(row[0]), row[1]])


def by_group(
    work: UnitOfWork,
    group: str,
    since: datetime | None,
    until: datetime | None,
    given: UsageFilters,
    limit: int,
    after: str | None,
) -> Page[UsageSum]:
    """See Usage.by_group."""
    kind = check_choice("group", group, Group)
    filters, values = _filters(given), _range(Bucket.HOUR, since, until)
    name, bound = f"usage by {kind}", {**filters, **_bound(values)}
    if after is not None:
        cost, last = decode_cursor(required_label("after", after), name, bound, (int, str))
        values |= {"after_cost": cost, "after_name": last}
    rows = work.rows(_by_group(kind, tuple(filters), after is not None), **values, **_in(filters), limit=check_limit(limit) + 1)
    cost_at = SUMS.index("cost_usd_micros") + 1
    return Page.of(
        rows, limit, lambda row: _sum(None, row[0], row[1:]), name=name, filters=bound, key=lambda row, _: [row[cost_at], row[0]]
    )


def _filters(given: UsageFilters) -> dict[str, str]:
    """The filters that are given, in one order. Raises InvalidValue, also for a name that is none of them."""
    return {name: required_label(name, value, empty=True) for name, value in check_keywords(given, UsageFilters).items()}


def _in(filters: Mapping[str, str]) -> dict[str, str]:
    return {f"in_{name}": value for name, value in filters.items()}


def _range(bucket: Bucket, since: datetime | None, until: datetime | None) -> dict[str, Any]:
    start = FIRST if since is None else bucket_start(bucket, as_utc("since", since))
    return {"since": start, "until": _END if until is None else as_utc("until", until)}


def _bound(values: Mapping[str, datetime]) -> dict[str, int]:
    return {name: epoch_ms(value) for name, value in values.items()}


def _sum(at: datetime | None, group: str | None, figures: Any) -> UsageSum:
    return construct(UsageSum, {"starts_at": at, "group": group, **dict(zip(SUMS, figures, strict=True))})


List = builtins.list
_C = calls.c
_NEWEST = Keyset("usage calls", Values(UsageCall, calls), (_C.seq,), {"scope": _C.scope == param("scope")})


class UsageCalls(Repository[F]):
    """`tx.usage.calls`. A call is of an instance, a chat session or a workflow run; of that of the file if none is named."""

    @writes
    def record(
        self,
        *,
        model: str,
        at: datetime | None = None,
        instance_id: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
        within_budget: bool = False,
        **about: Unpack[CallFields],
    ) -> bool:
        """Record a call in its window, in the sums, and on budgets. `at`: when it happened; None: now.

        A call is of the instance or session that is named, else of the run; `run_id` may be given beside them. `about`: see
        CallFields; with a `key` the result is False where the call was recorded before. `within_budget`: record nothing and
        raise BudgetExceeded where a budget of the call was used up before it, unless the window has a call of the `key`. Raises
        InvalidValue.
        """
        work = self._work
        kind, id = scope_of(work, instance_id, session_id, run_id)
        known = check_keywords(about, CallFields)
        call = Call.of(work, kind, id, work.now() if at is None else at, model, run_id=run_id, **known)
        if check_flag("within_budget", within_budget):
            refuse_unless_counted(work, call)
        return write(work, window_of(work.runtime.settings), call)

    @reads
    def list(
        self,
        *,
        instance_id: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
        limit: int = 20,
        after: str | None = None,
    ) -> Page[UsageCall]:
        """The calls that the window of an instance, session or run keeps, the one written last first."""
        work = self._work
        kind, id = scope_of(work, instance_id, session_id, run_id)
        return _NEWEST.page(work, limit, after, {"scope": f"{kind}:{id}"})


def scope_of(work: UnitOfWork, instance_id: str | None, session_id: str | None, run_id: str | None) -> tuple[Source, str]:
    """What a call belongs to. Raises InvalidValue if both an instance and a session are named, or nothing on a server."""
    if instance_id is not None and session_id is not None:
        raise InvalidValue("session_id", "a call is of an instance or of a session, and not of both.")
    if session_id is not None:
        return Source.SESSION, work.label("session_id", session_id)
    if instance_id is None and run_id is not None:
        return Source.RUN, work.label("run_id", run_id)
    return Source.INSTANCE, public_scope(work, "instance_id", resolve_scope(work, "instance_id", instance_id))


class Usage(Repository[F]):
    """What calls of models used and cost: `calls` one by one, sums by day, hour and group, and `budgets`."""

    calls = on_demand(UsageCalls[F])
    budgets = on_demand(UsageBudgets[F])

    @reads
    def by_day(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        group: str | None = None,
        limit: int = 100,
        after: str | None = None,
        **filters: Unpack[UsageFilters],
    ) -> Page[UsageSum]:
        """Sums of UTC days, newest first; days without calls are left out.

        `since`, `until`: days that begin from `since`'s day on and before `until`; None: all there are. `group`: a sum for each
        `model`, `agent`, `owner`, `workspace`, `workflow` or `scope` of a day. The others filter. Raises InvalidValue.
        """
        return by_bucket(self._work, "day", since, until, group, filters, limit, after)

    @reads
    def by_hour(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        group: str | None = None,
        limit: int = 100,
        after: str | None = None,
        **filters: Unpack[UsageFilters],
    ) -> Page[UsageSum]:
        """Sums of UTC hours; see `by_day`."""
        return by_bucket(self._work, "hour", since, until, group, filters, limit, after)

    @reads
    def by_group(
        self,
        group: str,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        limit: int = 100,
        after: str | None = None,
        **filters: Unpack[UsageFilters],
    ) -> Page[UsageSum]:
        """One sum for each `model`, `agent`, `owner`, `workspace`, `workflow` or `scope`, the one with the highest cost first.

        `since` and `until` are rounded down and up to UTC hours; None: all there are. Raises InvalidValue.
        """
        return by_group(self._work, group, since, until, filters, limit, after)

    @reads
    def by_model(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        limit: int = 100,
        after: str | None = None,
        **filters: Unpack[UsageFilters],
    ) -> Page[UsageSum]:
        """`by_group("model")`."""
        return by_group(self._work, "model", since, until, filters, limit, after)
