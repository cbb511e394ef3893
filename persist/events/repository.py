"""`tx.events`: reading the log, and adding events of one's own."""

from datetime import datetime, timedelta

from sqlalchemy import bindparam, select

from persist.db.changes import Deed
from persist.db.checks import check_count, check_span
from persist.db.hot import LIMIT, Hot
from persist.db.json import Json
from persist.db.repository import Repository, reads, writes
from persist.db.types import Whole
from persist.db.values import build
from persist.db.work import Work
from persist.errors import InvalidValue
from persist.events.models import event_log
from persist.events.schemas import ALL, SNAPSHOT, Event
from persist.events.trimming import lock_log, streams, trim, trim_each

List = list

_E = event_log.c
_FIELDS = ("stream_id", "seq", "position", "type", "data", "at")
_columns = [_E[name] for name in _FIELDS]
_after = bindparam("after", type_=Whole())
_OF_STREAM = Hot(select(*_columns).where(_E.stream_id == bindparam("stream"), _E.seq > _after).order_by(_E.seq).limit(LIMIT))
_OF_ALL = Hot(select(*_columns).where(_E.position > _after).order_by(_E.position).limit(LIMIT))


class Events(Repository):
    """The events of a stream, or of all of them (`*`)."""

    @reads
    def read(self, stream_id: str, *, after: int = 0, limit: int = 1000) -> List[Event]:
        """Events in order: those of a stream with a `seq` above `after`, of `*` with a `position` above it."""
        work = self._work
        stream, after = work.label("stream_id", stream_id), check_count("after", after)
        if check_count("limit", limit) < 1:
            raise InvalidValue("limit", "expected at least 1.")
        if stream == ALL:
            rows = work.rows(_OF_ALL, after=after, limit=limit)
        else:
            rows = work.rows(_OF_STREAM, stream=stream, after=after, limit=limit)
        return [build(Event, dict(zip(_FIELDS, row, strict=True))) for row in rows]

    @writes
    def append(self, stream_id: str, type: str, data: Json) -> Event:
        """Add an event of your own; InvalidValue while the log is off.

        It is numbered at once, so whatever else commits waits for the end of this transaction.
        """
        work = self._work
        stream, kind = work.label("stream_id", stream_id), work.label("type", type)
        if stream == ALL:
            raise InvalidValue("stream_id", "'*' stands for all streams; name one.")
        if kind == SNAPSHOT:
            raise InvalidValue("type", f"{SNAPSHOT!r} is what the log itself writes.")
        work.json("data", data)
        if not work.keep_log(Deed(kind, stream, data=data)):
            raise InvalidValue("events", "the log of this database is off; open it with events=True, or run `persist events on`.")
        event: Event = work.written[-1]
        return event

    @writes
    def trim(self, stream_id: str = ALL, *, older_than: timedelta | None = None, keep: int | None = None) -> int:
        """Delete events of a stream, or of each (`*`), that are older than that, but for its newest `keep`; how many.

        With `keep=0` alone, nothing that happened so far is kept. A snapshot of the stream is written first, and numbers go
        on. A stream that was trimmed can no longer be rebuilt from its log alone. InvalidValue where neither is given.
        """
        work = self._work
        stream, kept = work.label("stream_id", stream_id), check_count("keep", 0 if keep is None else keep)
        if older_than is None and keep is None:
            raise InvalidValue("older_than", "say how old events must be, or how many of each stream to keep.")
        before = None if older_than is None else _ago(work, older_than)
        work.keep_log()  # what was done before comes before the snapshots
        lock_log(work)
        if stream != ALL:
            return trim(work, stream, before=before, keep=kept)
        return trim_each(work, streams(work), before=before, keep=kept)


def _ago(work: Work, span: timedelta) -> datetime:
    try:
        return work.now() - check_span("older_than", span)
    except OverflowError:
        raise InvalidValue("older_than", "it reaches back before the year 1.") from None
