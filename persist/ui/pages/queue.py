"""The queue: what is ready, delayed or held and why, how full limits are, when schedules fire, and the switches of both."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from persist.cli.runs import RUNS
from persist.db.values.arguments import check_timezone
from persist.errors import InvalidValue
from persist.ui.views import Action, Change, Section, View, Visit
from persist.usage.schemas import BudgetStanding
from persist.workflows.fire_times import fires_after
from persist.workflows.schemas import WORKFLOW_PREFIX, CronOverride, Schedule
from persist.workflows.storage.queue import MOST, backlog
from persist.workflows.storage.standings import LimitStanding, ReadyGroup, delayed_runs, limit_standings, ready_groups

_GROUPS, _LIMITS, _SCHEDULES, _FIRES = 50, 100, 100, 3


def _show(visit: Visit) -> dict[str, Any]:
    tx = visit.tx
    groups, limits = visit.ask(ready_groups, _GROUPS), visit.ask(limit_standings, _LIMITS)
    depth, oldest = visit.ask(backlog)
    budgets = [one for one in tx.usage.budgets.standings(limit=_LIMITS) if one.passed >= 100]
    queued = tx.workflows.runs.list_queued(**visit.page())
    switches = {one.name: one for one in tx.workflows.workflow_overrides.all(limit=_LIMITS)}
    crons = {one.name: one for one in tx.workflows.cron_overrides.all(limit=_SCHEDULES)}
    schedules = tx.workflows.schedules.list(limit=_SCHEDULES)
    names = {*switches, *(group.workflow_name for group in groups), *(one.workflow_name for one in schedules)}
    return {
        "title": "Queue",
        "depth": depth,
        "oldest": oldest,
        "most": MOST,
        "delayed": visit.ask(delayed_runs),
        "held": sum(group.number for group in groups if group.is_held),
        "groups": [(group, _why(group, limits, budgets)) for group in groups],
        "limits": limits,
        "schedules": [(one, crons.get(one.name), *_fires(one, crons.get(one.name), visit.now)) for one in schedules],
        "more_schedules": schedules.cursor is not None,
        "workflows": [(name, switches.get(name)) for name in sorted(names)],
        "held_names": _held(groups) | {name for name, one in switches.items() if not one.enabled},
        "queued": queued,
        "cursor": queued.cursor,
        "refresh": not visit.text("after"),
    }


def _held(groups: Iterable[ReadyGroup]) -> set[str]:
    """The workflows of which no run can start now, whatever its key."""
    groups = list(groups)
    return {one.workflow_name for one in groups} - {one.workflow_name for one in groups if not one.is_held}


def _why(group: ReadyGroup, limits: Iterable[LimitStanding], budgets: Iterable[BudgetStanding]) -> str | None:
    """What holds the runs of a group, as far as the page knows the limits; None if one of them can start."""
    if not group.is_held:
        return None
    if not group.is_on:
        return "the workflow is switched off"
    keys = {WORKFLOW_PREFIX + group.workflow_name, group.key}
    for one in limits:
        if one.key in keys and one.concurrency is not None and one.running >= one.concurrency:
            return f"{one.running:,} of {one.concurrency:,} run at once under {one.key}"
        if one.key in keys and one.rate is not None and one.started >= one.rate:
            return f"{one.started:,} of {one.rate:,} have started lately under {one.key}"
    used_up = next((one.budget.key for one in budgets if one.budget.key in keys), None)
    return f"the budget {used_up} is used up" if used_up else "a limit or a budget is reached"


def _fires(schedule: Schedule, override: CronOverride | None, now: datetime) -> tuple[list[tuple[datetime, str]], str | None]:
    """The next fires of a schedule with what the clocks of its zone show then, or why it has none."""
    cron = override.schedule if override is not None and override.schedule is not None else schedule.cron
    on = schedule.enabled and (override is None or override.enabled)
    try:
        zone = check_timezone("timezone", schedule.timezone)
        return [
            (at, f"{at.astimezone(zone):%a %d %b %Y %H:%M:%S %Z}") for at in islice(_later(cron, schedule, now, on=on), _FIRES)
        ], None
    except (InvalidValue, ValueError, OverflowError) as error:
        return [], str(error)


def _later(cron: str, schedule: Schedule, now: datetime, *, on: bool) -> Iterator[datetime]:
    """The instants at which it fires: first the stored one, which may be due, unless it is off or has another expression now."""
    after = now
    if on and schedule.next_fire_at is not None and schedule.fires_by == cron:
        yield schedule.next_fire_at
        after = max(now, schedule.next_fire_at)
    yield from fires_after(cron, schedule.timezone, after)


# -- switches


def _workflow(on: bool) -> Any:
    def switch(change: Change) -> str:
        name = change.values["name"]
        change.tx.workflows.workflow_overrides.set(name, enabled=on, by=change.actor)
        return f"Switched the workflow {name} {'on' if on else 'off: its queued runs wait'}."

    return switch


def _schedule(on: bool) -> Any:
    def switch(change: Change) -> str:
        name = change.values["name"]
        change.tx.workflows.cron_overrides.set(name, enabled=on, by=change.actor)
        return f"Switched the schedule {name} {'on' if on else 'off: it queues nothing, and does not catch up'}."

    return switch


SECTION = Section(
    "Queue",
    "/queue",
    views=(View("/queue", "queue.html", _show, lambda visit: RUNS.page(visit.tx.workflows.runs.list_queued(**visit.page(20)))),),
    actions=(
        Action("/queue/workflows/{name}/on", _workflow(True)),
        Action("/queue/workflows/{name}/off", _workflow(False)),
        Action("/queue/schedules/{name}/on", _schedule(True)),
        Action("/queue/schedules/{name}/off", _schedule(False)),
    ),
)
