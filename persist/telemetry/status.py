"""The status log: an instance's transitions. Their order is that of their ids; a clock that went back changes nothing."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import and_, bindparam, func, insert, or_, select

from persist.db.checks import optional_count
from persist.db.clock import aware
from persist.db.cursor import check_limit
from persist.db.hot import LIMIT, Hot, Row, param
from persist.db.json import Json, decode
from persist.db.own import own_scope, shown_scope
from persist.db.repository import Repository, reads, writes
from persist.db.spoilt import is_unreadable
from persist.db.types import Whole
from persist.db.values import build
from persist.db.work import Work
from persist.errors import Conflict, InvalidValue, NotFound
from persist.telemetry.instants import next_second, second_or_now
from persist.telemetry.models import status_log
from persist.telemetry.schemas import AgentStatus, StatusEntry
from persist.telemetry.windows import STATUS_LOG

MOST = 100_000
"""Entries that `history` gives at once, at most: more than a window of the usual size holds."""

_PAGE = 500
_TRIES = 8
_S = status_log.c
_mine = _S.instance_id == param("owner")
_all = status_log.alias("every_entry")
_oldest = select(func.min(_all.c.id)).where(_all.c.instance_id == param("owner")).scalar_subquery()
_ENTRY = select(_S.id, _S.occurred_at, _S.new_status, _S.metadata, _oldest).where(_mine).order_by(_S.id.desc()).limit(LIMIT)

_NEWEST = Hot(_ENTRY)
_EARLIER = Hot(_ENTRY.where(_S.id < param("before")))
_INTO = Hot(_ENTRY.where(_S.new_status == param("status")))
_ends = (
    select(_all.c.instance_id, func.max(_all.c.id).label("last_id"), func.min(_all.c.id).label("first_id"))
    .group_by(_all.c.instance_id)
    .subquery()
)
_LATEST = Hot(
    select(_S.instance_id, _S.id, _S.occurred_at, _S.new_status, _S.metadata, _ends.c.first_id)
    .join(_ends, (_S.instance_id == _ends.c.instance_id) & (_S.id == _ends.c.last_id))
    .order_by(_S.occurred_at.desc(), _S.instance_id)
    .limit(LIMIT)
)
_LATEST_AFTER = Hot(
    _LATEST.statement.where(  # type: ignore[attr-defined]  # it is the select above
        or_(_S.occurred_at < param("seen_at"), and_(_S.occurred_at == param("seen_at"), _S.instance_id > param("seen")))
    )
)
_AT = Hot(select(_S.new_status).where(_mine, _S.occurred_at <= param("when")).order_by(_S.id.desc()).limit(1))
_BEFORE = Hot(
    select(_S.id, _S.occurred_at, _S.new_status).where(_mine, _S.occurred_at < param("until")).order_by(_S.id.desc()).limit(LIMIT)
)
_BEFORE_ID = Hot(_BEFORE.statement.where(_S.id < param("before")))  # type: ignore[attr-defined]  # it is the select above
_STANDING = Hot(select(_S.id, _S.new_status, _S.metadata).where(_mine).order_by(_S.id.desc()).limit(1))
_GIVEN = (_S.instance_id, _S.occurred_at, _S.new_status, _S.metadata)
_newest = select(func.max(_all.c.id)).where(_all.c.instance_id == param("new_instance_id")).scalar_subquery()
# only after the entry that was seen: where several write at once, another one may have come in between
_ADD = Hot(
    insert(status_log)
    .from_select(
        _GIVEN,
        select(*(bindparam(f"new_{column.name}", type_=column.type) for column in _GIVEN)).where(
            func.coalesce(_newest, 0) == bindparam("seen", type_=Whole())
        ),
    )
    .returning(_S.id)
)


class StatusLog(Repository):
    """`tx.telemetry.status`. `instance_id` None: the file's own."""

    @writes
    def record(
        self, new_status: str, *, at: datetime | None = None, metadata: Json = None, instance_id: str | None = None
    ) -> StatusEntry | None:
        """A transition, or None if the instance is in that status already; of `question` new metadata is one too.

        Any word is a status. `at` None is now; it is kept as whole seconds, and may be before the last entry's.
        """
        work = self._work
        owner = own_scope(work, "instance_id", instance_id)
        status = work.label("new_status", new_status)
        text = None if metadata is None else work.json("metadata", metadata)
        given = None if text is None else decode(text)
        occurred_at = second_or_now(work, "at", at)
        fields = {"instance_id": owner, "occurred_at": occurred_at, "new_status": status, "metadata": text}
        inserted = 0
        for _ in range(_TRIES):
            standing = work.row(_STANDING, owner=owner)
            if standing is not None and _stands(standing, status, given):
                return None
            inserted = inserted or STATUS_LOG.count(work, owner)
            seen = 0 if standing is None else standing[0]
            row = work.returned(_ADD, **{f"new_{name}": value for name, value in fields.items()}, seen=seen)
            if row is not None:
                break
        else:
            raise Conflict("The status of this instance kept changing; try again.")
        oldest = standing is None
        if STATUS_LOG.trim_if_due(work, owner, inserted):
            oldest = work.runtime.settings.status_log_keep == 1
        return _entry(work, owner, (row[0], occurred_at, status, given, row[0] if oldest else None))

    @reads
    def current(self, *, instance_id: str | None = None) -> StatusEntry | None:
        """The last transition; None before the first."""
        return self._first(_NEWEST, instance_id)

    @reads
    def latest(self, *, limit: int = 20, before: str | None = None) -> list[StatusEntry]:
        """The last transition of each instance, those that changed last first; `before` one of them: those that follow it.

        NotFound for an instance that never said anything.
        """
        work, most = self._work, check_limit(limit)
        if before is None:
            rows = work.rows(_LATEST, limit=most)
        else:
            owner = own_scope(work, "before", before)
            last = work.row(_NEWEST, owner=owner, limit=1)
            if last is None:
                raise NotFound("status", before)
            rows = work.rows(_LATEST_AFTER, limit=most, seen_at=last[1], seen=owner)
        return [_entry(self._work, owner, tuple(rest)) for owner, *rest in rows]

    @reads
    def last(self, status: str, *, instance_id: str | None = None) -> StatusEntry | None:
        """The last transition into that status; None if it is not known."""
        return self._first(_INTO, instance_id, status=self._work.label("status", status))

    @reads
    def at(self, when: datetime, *, instance_id: str | None = None) -> str | None:
        """The status at an instant: of the entries until then the last one's. None: it is not known, or no longer."""
        work = self._work
        row = work.row(_AT, owner=own_scope(work, "instance_id", instance_id), when=aware("when", when))
        return None if row is None else str(row[0])

    @reads
    def history(self, *, limit: int = 100, before: int | None = None, instance_id: str | None = None) -> list[StatusEntry]:
        """The newest `limit` transitions, oldest first; `before`: only entries with a smaller id."""
        work = self._work
        owner, most = own_scope(work, "instance_id", instance_id), check_limit(limit, most=MOST)
        last = optional_count("before", before)
        if last is None:
            rows = work.rows(_NEWEST, owner=owner, limit=most)
        else:
            rows = work.rows(_EARLIER, owner=owner, limit=most, before=last)
        return [_entry(work, owner, row) for row in reversed(rows)]

    @reads
    def durations(self, since: datetime, until: datetime, *, instance_id: str | None = None) -> dict[str, float]:
        """Seconds in each status from `since` to `until`, by what `at` says of every moment between them.

        The last status is taken to last until `until`. Time before the oldest entry that is kept is in no status.
        """
        start, end = aware("since", since), aware("until", until)
        if end < start:
            raise InvalidValue("until", "it is before `since`.")
        owner = own_scope(self._work, "instance_id", instance_id)
        seconds: dict[str, float] = {}
        for occurred_at, status in _backwards(self._work, owner, next_second("until", end)):
            begun = max(occurred_at, start)
            if begun < end:
                seconds[status] = seconds.get(status, 0.0) + (end - begun).total_seconds()
            end = min(end, occurred_at)
            if end <= start:
                break
        return seconds

    @writes
    def trim(self, *, instance_id: str | None = None) -> int:
        """Delete all but the newest `Settings.status_log_keep` entries now; how many."""
        return STATUS_LOG.trim(self._work, instance_id)

    def _first(self, hot: Hot, instance_id: str | None, **values: Any) -> StatusEntry | None:
        work = self._work
        owner = own_scope(work, "instance_id", instance_id)
        row = work.row(hot, owner=owner, limit=1, **values)
        return None if row is None else _entry(work, owner, row)


