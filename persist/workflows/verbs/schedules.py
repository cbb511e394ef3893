"""Schedules: runs that are queued at the times of a cron expression, once however many processes ask for what is due."""

import logging
from datetime import datetime, timedelta
from typing import Any, Literal
from weakref import WeakKeyDictionary

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from persist.db.expressions.upsert import insert_missing, seen
from persist.db.operations.keyset import Keyset
from persist.db.schema.base import flag_set
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, NothingToDo, Repository, reads, writes, writes_if_needed
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.arguments import check_choice, check_flag, check_timezone
from persist.db.values.clock import iso_ms
from persist.db.values.json import Json
from persist.db.values.pages import PagedList
from persist.errors import InvalidValue, PayloadTooLarge, named
from persist.workflows.fire_times import check_schedule, fires_after, missed, next_fire
from persist.workflows.models import cron_overrides, schedules
from persist.workflows.schemas import CatchUp, Schedule, WorkflowRun
from persist.workflows.storage.run_rows import context_of
from persist.workflows.verbs import creating, recovery

log = logging.getLogger("persist")
_said: WeakKeyDictionary[Runtime, set[str]] = WeakKeyDictionary()
"""By store, the warnings of schedules that do not fire which its log has already: such schedules are tried repeatedly."""
List = list
_S, _O = schedules.c, cron_overrides.c
_SCHEDULE = Values(Schedule, schedules)
_AT_ONCE = 1000
"""How many missed fires of one schedule one call catches up on; the next call goes on."""
_PUNCTUAL = timedelta(minutes=1)
"""A fire that is found so late was not missed."""
_name = param("row_name")
_SCHEDULES = Keyset("workflows.schedules", _SCHEDULE, (_S.name,), descending=False, exact=True)
_GET = Statement(select(*_SCHEDULE.columns).where(_S.name == _name))
_LOCK = Statement(select(*_SCHEDULE.columns).where(_S.name == _name).with_for_update())
_ADD = Statement(insert_missing(schedules, "name").returning(*_SCHEDULE.columns))
_SETTABLE = ("workflow_name", "cron", "timezone", "next_fire_at", "fires_by", "enabled", "catch_up", "context", "updated_at")
_SET = Statement(update(schedules).where(_S.name == _name).values({name: param(f"new_{name}") for name in _SETTABLE}))
_REMOVE = Statement(delete(schedules).where(_S.name == _name))
_ADVANCE = Statement(
    update(schedules)
    .where(_S.name == _name)
    .values(next_fire_at=param("next"), fires_by=param("by"), last_fire_at=param("fired"))
)


