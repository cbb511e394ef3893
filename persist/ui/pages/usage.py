"""What models used and cost: by day as bars, by model, agent, owner and workflow as a table, and how full budgets are."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from persist.cli.usage import beside, sums, sums_by
from persist.errors import InvalidValue
from persist.ui.charts import Bar
from persist.ui.rendering import count, micros
from persist.ui.views import ROWS, Section, View, Visit
from persist.usage.schemas import Bucket, BudgetStanding, Group, UsageSum
from persist.workflows.storage.execution_rows import uncounted_cost
from persist.workflows.storage.standings import has_many_executions

_DAY = timedelta(days=1)
_LINES = tuple(str(kind) for kind in (*Bucket, *Group))
_GROUPS = tuple(str(group) for group in Group)
_RANGES = (7, 30, 90)
_MOST_BARS = 92
"""How many days have a bar."""
_BUDGETS = 100


def _wanted(visit: Visit) -> dict[str, Any]:
    """What `persist usage` is asked for: lines, from when, until when, and of what."""
    by = visit.one_of("by", _LINES) or str(Bucket.DAY)
    return {"by": by, "begins": _instant(visit, "since"), "ends": _instant(visit, "until"), **visit.filters(*_GROUPS)}


def _instant(visit: Visit, name: str) -> datetime | None:
    """A UTC day, whose end is meant by `until`, or an age. Raises InvalidValue."""
    given = visit.text(name)
    if given is None or "-" not in given:
        return visit.since(name)
    try:
        day = datetime.combine(date.fromisoformat(given), time(), UTC)
        return day + _DAY if name == "until" else day
    except (ValueError, OverflowError):
        raise InvalidValue(name, "expected a day such as 2026-01-31, or an age such as 12h or 30d.") from None


def _show(visit: Visit) -> dict[str, Any]:
    wanted = _wanted(visit)
    by = wanted["by"]
    page = sums(visit.tx, **wanted, **visit.page(_MOST_BARS if by == Bucket.DAY else ROWS))
    of = {name: wanted[name] for name in _GROUPS}
    since, until = wanted["begins"], wanted["ends"]
    is_first_by_day = by == Bucket.DAY and visit.text("after") is None
    days = page.items if is_first_by_day else visit.tx.usage.by_day(since, until, limit=_MOST_BARS, **of).items
    midnight = visit.now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = visit.tx.usage.by_model(midnight - _DAY, midnight, **of).items
    standings = visit.tx.usage.budgets.standings(limit=_BUDGETS)
    filled = list(_without_gaps(days, midnight))
    return {
        "title": "Usage",
        "page": page,
        "by": by,
        "lines": _LINES,
        "groups": _GROUPS,
        "chosen": any(of.values()),
        "ranges": [(f"{number} days", f"{midnight - (number - 1) * _DAY:%Y-%m-%d}") for number in _RANGES],
        **_beside(visit, wanted),
        "yesterday": yesterday,
        "day_before": midnight - _DAY,
        "spent": sum(one.cost_usd_micros for one in yesterday),
        "calls": sum(one.calls for one in yesterday),
        "today": next((one for one in days if one.starts_at == midnight), None),
        "costs": _bars(filled, "cost_usd_micros", micros) if any(one.cost_usd_micros for one in days) else None,
        "tokens": [Bar(_label(at), _tokens(one), f"{at:%Y-%m-%d}: {count(_tokens(one))} tokens") for at, one in filled],
        "sums": [(one, _name(one, by)) for one in page.items],
        "most": max((one.cost_usd_micros for one in page.items), default=0),
        "standings": [(one, *_fullest(one)) for one in standings.items],
        "more_budgets": standings.cursor is not None,
    }


def _beside(visit: Visit, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What executions cost that no sum has. All of them are read for it: of many only when it is asked for."""
    if any(wanted[name] for name in _GROUPS):
        return {"beside": None, "asks_beside": False}
    if not visit.flag("beside") and visit.ask(has_many_executions):
        return {"beside": None, "asks_beside": True}
    others = visit.ask(uncounted_cost, wanted["begins"], wanted["ends"])
    return {"beside": beside(others) if others.runs else None, "asks_beside": False}


def _name(one: UsageSum, by: str) -> str:
    if one.starts_at is None:
        return one.group or "unknown"
    return one.starts_at.strftime("%Y-%m-%d" if by == Bucket.DAY else "%Y-%m-%d %H:00")


def _without_gaps(days: Sequence[UsageSum], today: datetime) -> Iterable[tuple[datetime, UsageSum | None]]:
    """The days from the first of these to the last, or to today if that is near; None for one without calls."""
    known = {one.starts_at: one for one in days if one.starts_at is not None}
    if not known:
        return
    # counted in days, since a call may say that it was in the first year, or in the last one
    last, now = max(known).toordinal(), today.toordinal()
    last = now if last < now <= last + 14 else last
    first = max(min(known).toordinal(), last - _MOST_BARS + 1)
    for number in range(first, last + 1):
        at = datetime.fromordinal(number).replace(tzinfo=UTC)
        yield at, known.get(at)


def _label(at: datetime) -> str:
    return f"{at:%b} {at.day}"


def _tokens(one: UsageSum | None) -> int:
    return 0 if one is None else one.token_input + one.token_output


def _bars(days: Iterable[tuple[datetime, UsageSum | None]], of: str, say: Any) -> list[Bar]:
    figures = ((at, 0 if one is None else getattr(one, of)) for at, one in days)
    return [Bar(_label(at), figure, f"{at:%Y-%m-%d}: {say(figure)}") for at, figure in figures]


def _fullest(standing: BudgetStanding) -> tuple[float, float]:
    """What is used and how much may be, of the cost or the tokens, whichever is fuller."""
    budget = standing.budget
    limits = ((standing.cost_usd_micros, budget.max_cost_usd_micros), (standing.tokens, budget.max_tokens))
    known = [(float(used), float(most)) for used, most in limits if most is not None]
    return max(known, key=lambda one: one[0] / one[1] if one[1] else float("inf"), default=(0.0, 1.0))


def _json(visit: Visit) -> Any:
    return sums_by(visit.tx, **_wanted(visit), **visit.page(20))


SECTION = Section("Usage", "/usage", views=(View("/usage", "usage.html", _show, _json),))
