"""`tx.telemetry.status`: an instance's status transitions, ordered by id, so that a clock set back does not reorder them."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, func, insert, select

from persist.db.expressions.keyset import behind_newest
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.own_scope import public_scope, resolve_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import must_exist, optional_count
from persist.db.values.clock import as_utc
from persist.db.values.frozen import construct
from persist.db.values.json import Json, decode
from persist.db.values.pages import check_limit
from persist.errors import Conflict, InvalidValue
from persist.telemetry.models import status_log
from persist.telemetry.schemas import AgentStatus, StatusEntry
from persist.telemetry.windows import STATUS_LOG, next_second, number_of, second_or_now

MAX = 100_000
"""The highest `limit` of `history`: more entries than a window of the default size."""
_PAGE = 500
_TRIES = 8
_S = status_log.c
_of_owner = _S.instance_id == param("owner")
_every_entry = status_log.alias("every_entry")
_oldest = select(func.min(_every_entry.c.id)).where(_every_entry.c.instance_id == param("owner")).scalar_subquery()
_ENTRY = select(_S.id, _S.occurred_at, _S.new_status, _S.metadata, _oldest).where(_of_owner).order_by(_S.id.desc()).limit(LIMIT)
_NEWEST = Statement(_ENTRY)
_EARLIER = Statement(_ENTRY.where(_S.id < param("before")))
_INTO = Statement(_ENTRY.where(_S.new_status == param("status")))
_ends = (
    select(
        _every_entry.c.instance_id, func.max(_every_entry.c.id).label("last_id"), func.min(_every_entry.c.id).label("first_id")
    )
    .group_by(_every_entry.c.instance_id)
    .subquery()
)
_LATEST = Statement(
    select(_S.instance_id, _S.id, _S.occurred_at, _S.new_status, _S.metadata, _ends.c.first_id)
    .join(_ends, (_S.instance_id == _ends.c.instance_id) & (_S.id == _ends.c.last_id))
    .order_by(_S.occurred_at.desc(), _S.instance_id)
    .limit(LIMIT)
)
_LATEST_AFTER = Statement(
    _LATEST.statement.where(  # type: ignore[attr-defined]  # it is the select above
        behind_newest((_S.occurred_at, _S.instance_id), ("seen_at", "seen"))
    )
)
_AT = Statement(select(_S.new_status).where(_of_owner, _S.occurred_at <= param("when")).order_by(_S.id.desc()).limit(1))
_BEFORE = Statement(
    select(_S.id, _S.occurred_at, _S.new_status)
    .where(_of_owner, _S.occurred_at < param("until"))
    .order_by(_S.id.desc())
    .limit(LIMIT)
)
_BEFORE_ID = Statement(_BEFORE.statement.where(_S.id < param("before")))  # type: ignore[attr-defined]  # it is the select above
_CURRENT = Statement(select(_S.id, _S.new_status, _S.metadata).where(_of_owner).order_by(_S.id.desc()).limit(1))
_GIVEN = (_S.instance_id, _S.occurred_at, _S.new_status, _S.metadata)
_newest = select(func.max(_every_entry.c.id)).where(_every_entry.c.instance_id == param("new_instance_id")).scalar_subquery()
# inserted only if no other entry came after the one that was read: compare-and-swap between concurrent writers
# FROM the mark that was just counted: without a table, Citus would number the entry on the tenant's node, whose numbers lie
# apart from those of others, and would be lower on the node to which the tenant moves
_ADD = Statement(
    insert(status_log)
    .from_select(
        _GIVEN,
        select(*(bindparam(f"new_{column.name}", type_=column.type) for column in _GIVEN)).where(
            STATUS_LOG.is_mark_of("new_instance_id"), func.coalesce(_newest, 0) == bindparam("seen", type_=Int64())
        ),
    )
    .returning(_S.id)
)


class StatusLog(Repository[F]):
    """`tx.telemetry.status`. `instance_id` None: the instance that owns the file."""

    @writes
    def record(
        self, new_status: str, *, at: datetime | None = None, metadata: Json = None, instance_id: str | None = None
    ) -> StatusEntry | None:
        """Record a transition. None, and nothing is written, if the instance already has that status.

        `question` with new metadata is a transition too. Any word is a status. `at` (None: now) is rounded down to a second and
        may be before the last entry's.
        """
        work = self._work
        owner = resolve_scope(work, "instance_id", instance_id)
        status = work.label("new_status", new_status)
        text = None if metadata is None else work.json("metadata", metadata)
        given = None if text is None else decode(text)
        occurred_at = second_or_now(work, "at", at)
        fields = {"instance_id": owner, "occurred_at": occurred_at, "new_status": status, "metadata": text}
        new_values = {f"new_{name}": value for name, value in fields.items()}
        counted, trimmed, row = None, False, None
        for _ in range(_TRIES):
            current = work.row(_CURRENT, owner=owner)
            if current is not None and _is_current(current, status, given):
                return None
            seen = 0 if current is None else current[0]
            if counted is None:
                with work.batch() as batch:
                    counted = STATUS_LOG.count(batch, owner)
                    added = batch.returned(_ADD, **new_values, seen=seen)
                    cut = STATUS_LOG.trim_with(work, batch, owner, counted)
                row, trimmed = added.result, cut is not None and cut.result > 0
            else:
                row = work.returned(_ADD, **new_values, seen=seen)
                trimmed = row is not None and STATUS_LOG.trim_if_due(work, owner, number_of(counted))
            if row is not None:
                break
        else:
            raise Conflict("The status of this instance kept changing; try again.")
        oldest = work.runtime.settings.status_log_keep == 1 if trimmed else current is None
        return _entry(work, owner, (row[0], occurred_at, status, given, row[0] if oldest else None))

    @reads
    def current(self, *, instance_id: str | None = None) -> StatusEntry | None:
        """The instance's last transition; None before the first."""
        return self._first(_NEWEST, instance_id)

    @reads
    def latest(self, *, limit: int = 20, before: str | None = None) -> list[StatusEntry]:
        """The last transition of each instance, most recent first. `before`: only those after that instance in this order.

        Raises NotFound if `before` is an instance without transitions.
        """
        work, maximum = self._work, check_limit(limit)
        if before is None:
            rows = work.rows(_LATEST, limit=maximum)
        else:
            owner = resolve_scope(work, "before", before)
            last = must_exist(work.row(_NEWEST, owner=owner, limit=1), "status", before)
            rows = work.rows(_LATEST_AFTER, limit=maximum, seen_at=last[1], seen=owner)
        return [_entry(self._work, owner, tuple(columns)) for owner, *columns in rows]

    @reads
    def last(self, status: str, *, instance_id: str | None = None) -> StatusEntry | None:
        """The last transition into that status; None if there is none in the log."""
        return self._first(_INTO, instance_id, status=self._work.label("status", status))

    @reads
    def at(self, when: datetime, *, instance_id: str | None = None) -> str | None:
        """The status at an instant: that of the last entry up to then. None if the log has none that old."""
        work = self._work
        row = work.row(_AT, owner=resolve_scope(work, "instance_id", instance_id), when=as_utc("when", when))
        return None if row is None else str(row[0])

    @reads
    def history(self, *, limit: int = 100, before: int | None = None, instance_id: str | None = None) -> list[StatusEntry]:
        """The newest `limit` transitions, oldest first. `before`: only entries with a smaller id."""
        work = self._work
        owner, maximum = resolve_scope(work, "instance_id", instance_id), check_limit(limit, maximum=MAX)
        last = optional_count("before", before)
        if last is None:
            rows = work.rows(_NEWEST, owner=owner, limit=maximum)
        else:
            rows = work.rows(_EARLIER, owner=owner, limit=maximum, before=last)
        return [_entry(work, owner, row) for row in reversed(rows)]

    @reads
    def durations(self, since: datetime, until: datetime, *, instance_id: str | None = None) -> dict[str, float]:
        """Seconds in each status from `since` to `until`, consistent with `at` for every instant in between.

        The last status counts until `until`. Time before the oldest entry in the log counts for no status.
        """
        start, end = as_utc("since", since), as_utc("until", until)
        if end < start:
            raise InvalidValue("until", "it is before `since`.")
        owner = resolve_scope(self._work, "instance_id", instance_id)
        seconds: dict[str, float] = {}
        for occurred_at, status in _newest_first(self._work, owner, next_second("until", end)):
            start_in_range = max(occurred_at, start)
            if start_in_range < end:
                seconds[status] = seconds.get(status, 0.0) + (end - start_in_range).total_seconds()
            end = min(end, occurred_at)
            if end <= start:
                break
        return seconds

    @writes
    def trim(self, *, instance_id: str | None = None) -> int:
        """Delete all but the newest `Settings.status_log_keep` entries now; the number deleted."""
        return STATUS_LOG.trim(self._work, instance_id)

    def _first(self, prepared: Statement, instance_id: str | None, **values: Any) -> StatusEntry | None:
        work = self._work
        owner = resolve_scope(work, "instance_id", instance_id)
        row = work.row(prepared, owner=owner, limit=1, **values)
        return None if row is None else _entry(work, owner, row)


def _entry(work: UnitOfWork, owner: str, row: Row) -> StatusEntry:
    id, *told, oldest = row
    values = (id, public_scope(work, "instance_id", owner), *told, id == oldest)
    return construct(StatusEntry, dict(zip(StatusEntry.model_fields, values, strict=True)))


def _is_current(current: Row, status: str, metadata: Json) -> bool:
    _, new_status, known = current
    if is_unreadable(new_status) or is_unreadable(known):
        return False
    return new_status == status and (status != AgentStatus.QUESTION or _ordered(known) == _ordered(metadata))


def _ordered(value: Json) -> str:
    """JSON text to compare values by: independent of the order of keys, and different for 1, 1.0 and true."""
    return json.dumps(value, sort_keys=True)


def _newest_first(work: UnitOfWork, owner: str, until: datetime) -> Iterator[tuple[datetime, str]]:
    rows = work.rows(_BEFORE, owner=owner, until=until, limit=_PAGE)
    while rows:
        yield from ((occurred_at, status) for _, occurred_at, status in rows)
        rows = work.rows(_BEFORE_ID, owner=owner, until=until, before=rows[-1][0], limit=_PAGE) if len(rows) == _PAGE else []
