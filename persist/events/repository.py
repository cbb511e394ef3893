"""`tx.events`: reading the log, replaying a stream, and what the log is doing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, bindparam, delete, func, insert, select, update

from persist.db.changes.journal import VerbChanges, key_of, logged_tables
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import LIMIT, Row, Statement
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, on_demand, reads, writes, writes_in_parts
from persist.db.transactions.snapshots import in_snapshot
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.db.values.arguments import check_count, check_timedelta
from persist.db.values.json import Json
from persist.errors import InvalidValue
from persist.events.consumers import Consumers
from persist.events.first_snapshots import MARK, last_given, progress_of, sees_commits, settled_now, settled_part
from persist.events.models import event_heads, event_log
from persist.events.schemas import ALL, SNAPSHOT, SNAPSHOT_CONTINUED, VERSION, Event
from persist.events.switching import is_on
from persist.events.upkeep import lock_log, streams, trim, trim_each
from persist.events.writing import plain_rows


class Replay:
    """Applies events to the tables of one transaction. `owners`: the value for each scope column whose logged value is empty."""

    def __init__(self, work: UnitOfWork, tables: Mapping[str, Table], owners: Mapping[str, str]) -> None:
        self._work, self._tables, self._owners = work, tables, owners
        self._pieces = count(1)
        self._tails: dict[str, tuple[Table, str, str]] = {}
        for table in tables.values():
            if "deltas_of" in table.info:
                part, column = table.info["deltas_of"]
                (link,) = table.c[part].foreign_keys
                self._tails[link.column.table.name] = (table, part, column)

    def apply(self, event: Event) -> None:
        """Apply one event. Events without changes, as a caller's own, do nothing. InvalidValue: unknown version or table."""
        is_snapshot = event.type in (SNAPSHOT, SNAPSHOT_CONTINUED)
        data = event.data
        if not isinstance(data, dict) or "changes" not in data:
            return
        if data.get("v") != VERSION:
            raise InvalidValue(f"event {event.position}", f"its data is of version {data.get('v')!r}, and {VERSION} is known.")
        for change in data["changes"]:
            table = self._tables.get(change["table"])
            if table is None:
                raise InvalidValue(f"event {event.position}", f"there is no table {change['table']!r}.")
            if change["op"] == "put":
                self._put(table, change["row"])
                if is_snapshot:  # which has the pieces, too, that events before it may have written
                    self._forget_pieces(table, change["row"])
            elif change["op"] == "set":
                self._set(table, change["key"], change["row"])
            else:
                self._work.change(delete(table).where(self._matches(table, self._values(table, change["key"]))))

    def _put(self, table: Table, logged: Mapping[str, Any]) -> None:
        row = self._values(table, logged)
        if "deltas_of" in table.info:  # folds, which are not logged, restart its numbers, so a replay counts events
            (number,) = [name for name in key_of(table) if name != table.info["deltas_of"][0]]
            row[number] = next(self._pieces)
        key = {name: row[name] for name in key_of(table)}
        other_columns = {name: value for name, value in row.items() if name not in key}
        if not other_columns or not self._work.change(update(table).where(self._matches(table, key)).values(other_columns)):
            if not other_columns:
                self._work.change(delete(table).where(self._matches(table, key)))
            self._work.change(insert(table).values(row))

    def _set(self, table: Table, key: Mapping[str, Any], logged: Mapping[str, Any]) -> None:
        row = self._values(table, logged)
        if row:
            self._work.change(update(table).where(self._matches(table, self._values(table, key))).values(row))
        tail = self._tails.get(table.name)
        if tail is not None and tail[2] in row:
            self._forget_pieces(table, key)

    def _forget_pieces(self, table: Table, key: Mapping[str, Any]) -> None:
        if table.name in self._tails:
            rows, part, _ = self._tails[table.name]
            (link,) = rows.c[part].foreign_keys
            self._work.change(delete(rows).where(rows.c[part] == key[link.column.name]))

    def _values(self, table: Table, logged: Mapping[str, Any]) -> dict[str, Any]:
        row = plain_rows(table).values(logged)
        for scope, owner in self._owners.items():
            if row.get(scope) == "":
                row[scope] = owner
        return row

    @staticmethod
    def _matches(table: Table, key: Mapping[str, Any]) -> ColumnElement[bool]:
        return and_(*(table.c[name].is_(None) if value is None else table.c[name] == value for name, value in key.items()))


