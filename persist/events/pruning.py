"""What of the log may go by age: the events of each stream, after a snapshot of it."""

from collections.abc import Sequence

from sqlalchemy import bindparam, exists, select

from persist.db.hot import Hot, Row
from persist.db.pruning import LOOK, Cut, Pruning, Removed
from persist.db.types import EpochMs, Label, Whole
from persist.db.work import Work
from persist.events.models import event_heads, event_log
from persist.events.schemas import ALL
from persist.events.trimming import lock_log, trim_each

_E, _H = event_log.c, event_heads.c
_OLD = Hot(
    select(_H.stream_id)
    .where(
        _H.stream_id != ALL,
        _H.stream_id > bindparam("after", type_=Label()),
        exists().where(_E.stream_id == _H.stream_id, _E.seq == _H.first_seq, _E.at < bindparam("before", type_=EpochMs())),
    )
    .order_by(_H.stream_id)
    .limit(bindparam("most", type_=Whole()))
)


class OldEvents(Pruning):
    """Streams whose first event is old; `keep` counts in each of them."""

    table = event_log
    batch = 50

    def look(self, work: Work, cut: Cut, after: Row | None) -> list[Row]:
        return work.rows(_OLD, after="" if after is None else after[0], before=cut.before, most=LOOK)

    def remove(self, work: Work, cut: Cut, found: Sequence[Row]) -> Removed:
        removed = Removed()
        lock_log(work)
        removed.rows[event_log.name] += trim_each(work, [stream for (stream,) in found], before=cut.before, keep=cut.keep)
        return removed


PRUNINGS = (OldEvents(),)
