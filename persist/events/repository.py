"""`tx.events`: reading the event log, appending a caller's own events, and trimming."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import bindparam, select

from persist.db.changes.journal import VerbChanges
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import LIMIT, Row, Statement
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, on_demand, reads, writes, writes_in_parts
from persist.db.transactions.snapshots import in_snapshot
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_count, check_timedelta
from persist.db.values.json import Json
from persist.errors import InvalidValue
from persist.events.consumers import Consumers
from persist.events.models import event_log
from persist.events.schemas import ALL, SNAPSHOT, Event
from persist.events.settling import MARK, sees_commits, settled_now, settled_part
from persist.events.trimming import lock_log, streams, trim, trim_each

List = list
MOST_STREAMS = 1_000
"""The most streams that one transaction of a caller trims."""

_E = event_log.c
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
        no event with a greater position.
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

        Called on the store, `*` is a transaction for each stream, so that its writers wait for no other one. In a transaction of
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
    """The events of all streams after a position that are settled, and those behind them.

    `settled`: a position that was settled before the transaction began.
    """
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
    """The events of a snapshot with those behind them between which there is no other one, now that all others have ended.

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
