"""How a log stands: whether it is kept, and how much of it there is."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, func, select

from persist.db.hot import LIMIT, Hot
from persist.db.work import Work
from persist.events.models import event_heads, event_log
from persist.events.schemas import ALL
from persist.events.switching import is_on

_E, _H = event_log.c, event_heads.c
_EVENTS = Hot(select(func.count(_E.position), func.min(_E.at)))
_STREAMS = Hot(select(func.count(_H.stream_id)).where(_H.stream_id != ALL))
_LATEST = Hot(
    select(_H.stream_id, _H.seq, _H.first_seq, _E.position, _E.type, _E.at)
    .join(event_log, and_(_E.stream_id == _H.stream_id, _E.seq == _H.seq))
    .order_by(_E.position.desc())
    .limit(LIMIT)
)
_LAST = Hot(select(_H.seq).where(_H.stream_id == ALL))


@dataclass(frozen=True, slots=True)
class Standing:
    """Of the log of one database.

    events    how many are there, of how many were written
    streams   how many have, or had, events
    position  the last number given, 0 for none
    oldest    when the oldest event that is left was written
    """

    on: bool
    events: int
    streams: int
    position: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream: its newest event, and the number of the first that is left."""

    stream_id: str
    seq: int
    first_seq: int
    position: int
    type: str
    at: datetime


def latest_streams(work: Work, limit: int) -> list[Stream]:
    """Those in which something happened last."""
    with work.verb("latest_streams", writes=False):
        return [Stream(*row) for row in work.rows(_LATEST, limit=limit)]


def standing(work: Work) -> Standing:
    """Read in one snapshot; it counts every event, so it takes the longer the more there are."""
    with work.verb("standing", writes=False):
        events, streams, last = work.row(_EVENTS), work.row(_STREAMS), work.row(_LAST)
        assert events is not None
        assert streams is not None
        return Standing(is_on(work), events[0], streams[0], 0 if last is None else last[0], events[1])
