"""The first page: what runs, what waits for a person, what failed and why, the queue, what was spent, and the store's health."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from persist.chat.storage.going_on import speaking, waiting_calls
from persist.cli.output import size
from persist.cli.runs import runs
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import instant_before
from persist.events.consumers import Consumers
from persist.maintenance.quarantine import quarantined
from persist.ui.charts import Bar
from persist.ui.pages.approvals import shown_calls
from persist.ui.views import Section, View, Visit
from persist.usage.schemas import UsageSum
from persist.workflows.schemas import RunStatus
from persist.workflows.storage.queue import MOST, backlog
from persist.workflows.storage.standings import delayed_runs, oldest_gates, pending_gates, run_heads

_DAYS = 14
_SHOWN = 6
"""How many rows each part of the page has at most."""
_LOOKED_AT = 100
"""How many turns, calls and rows in quarantine are counted at most."""
_KEPT = timedelta(minutes=10)
"""How long the sums of days that are over are kept."""
_LARGE_LOG = 256 * 1024 * 1024
"""A write-ahead log of so many bytes tells that nobody moves it into the file."""
_FAR_BEHIND = 100_000
"""A reader of the log of events that is so far behind keeps it from being trimmed."""


class _DaysBefore(NamedTuple):
    """The sums of the days before one that has begun."""

    until: datetime
    read_at: datetime
    sums: list[UsageSum]


_days_before: WeakKeyDictionary[Runtime, _DaysBefore] = WeakKeyDictionary()


def _show(visit: Visit) -> dict[str, Any]:
    tx, since = visit.tx, instant_before(visit.now, timedelta(days=1))
    running = tx.workflows.runs.list(status=RunStatus.RUNNING, limit=_SHOWN)
    failed = tx.workflows.runs.list(status=RunStatus.FAILED, since=since, limit=_SHOWN)
    gates = visit.ask(oldest_gates, _SHOWN, None)
    calls, turns = visit.ask(waiting_calls, _LOOKED_AT), visit.ask(speaking, _LOOKED_AT)
    ids = [*(run.id for run in (*running.items, *failed.items)), *(gate.workflow_run_id for gate in gates)]
    depth, oldest = visit.ask(backlog)
    spent = list(_bars(_sums(visit), visit.now))
    return {
        "title": "Overview",
        "running": running.items,
        "running_count": tx.workflows.runs.count(exact=False, status=RunStatus.RUNNING),
        "failed": failed.items,
        "failed_count": tx.workflows.runs.count(exact=False, status=RunStatus.FAILED, since=since),
        "heads": visit.ask(run_heads, ids),
        "gates": gates,
        "gates_count": visit.ask(pending_gates),
        "calls": shown_calls(calls[:_SHOWN]),
        "calls_count": len(calls),
        "turns": turns[:_SHOWN],
        "turns_count": len(turns),
        "shown": _SHOWN,
        "looked_at": _LOOKED_AT,
        "most": MOST,
        "depth": depth,
        "oldest": oldest,
        "delayed": visit.ask(delayed_runs),
        "days": spent,
        "spent": sum(bar.value for bar in spent),
        "spent_today": spent[-1].value,
        "budgets": tx.usage.budgets.standings(limit=_SHOWN),
        "health": list(_health(visit)),
        "refresh": True,
    }


def _sums(visit: Visit) -> list[UsageSum]:
    """The sums of the last days. Those of days that are over hardly change, and are kept for a while: there may be many rows."""
    midnight, runtime = visit.now.replace(hour=0, minute=0, second=0, microsecond=0), visit.store.runtime
    kept = _days_before.get(runtime)
    if kept is None or kept.until != midnight or not kept.read_at <= visit.now < kept.read_at + _KEPT:
        since = instant_before(midnight, timedelta(days=_DAYS - 1))
        kept = _DaysBefore(midnight, visit.now, visit.tx.usage.by_day(since, midnight, limit=_DAYS).items)
        _days_before[runtime] = kept
    return [*visit.tx.usage.by_day(midnight, limit=2).items, *kept.sums]


def _bars(sums: list[UsageSum], now: datetime) -> Iterator[Bar]:
    """A bar for each UTC day, today's the last; days without calls are empty ones."""
    cost = {day.starts_at.date(): day for day in sums if day.starts_at is not None}
    for back in reversed(range(_DAYS)):
        date = (now - timedelta(days=back)).date()
        micros, calls = (cost[date].cost_usd_micros, cost[date].calls) if date in cost else (0, 0)
        yield Bar(date.strftime("%d %b"), micros / 1_000_000, f"{date}: ${micros / 1_000_000:,.4f}, {calls:,} calls of models")


def _health(visit: Visit) -> Iterator[tuple[bool, str]]:
    """Sentences about the store, and whether each tells of something that wants to be looked at."""
    rows = len(quarantined(visit.store, limit=_LOOKED_AT))
    if rows:
        yield True, f"{rows:,}{'+' if rows == _LOOKED_AT else ''} rows that cannot be read are in quarantine"
    log = visit.store.runtime.connections.wal_bytes()
    if log is not None:
        yield log >= _LARGE_LOG, f"the write-ahead log has {size(log)}" if log else "the write-ahead log is empty"
    for name, behind in visit.ask(_behind):
        if behind >= _FAR_BEHIND:
            yield True, f"the reader {name} is {behind:,} events behind"
    yield False, "the log of events is on" if visit.store.logs_events else "the log of events is off"


def _behind(work: UnitOfWork) -> list[tuple[str, int]]:
    return [(one.name, one.behind) for one in Consumers(work).list()]


SECTION = Section(
    "Overview", "/", views=(View("/", "overview.html", _show, lambda visit: runs.answer("stats", visit.tx, days=_DAYS)),)
)