# The status of an event log: whether it is on, its size and its latest streams.

_E = event_log.c
_H = event_heads.c
_EVENTS = Statement(select(func.count(_E.position), func.min(_E.at)))
_STREAMS = Statement(select(func.count(_H.stream_id)).where(_H.stream_id != ALL))
_LATEST = Statement(
    select(_H.stream_id, _H.seq, _H.first_seq, _E.position, _E.type, _E.at)
    .join(event_log, and_(_E.stream_id == _H.stream_id, _E.seq == _H.seq))
    .order_by(_E.position.desc())
    .limit(LIMIT)
)


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The status of one database's event log.

    on        whether the log is on
    guarded   whether the database refuses writers that do not keep the log; some refuse the triggers that it takes
    snapshots how many streams have a snapshot since the log was switched on, while others still lack theirs; else None
    events    the number of events now in the log
    streams   the number of streams that have or had events
    position  the last position given, 0 for none: the number of events ever written
    oldest    when the oldest event in the log was written, None without events
    """

    on: bool
    guarded: bool
    snapshots: int | None
    events: int
    streams: int
    position: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream: its newest event, and the `seq` of the oldest event left."""

    stream_id: str
    seq: int
    first_seq: int
    position: int
    type: str
    at: datetime


def latest_streams(work: UnitOfWork, limit: int) -> list[Stream]:
    """The streams with the newest events, newest first."""
    with Verb(work, "latest_streams", writes=False):
        return [Stream(*row) for row in work.rows(_LATEST, limit=limit)]


def log_status(work: UnitOfWork) -> LogStatus:
    """The status of the log. It counts all events, so its cost grows with the log."""
    with Verb(work, "standing", writes=False):
        events, streams, last = work.row(_EVENTS), work.row(_STREAMS), last_given(work)
        assert events is not None
        assert streams is not None
        on, progress = is_on(work), progress_of(work)
        guarded = on and not work.whole_tables.unguarded(logged_tables(work.runtime.tables()))
        under_way = None if progress is None or progress.upto is not None else progress.streams
        return LogStatus(on, guarded, under_way, events[0], streams[0], last, events[1])


List = list
MOST_STREAMS = 1_000
"""The most streams that one transaction of a caller trims."""

_EVENT = Values(Event, event_log)
_after = bindparam("after", type_=Int64())
_OF_STREAM = Statement(
    select(*_EVENT.columns).where(_E.stream_id == bindparam("stream"), _E.seq > _after).order_by(_E.seq).limit(LIMIT)
)
_POSITIONS = Statement(select(_E.position).where(_E.position > _after, _E.position <= bindparam("upto", type_=Int64())))
_OF_ALL = Statement(select(*_EVENT.columns).where(_E.position > _after).order_by(_E.position).limit(LIMIT))


