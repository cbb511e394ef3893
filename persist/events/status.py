"""The status of an event log: whether it is on, its size and its latest streams."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, func, select

from persist.db.changes.event_streams import logged_tables
from persist.db.statements.prepared import LIMIT, Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.events.first_snapshots import progress_of
from persist.events.models import event_heads, event_log
from persist.events.schemas import ALL
from persist.events.settling import last_given
from persist.events.switching import is_on

_E, _H = event_log.c, event_heads.c
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
