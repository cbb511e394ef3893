"""`tx.usage`: single calls of models, sums of them by hour and day, and budgets: what an owner, workspace or agent may use."""

import builtins
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Unpack

from sqlalchemy import ColumnElement, delete, literal, select

from persist.db.dialects.interface import RUNS
from persist.db.expressions.keyset import behind, behind_newest
from persist.db.expressions.locking import lock_table
from persist.db.expressions.numbers import whole_total
from persist.db.expressions.upsert import upsert
from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.own_scope import public_scope, resolve_scope
from persist.db.transactions.repository import F, Repository, on_demand, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import (
    Amount,
    check_choice,
    check_flag,
    check_keywords,
    check_list,
    check_timezone,
    optional_count,
    required_label,
)
from persist.db.values.clock import as_utc, epoch_ms, from_epoch_ms
from persist.db.values.frozen import construct
from persist.db.values.pages import Page, PagedList, check_limit, decode_cursor
from persist.errors import InvalidValue, shown
from persist.lazy_imports import lazy_module
from persist.usage import spending
from persist.usage.models import budgets, calls, rollups
from persist.usage.models import spending as spent
from persist.usage.schemas import (
    Bucket,
    Budget,
    BudgetStanding,
    CallFields,
    Group,
    Of,
    Period,
    Source,
    UsageCall,
    UsageFilters,
    UsageSum,
)
from persist.usage.spending import FIRST, LAST, Span, bucket_start, span_of
from persist.usage.writing import SUMS, TOKENS, Call, given_micros, refuse_unless_counted, window_of, write

if TYPE_CHECKING:
    from persist.chat.storage import usage as chat_usage
else:
    chat_usage = lazy_module("persist.chat.storage.usage")

List = builtins.list
_ANY_LENGTH = 2**31  # the names that sums are grouped by stand in no index
ANY_WORKFLOW = ""
_B, _S, _R = budgets.c, spent.c, rollups.c
_BUDGET = Values(Budget, budgets)
_this = (_B.key == param("of_key"), _B.period == param("of_period"))
_GET = Statement(select(*_BUDGET.columns).where(*_this))
_OF_KEY = Keyset(
    "usage.budgets.of_key", _BUDGET, (_B.period,), {"of_key": _B.key == param("of_key")}, descending=False, exact=True
)
_BUDGETS = Keyset("usage.budgets", _BUDGET, (_B.key, _B.period), descending=False, exact=True)
_SET = Statement(upsert(budgets, "key", "period"))
_DELETE = Statement(delete(budgets).where(*_this))
_FORGET = Statement(delete(spent).where(_S.key == param("of_key"), _S.period == param("of_period")))
_COUNTED = Statement(upsert(spent, "key", "period", "starts_at"))
_USED = Statement(
    select(_S.cost_usd_micros, _S.tokens, _S.passed).where(
        _S.key == param("of_key"), _S.period == param("of_period"), _S.starts_at == param("of_start")
    )
)


def _sum_of(of: Of) -> Statement:
    """The stored sums of the hours from an instant on, for a budget that is set when some of its period has passed."""
    column = _R.scope if of == Of.INSTANCE else _R[of]
    query = select(_R.starts_at, whole_total(_R.cost_usd_micros), whole_total(*(_R[name] for name in TOKENS[:-1])))
    where = (_R.bucket == param("of_bucket"), _R.starts_at >= param("since"), column == param("of_value"))
    return Statement(query.where(*where).group_by(_R.starts_at))


_SUMS_OF = {of: _sum_of(of) for of in Of}


