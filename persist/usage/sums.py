"""Sums of usage, added up from the stored ones of hours and days."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import literal, select
from sqlalchemy.sql.elements import ColumnElement

from persist.db.expressions.keyset import behind, behind_newest
from persist.db.expressions.saturating_sum import whole_total
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice, optional_label, required_label
from persist.db.values.clock import as_utc, epoch_ms, from_epoch_ms
from persist.db.values.frozen import construct
from persist.db.values.pages import Page, check_limit, decode_cursor
from persist.usage.models import rollups
from persist.usage.periods import FIRST, bucket_start
from persist.usage.schemas import Bucket, Group, UsageSum
from persist.usage.writing import SUMS

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
    given: Mapping[str, str | None],
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
    given: Mapping[str, str | None],
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


def _filters(given: Mapping[str, str | None]) -> dict[str, str]:
    """The filters that are given. The empty text stands for what is unknown."""
    checked = {name: optional_label(name, value, empty=True) for name, value in given.items()}
    return {name: value for name, value in checked.items() if value is not None}


def _in(filters: Mapping[str, str]) -> dict[str, str]:
    return {f"in_{name}": value for name, value in filters.items()}


def _range(bucket: Bucket, since: datetime | None, until: datetime | None) -> dict[str, Any]:
    start = FIRST if since is None else bucket_start(bucket, as_utc("since", since))
    return {"since": start, "until": _END if until is None else as_utc("until", until)}


def _bound(values: Mapping[str, datetime]) -> dict[str, int]:
    return {name: epoch_ms(value) for name, value in values.items()}


def _sum(at: datetime | None, group: str | None, figures: Any) -> UsageSum:
    return construct(UsageSum, {"starts_at": at, "group": group, **dict(zip(SUMS, figures, strict=True))})