class Events(Repository[F]):
    """`tx.events`: the events of one stream, or of all streams (`*`)."""

    consumers = on_demand(Consumers[F])

    @reads
    def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> List[Event]:
        """Events in order, at most `limit`: of a stream those with `seq` > `after`, of `*` those with `position` > `after`.

        Of `*` an event is there once no transaction runs that has a smaller position.
        """
        work = self._work
        stream, after = work.label("stream_id", stream_id), check_count("after", after)
        if check_count("limit", limit) < 1:
            raise InvalidValue("limit", "expected at least 1.")
        if stream == ALL:
            events, behind = read_all(work, after, limit)
            if behind and not work.writable and work.runtime.owns_engine and not work.runtime.one_connection:
                return confirmed(work, after, events, behind)
            return events
        return _events(work.rows(_OF_STREAM, stream=stream, after=after, limit=limit))

    @writes
    def append(self, stream_id: str, type: str, data: Json) -> Event:
        """Append an event of your own. Raises InvalidValue while the log is off.

        The event is numbered at once: until this transaction ends, others that write to the stream wait, and readers of `*` get
        no later event.
        """
        work = self._work
        stream, kind = work.label("stream_id", stream_id), work.label("type", type)
        if stream == ALL:
            raise InvalidValue("stream_id", "'*' stands for all streams; name one.")
        if kind == SNAPSHOT:
            raise InvalidValue("type", f"{SNAPSHOT!r} is what the log itself writes.")
        work.json("data", data)
        if not work.store_events(VerbChanges(kind, stream, data=data)):
            raise InvalidValue("events", "the log of this database is off; open it with events=True, or run `persist events on`.")
        event: Event = work.events.written[-1]
        return event

    def _split(
        self, stream_id: str = ALL, *, older_than: timedelta | None = None, keep: int | None = None
    ) -> List[Callable[["Events"], int]]:
        stream, keep_newest, _ = self._trimmed(stream_id, older_than, keep)
        each = streams(self._work, keep_newest) if stream == ALL else []
        return [partial(Events._trim_one, stream=one, older_than=older_than, keep=keep) for one in each]

    def _trim_one(self, *, stream: str, older_than: timedelta | None, keep: int | None) -> int:
        _, keep_newest, before = self._trimmed(stream, older_than, keep)
        lock_log(self._work)
        return trim_each(self._work, [stream], before=before, keep=keep_newest)

    @writes_in_parts(_split)
    def trim(self, stream_id: str = ALL, *, older_than: timedelta | None = None, keep: int | None = None) -> int:
        """Delete events older than `older_than`, except the newest `keep`, of one stream or of each (`*`); the number deleted.

        `keep=0` alone deletes all events so far. A snapshot of the stream is written first, and its numbers continue. A trimmed
        stream can no longer be rebuilt from its log alone. Events that a consumer has not acknowledged stay.

        Called on the store, `*` takes a transaction per stream, so that writers of other streams never wait. In a transaction of
        the caller they wait for its end. Raises InvalidValue if neither argument is given, and in a transaction if more than
        1,000 streams have more than `keep` events.
        """
        work = self._work
        stream, keep_newest, before = self._trimmed(stream_id, older_than, keep)
        work.store_events()  # log this transaction's earlier changes before the snapshots
        each = streams(work, keep_newest) if stream == ALL else []
        if len(each) > MOST_STREAMS:
            raise InvalidValue(
                "stream_id",
                f"a transaction trims {MOST_STREAMS:,} streams at most, as their writers wait for its end, and {len(each):,} "
                f"have events to delete. Call `store.events.trim`, which is a transaction for each.",
            )
        lock_log(work)
        if stream != ALL:
            return trim(work, stream, before=before, keep=keep_newest)
        return trim_each(work, each, before=before, keep=keep_newest)

    def _trimmed(self, stream_id: str, older_than: timedelta | None, keep: int | None) -> tuple[str, int, datetime | None]:
        """What the arguments of `trim` say: the stream, how many of the newest stay, and the instant before which others go."""
        stream, keep_newest = self._work.label("stream_id", stream_id), check_count("keep", 0 if keep is None else keep)
        if older_than is None and keep is None:
            raise InvalidValue("older_than", "say how old events must be, or how many of each stream to keep.")
        return stream, keep_newest, None if older_than is None else _ago(self._work, older_than)


def read_all(work: UnitOfWork, after: int, limit: int, *, settled: int | None = None) -> tuple[List[Event], List[Event]]:
    """The settled events of all streams after a position, and the events behind. `settled`: as known before the transaction."""
    if settled is None and work.writable and not work.runtime.dialect.one_writer and sees_commits(work):
        settled = settled_now(work)  # before the statement that reads, which sees what has ended by then
    with work.batch() as batch:
        mark = batch.row(MARK)
        rows = batch.rows(_OF_ALL, after=after, limit=limit)
    found = _events(rows.result)
    if mark.result is None or mark.result[0] is None:
        return found, []
    part = settled_part(found, max(after, mark.result[0], settled or 0))
    return part, found[len(part) :]


def confirmed(work: UnitOfWork, after: int, events: List[Event], behind: List[Event]) -> List[Event]:
    """The events of a snapshot, and the events `behind` them before the first committed position that the snapshot lacks.

    A position that is missing in the snapshot was rolled back, or its transaction has ended since. Another look tells which.
    """
    settled = in_snapshot(work.runtime, settled_now)
    base, last = events[-1].position if events else after, min(settled, behind[-1].position)
    there = in_snapshot(work.runtime, lambda other: other.rows(_POSITIONS, after=base, upto=last))
    seen = {event.position for event in behind}
    upto = min((position - 1 for (position,) in there if position not in seen), default=last)
    return events + settled_part(behind, upto)


def _events(rows: List[Row]) -> List[Event]:
    return [_EVENT(row) for row in rows]


def _ago(work: UnitOfWork, span: timedelta) -> datetime:
    try:
        return work.now() - check_timedelta("older_than", span)
    except OverflowError:
        raise InvalidValue("older_than", "it reaches back before the year 1.") from None