class UsageBudgets(Repository[F]):
    """`tx.usage.budgets`. A key is `owner:NAME`, `workspace:ID`, `workflow:NAME`, `instance:ID` or `agent:NAME`."""

    @writes
    def set(
        self,
        key: str,
        period: str = "day",
        max_cost_usd_micros: int | None = None,
        max_tokens: int | None = None,
        *,
        max_cost_usd: Amount | None = None,
        timezone: str = "UTC",
    ) -> Budget:
        """Limit what the key uses in each hour, day, week or month of a time zone, or in all (`total`).

        The cost is in US dollars, or in millionths of one (`max_cost_usd_micros`). Replaces what was set for the key and period;
        None limits nothing. What was used in the period before counts, as far as
        sums are kept by hour, from the first full UTC hour of the period on. Raises InvalidValue.
        """
        work = self._work
        of, value = check_key(work, key)
        cycle = check_choice("period", period, Period)
        most = {
            "max_cost_usd_micros": optional_count(
                "max_cost_usd_micros", given_micros(max_cost_usd, max_cost_usd_micros, "max_cost_usd")
            ),
            "max_tokens": optional_count("max_tokens", max_tokens),
        }
        if all(limit is None for limit in most.values()):
            raise InvalidValue("max_cost_usd_micros", "name a cost, a number of tokens, or both; delete the budget to have none.")
        zone = work.label("timezone", timezone)
        if zone != "UTC":  # which needs no list of zones
            check_timezone("timezone", zone)
        now = work.now()
        work.select(lock_table(rollups))  # who has written to the sums commits first; who comes later finds the budget
        bucket = Bucket.DAY if cycle == Period.TOTAL else Bucket.HOUR
        wanted = {"of_bucket": bucket, "of_value": key if of == Of.INSTANCE else value}
        with work.batch() as batch:
            batch.run(_SET, key=key, period=cycle, **most, timezone=zone, updated_at=now)
            batch.run(_FORGET, of_key=key, of_period=cycle)
            sums = batch.rows(_SUMS_OF[of], since=span_of(cycle, zone, now).starts_at, **wanted)
        used = _used(sums.result, cycle, zone, now)
        with work.batch() as batch:
            for span, (cost, tokens) in used.items():
                counts = {"cost_usd_micros": cost, "tokens": tokens, "passed": 0}
                batch.run(_COUNTED, key=key, period=cycle, starts_at=span.starts_at, ends_at=span.ends_at, **counts)
            always = span_of(Period.TOTAL, zone, now)
            if 0 in most.values() and always not in used:  # used up in every period, also before anything is used in it
                nothing = {"cost_usd_micros": 0, "tokens": 0, "passed": spending.USED_UP}
                batch.run(_COUNTED, key=key, period=cycle, starts_at=always.starts_at, ends_at=always.ends_at, **nothing)
        for span, (cost, tokens) in used.items():
            passed = spending.passed_by(cost, tokens, most["max_cost_usd_micros"], most["max_tokens"])
            spending.note(work, key, cycle, span.starts_at, 0, passed)
        work.announce(RUNS, ANY_WORKFLOW)
        return construct(Budget, {"key": key, "period": cycle, **most, "timezone": zone, "updated_at": now})

    @reads
    def get(self, key: str, period: str = "day") -> Budget | None:
        """The budget, None if there is none."""
        work = self._work
        key, period = work.label("key", key), check_choice("period", period, Period)
        return _BUDGET.optional(work.row(_GET, of_key=key, of_period=period))

    @reads
    def list(self, *, limit: int | None = None, after: str | None = None) -> PagedList[Budget]:
        """Every budget, by key and period; with a `limit` a page, whose `cursor` is `after` for the next one."""
        return _BUDGETS.pages(self._work, limit, after)

    @reads
    def standings(
        self, key: str | None = None, *, limit: int | None = None, after: str | None = None
    ) -> PagedList[BudgetStanding]:
        """The use of all budgets, or a key's, in the current period. With a `limit` a page; its `cursor` is the next `after`."""
        work = self._work
        listed, values = (_BUDGETS, {}) if key is None else (_OF_KEY, {"of_key": work.label("key", key)})
        found = listed.pages(work, limit, after, values)
        return PagedList((_standing(work, one) for one in found), found.cursor)

    @reads
    def check(self, keys: Sequence[str]) -> None:
        """Raises BudgetExceeded if a budget of one of the keys, five at most, is used up now."""
        work = self._work
        named = [work.label("keys", key) for key in check_list("keys", keys)]
        if len(named) > spending.MOST_KEYS:
            raise InvalidValue("keys", f"expected at most {spending.MOST_KEYS} keys.")
        spending.refuse(work, named, work.now())

    @writes
    def delete(self, key: str, period: str = "day") -> bool:
        """Lift the budget; False if there was none."""
        work = self._work
        this = {"of_key": work.label("key", key), "of_period": check_choice("period", period, Period)}
        with work.batch(last=True) as batch:
            batch.run(_FORGET, **this)
            deleted = batch.run(_DELETE, **this)
        work.announce(RUNS, ANY_WORKFLOW)
        return bool(deleted.result)


def check_key(work: UnitOfWork, key: object) -> tuple[Of, str]:
    """What the key of a budget is on. Raises InvalidValue."""
    of, colon, value = work.label("key", key).partition(":")
    if not colon or not value or of not in Of._value2member_map_:
        kinds = ", ".join(f"{kind}:…" for kind in Of)
        raise InvalidValue("key", f"{shown(key)} is none of {kinds}.")
    return Of(of), value


def _used(sums: List[Row], period: Period, timezone: str, now: datetime) -> dict[Span, tuple[int, int]]:
    """The usage in the current period and in later ones, which clocks that are ahead have written, by the sums."""
    used = {span_of(period, timezone, now): (0, 0)}
    for at, cost, tokens in sums:
        span = span_of(period, timezone, at)
        before = used.get(span, (0, 0))
        used[span] = min(before[0] + cost, 2**63 - 1), min(before[1] + tokens, 2**63 - 1)
    return used


def _standing(work: UnitOfWork, budget: Budget) -> BudgetStanding:
    if is_unreadable(budget.period) or is_unreadable(budget.timezone):
        span = Span(work.now(), LAST)
    else:
        span = span_of(budget.period, budget.timezone, work.now())
    row = work.row(_USED, of_key=budget.key, of_period=budget.period, of_start=span.starts_at)
    cost, tokens, passed = row or (0, 0, spending.USED_UP if 0 in (budget.max_cost_usd_micros, budget.max_tokens) else 0)
    used = {"cost_usd_micros": cost, "tokens": tokens, "passed": passed}
    return construct(BudgetStanding, {"budget": budget, "starts_at": span.starts_at, "ends_at": span.ends_at, **used})


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
        at, last = decode_cursor(required_label("after", after), name, bound, (int, str), _ANY_LENGTH)
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
        cost, last = decode_cursor(required_label("after", after), name, bound, (int, str), _ANY_LENGTH)
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

        Where the session is one of `chat.sessions`, its own cost and tokens grow with the call, as with those of a recorded step.
        """
        work = self._work
        kind, id = scope_of(work, instance_id, session_id, run_id)
        known = check_keywords(about, CallFields)
        known["cost_usd_micros"] = given_micros(known.pop("cost_usd", None), known.get("cost_usd_micros"))
        named = work.label("model", model)
        call = Call.of(work, kind, id, work.now() if at is None else at, named, run_id=run_id, **known)
        if check_flag("within_budget", within_budget):
            refuse_unless_counted(work, call)
        window = window_of(work.runtime.settings)
        return write(work, window, call) if session_id is None else chat_usage.add_call(work, window, call)

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
