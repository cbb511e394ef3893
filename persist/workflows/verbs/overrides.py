"""Overrides: an operator's changes to schedules and workflows. Deleting an override restores the defaults."""

from enum import Enum
from functools import cache
from typing import Any

from sqlalchemy import delete, select, update

from persist.db.expressions.upsert import insert_missing, seen
from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.actors import acting
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import check_flag
from persist.db.values.pages import PagedList
from persist.workflows.models import cron_overrides, workflow_overrides
from persist.workflows.override_values import CronOverride, WorkflowOverride
from persist.workflows.storage.cron import check_schedule


class Omitted(Enum):
    """The default of an argument for which None has a meaning."""

    OMITTED = "omitted"


OMITTED = Omitted.OMITTED

_C, _W = cron_overrides.c, workflow_overrides.c
_name = param("row_name")
_CRON_VALUE, _WORKFLOW_VALUE = Values(CronOverride, cron_overrides), Values(WorkflowOverride, workflow_overrides)
_CRON = Statement(select(*_CRON_VALUE.columns).where(_C.name == _name))
_WORKFLOW = Statement(select(*_WORKFLOW_VALUE.columns).where(_W.name == _name))
_CRONS = Keyset("workflows.cron_overrides", _CRON_VALUE, (_C.name,), descending=False, exact=True)
_WORKFLOWS = Keyset("workflows.workflow_overrides", _WORKFLOW_VALUE, (_W.name,), descending=False, exact=True)
_ADD_CRON = Statement(insert_missing(cron_overrides, "name"))
_ADD_WORKFLOW = Statement(insert_missing(workflow_overrides, "name"))
_SET_WORKFLOW = Statement(
    update(workflow_overrides).where(_W.name == _name).values(enabled=param("on"), updated_at=param("at"), updated_by=param("by"))
)
_CLEAR_CRON = Statement(delete(cron_overrides).where(_C.name == _name))
_CLEAR_WORKFLOW = Statement(delete(workflow_overrides).where(_W.name == _name))


@cache
def _set_cron(*given: str) -> Statement:
    values = {name: param(f"set_{name}") for name in given}
    return Statement(
        update(cron_overrides).where(_C.name == _name).values(**values, updated_at=param("at"), updated_by=param("by"))
    )


class CronOverrides(Repository[F]):
    """`tx.workflows.cron_overrides`."""

    @writes
    def set(
        self,
        name: str,
        *,
        enabled: bool | Omitted = OMITTED,
        schedule: str | Omitted | None = OMITTED,
        by: str | None = None,
    ) -> CronOverride:
        """Change what is given and keep what is omitted; a schedule of None is the default one again.

        Raises InvalidValue for a schedule that is no cron expression (persist.workflows.storage.cron).
        """
        work = self._work
        row_name, changed_by, now = work.label("name", name), acting(work, "by", by), work.now()
        given: dict[str, Any] = {}
        if not isinstance(enabled, Omitted):
            given["enabled"] = check_flag("enabled", enabled)
        if not isinstance(schedule, Omitted):
            given["schedule"] = None if schedule is None else check_schedule("schedule", work.label("schedule", schedule))
        values = {f"set_{field}": value for field, value in given.items()}
        with work.batch(last=True) as batch:
            batch.run(_ADD_CRON, name=row_name, enabled=True, schedule=None, updated_at=now, updated_by=changed_by)
            batch.run(_set_cron(*given), row_name=row_name, at=now, by=changed_by, **values)
            written = batch.row(_CRON, row_name=row_name)
        row = seen(written.result, _ADD_CRON, "cron override", name)
        return _CRON_VALUE(row)

    @reads
    def get(self, name: str) -> CronOverride | None:
        """The override, None where the defaults hold."""
        row = self._work.row(_CRON, row_name=self._work.label("name", name))
        return _CRON_VALUE.optional(row)

    @reads
    def all(self, *, limit: int | None = None, after: str | None = None) -> PagedList[CronOverride]:
        """Every override, by name; with a `limit` a page, whose `cursor` is `after` for the next one."""
        return _CRONS.pages(self._work, limit, after)

    @writes
    def clear(self, name: str) -> bool:
        """Restore the defaults; False if they hold already."""
        with self._work.batch(last=True) as batch:
            cleared = batch.run(_CLEAR_CRON, row_name=self._work.label("name", name))
        return bool(cleared.result)


class WorkflowOverrides(Repository[F]):
    """`tx.workflows.workflow_overrides`."""

    @writes
    def set(self, name: str, *, enabled: bool, by: str | None = None) -> WorkflowOverride:
        """Switch a workflow on or off."""
        work = self._work
        row_name, on, changed_by, now = (
            work.label("name", name),
            check_flag("enabled", enabled),
            acting(work, "by", by),
            work.now(),
        )
        with work.batch(last=True) as batch:
            batch.run(_ADD_WORKFLOW, name=row_name, enabled=on, updated_at=now, updated_by=changed_by)
            batch.run(_SET_WORKFLOW, row_name=row_name, on=on, at=now, by=changed_by)
            written = batch.row(_WORKFLOW, row_name=row_name)
        row = seen(written.result, _ADD_WORKFLOW, "workflow override", name)
        return _WORKFLOW_VALUE(row)

    @reads
    def is_enabled(self, name: str) -> bool:
        """Whether the workflow may run: yes, unless it was switched off."""
        row = self._work.row(_WORKFLOW, row_name=self._work.label("name", name))
        return row is None or bool(row[_WORKFLOW_VALUE.fields.index("enabled")])

    @reads
    def all(self, *, limit: int | None = None, after: str | None = None) -> PagedList[WorkflowOverride]:
        """Every override, by name; with a `limit` a page, whose `cursor` is `after` for the next one."""
        return _WORKFLOWS.pages(self._work, limit, after)

    @writes
    def clear(self, name: str) -> bool:
        """Delete the override, which enables the workflow; False if there was none."""
        with self._work.batch(last=True) as batch:
            cleared = batch.run(_CLEAR_WORKFLOW, row_name=self._work.label("name", name))
        return bool(cleared.result)
