"""`tx.usage.budgets`: what an owner, workspace, workflow, instance or agent may use in a period."""

import builtins
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, select

from persist.db.dialects.interface import RUNS
from persist.db.expressions.locking import lock_table
from persist.db.expressions.numbers import whole_total
from persist.db.expressions.upsert import upsert
from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import check_choice, check_list, optional_count
from persist.db.values.frozen import construct
from persist.db.values.pages import PagedList
from persist.errors import InvalidValue, shown
from persist.usage import spending
from persist.usage.models import budgets, rollups
from persist.usage.models import spending as spent
from persist.usage.schemas import Bucket, Budget, BudgetStanding, Of, Period
from persist.usage.spending import LAST, Span, check_timezone, span_of
from persist.usage.writing import TOKENS

List = builtins.list
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


_SUMS = {of: _sum_of(of) for of in Of}


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
        timezone: str = "UTC",
    ) -> Budget:
        """Limit what the key uses in each hour, day, week or month of a time zone, or in all (`total`).

        Replaces what was set for the key and period; None limits nothing. What was used in the period before counts, as far as
        sums are kept by hour, from the first full UTC hour of the period on. Raises InvalidValue.
        """
        work = self._work
        of, value = check_key(work, key)
        cycle = check_choice("period", period, Period)
        most = {
            "max_cost_usd_micros": optional_count("max_cost_usd_micros", max_cost_usd_micros),
            "max_tokens": optional_count("max_tokens", max_tokens),
        }
        if all(limit is None for limit in most.values()):
            raise InvalidValue("max_cost_usd_micros", "name a cost, a number of tokens, or both; delete the budget to have none.")
        zone = check_timezone("timezone", work.label("timezone", timezone))
        now = work.now()
        work.select(lock_table(rollups))  # who has written to the sums commits first; who comes later finds the budget
        bucket = Bucket.DAY if cycle == Period.TOTAL else Bucket.HOUR
        wanted = {"of_bucket": bucket, "of_value": key if of == Of.INSTANCE else value}
        with work.batch() as batch:
            batch.run(_SET, key=key, period=cycle, **most, timezone=zone, updated_at=now)
            batch.run(_FORGET, of_key=key, of_period=cycle)
            sums = batch.rows(_SUMS[of], since=span_of(cycle, zone, now).starts_at, **wanted)
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
        row = work.row(_GET, of_key=work.label("key", key), of_period=check_choice("period", period, Period))
        return _BUDGET.optional(row)

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
