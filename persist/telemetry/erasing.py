"""Erasing telemetry: all that an instance which has the id of a session reported."""

from collections.abc import Sequence

from sqlalchemy import Table, select

from persist.db.operations.erasing import SESSION, Dependent, Erasable, ErasableRows, Key, Values, equal
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.telemetry.models import agent_tags, links, status_log, tool_history, usage_samples, window_marks

_OTHERS = (agent_tags, links, usage_samples, tool_history, window_marks)


class _Instances(ErasableRows):
    def find(self, work: UnitOfWork, selector: str, values: Values) -> list[Key]:
        if selector != SESSION:
            return []
        found: Sequence[Key] = []
        for table in (status_log, *_OTHERS):
            query = select(table.c.instance_id).where(table.c.instance_id.in_(values)).distinct()
            found = [*found, *(tuple(row) for row in work.found(query, unreadable=OnUnreadable.LEAVE_OUT))]
        return [*dict.fromkeys(found)]


def _of_instance(table: Table) -> Dependent:
    return Dependent(table, lambda ids: table.c.instance_id.in_(ids))


ERASABLES: tuple[Erasable, ...] = (
    _Instances(
        status_log, ("instance_id",), {SESSION: equal(status_log.c.instance_id)}, [_of_instance(table) for table in _OTHERS]
    ),
)