def _of_override(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return select(column).where(_O.name == _S.name).scalar_subquery()


_cron = func.coalesce(_of_override(_O.schedule), _S.cron)
_needs_work = (flag_set(_S.enabled), or_(_S.next_fire_at <= param("at"), _S.fires_by != _cron))
_DUE = Statement(
    select(*_SCHEDULE.columns, _cron, _of_override(_O.enabled))
    .where(*_needs_work)
    .order_by(_S.next_fire_at, _S.name)
    .with_for_update(of=schedules, skip_locked=True),
    unreadable=OnUnreadable.LEAVE_OUT,  # the others fire
)
_ANY_DUE = Statement(select(_S.name).where(*_needs_work).limit(1))
_OVERRIDE = Statement(select(_O.schedule).where(_O.name == _name))


class Schedules(Repository[F]):
    """`tx.workflows.schedules`. An override of the same name in `cron_overrides` changes the expression or stops the schedule."""

    @writes
    def set(
        self,
        name: str,
        *,
        workflow_name: str,
        cron: str,
        timezone: str = "UTC",
        context: Json = None,
        catch_up: Literal["one", "all", "none"] = "one",
        enabled: bool = True,
    ) -> Schedule:
        """Queue a run of the workflow whenever the cron expression fires, in the time of the IANA zone.

        `catch_up`: what is queued for fires that nobody asked for in time: one run for the last of them, all, or none. Called
        again with the same expression and zone it leaves the next fire alone. Needs the extra `schedules`. Raises InvalidValue.
        """
        work = self._work
        row_name, now = work.label("name", name), work.now()
        wanted = {
            "workflow_name": work.label("workflow_name", workflow_name),
            "cron": check_schedule("cron", work.label("cron", cron)),
            "timezone": check_timezone("timezone", work.label("timezone", timezone)).key,
            "enabled": check_flag("enabled", enabled),
            "catch_up": check_choice("catch_up", catch_up, CatchUp),
            "context": context_of(work, context),
            "updated_at": now,
        }
        fires_after(cron, timezone, now)
        with work.batch() as batch:
            override = batch.row(_OVERRIDE, row_name=row_name)
            found = batch.row(_LOCK, row_name=row_name)
        by = cron if override.result is None or override.result[0] is None else override.result[0]
        known = _SCHEDULE.optional(found.result)
        if known is not None and known.enabled and (known.fires_by, known.timezone) == (by, timezone):
            wanted |= {"next_fire_at": known.next_fire_at, "fires_by": by}
        else:
            wanted |= {"next_fire_at": _next_fire(name, cron, by, timezone, now), "fires_by": by}
        with work.batch(last=True) as batch:
            batch.run(_ADD, name=row_name, last_fire_at=None, **wanted)
            batch.run(_SET, row_name=row_name, **{f"new_{field}": value for field, value in wanted.items()})
            written = batch.row(_GET, row_name=row_name)
        return _SCHEDULE(seen(written.result, _ADD, "schedule", name))

    @reads
    def get(self, name: str) -> Schedule | None:
        """The schedule, None if there is none."""
        return _SCHEDULE.optional(self._work.row(_GET, row_name=self._work.label("name", name)))

    @reads
    def list(self, *, limit: int | None = None, after: str | None = None) -> PagedList[Schedule]:
        """Every schedule, by name; with a `limit` a page, whose `cursor` is `after` for the next one."""
        return _SCHEDULES.pages(self._work, limit, after)

    @writes
    def remove(self, name: str) -> bool:
        """Delete the schedule, not its runs; False if there was none."""
        return bool(self._work.run_last(_REMOVE, row_name=self._work.label("name", name)))

    def _nothing_due(self, now: datetime | None = None) -> NothingToDo | None:
        work = self._work
        return NothingToDo([]) if work.row(_ANY_DUE, at=recovery.instant(work, now)) is None else None

    @writes_if_needed(_nothing_due)
    def fire_due(self, now: datetime | None = None) -> List[WorkflowRun]:
        """Queue the runs that are due, now or at the given instant; those that this call has queued.

        Any process may call it at any time, and workers do: each fire is queued once. The run's trigger is `schedule/<name>`, and
        `context.scheduled_for` its instant. A schedule that an override stops goes on with the first fire after that.
        """
        work, at = self._work, recovery.instant(self._work, now)
        fired: List[WorkflowRun] = []
        for *row, cron, switch in work.rows(_DUE, at=at):
            schedule = _SCHEDULE(tuple(row))
            try:
                fired += _fire(work, schedule, cron, at, stopped=switch is False)
            except (InvalidValue, PayloadTooLarge) as error:  # the others fire, and perhaps a machine that knows its time zone
                what = f"the schedule {named(schedule.name)} does not fire as it is: {error}"
                said = _said.setdefault(work.runtime, set())
                if what not in said:
                    said.add(what)
                    log.error("%s", what)
        return fired


def _fire(work: UnitOfWork, schedule: Schedule, cron: str, at: datetime, *, stopped: bool) -> list[WorkflowRun]:
    """Queue what is due of a locked schedule, and note its next fire."""
    due: datetime | None = schedule.next_fire_at
    fires: list[datetime] = []
    if stopped or due is None or due > at or cron != schedule.fires_by:
        following = _next_fire(schedule.name, schedule.cron, cron, schedule.timezone, at)
    elif schedule.catch_up is CatchUp.ALL:
        fires, following = missed(cron, schedule.timezone, due, at, _AT_ONCE)
    else:
        following = next_fire(cron, schedule.timezone, at)
        last = _last(cron, schedule.timezone, due, at)
        fires = [last] if schedule.catch_up is CatchUp.ONE or at - last <= _PUNCTUAL else []
    queued = [_queue(work, schedule, fire) for fire in fires]
    fired = fires[-1] if fires else schedule.last_fire_at
    work.run(_ADVANCE, row_name=schedule.name, next=following, by=cron, fired=fired)
    return [run for run in queued if run is not None]


def _next_fire(name: str, cron: str, by: str, timezone: str, at: datetime) -> datetime | None:
    """When the schedule fires next; never by an override that cannot be scheduled, until that is changed: others go on."""
    try:
        return next_fire(by, timezone, at)
    except InvalidValue as error:
        if by == cron or error.path != "cron":
            raise
        log.error("the schedule %s does not fire as long as it has its override: %s", named(name), error)
        return None


def _last(cron: str, timezone: str, due: datetime, at: datetime) -> datetime:
    """The last fire until that instant, looked for from ever longer ago, so that a long outage costs nothing."""
    back = timedelta(minutes=1)
    begin = due
    while at - back > due:
        recent, _ = missed(cron, timezone, at - back, at, _AT_ONCE)
        if len(recent) > 1:
            begin = recent[-1]
            break
        back *= 4
    fires, _ = missed(cron, timezone, begin, at, _AT_ONCE)
    while len(fires) == _AT_ONCE:
        fires, _ = missed(cron, timezone, fires[-1], at, _AT_ONCE)
    return fires[-1]


def _queue(work: UnitOfWork, schedule: Schedule, fire: datetime) -> WorkflowRun | None:
    """The run of that fire; None if it was queued before, by a process whose clock is ahead."""
    trigger, instant = f"schedule/{schedule.name}", iso_ms(fire)
    context = {"scheduled_for": instant, **(schedule.context or {})}
    return creating.queue_once(work, schedule.workflow_name, trigger, f"{trigger}/{instant}", context)