def _entry(work: Work, owner: str, row: Row) -> StatusEntry:
    """Of id, instant, status, metadata, and the oldest id there is."""
    id, occurred_at, status, metadata, oldest = row
    return build(
        StatusEntry,
        {
            "id": id,
            "instance_id": shown_scope(work, "instance_id", owner),
            "occurred_at": occurred_at,
            "new_status": status,
            "metadata": metadata,
            "is_oldest": id == oldest,
        },
    )


def _stands(standing: Row, status: str, metadata: Json) -> bool:
    _, new_status, known = standing
    if is_unreadable(new_status) or is_unreadable(known):
        return False
    return new_status == status and (status != AgentStatus.QUESTION or _ordered(known) == _ordered(metadata))


def _ordered(value: Json) -> str:
    """The same text for the same value, whatever the order of its keys; 1, 1.0 and true are not the same."""
    return json.dumps(value, sort_keys=True)


def _backwards(work: Work, owner: str, until: datetime) -> Iterator[tuple[datetime, str]]:
    """The entries before that second, the newest first, a page at a time."""
    rows = work.rows(_BEFORE, owner=owner, until=until, limit=_PAGE)
    while rows:
        yield from ((occurred_at, status) for _, occurred_at, status in rows)
        rows = work.rows(_BEFORE_ID, owner=owner, until=until, before=rows[-1][0], limit=_PAGE) if len(rows) == _PAGE else []
