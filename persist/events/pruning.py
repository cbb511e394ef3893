"""Pruning of the event log: old events of each stream, after a snapshot of the stream is written."""

from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy import bindparam, exists, select

from persist.db.operations.pruning import LOOK, Cut, Pruning, Removed
from persist.db.schema.column_types import EpochMs, Int64, Label
from persist.db.statements.prepared import Row, Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import InvalidValue, PayloadTooLarge, UnreadableRow
from persist.events.models import event_heads, event_log
from persist.events.schemas import ALL
from persist.events.trimming import count_trimmed, lock_log, trim_each

_E, _H = event_log.c, event_heads.c
_OLD = Statement(
    select(_H.stream_id)
    .where(
        _H.stream_id != ALL,
        _H.stream_id > bindparam("after", type_=Label()),
        exists().where(_E.stream_id == _H.stream_id, _E.seq == _H.first_seq, _E.at < bindparam("before", type_=EpochMs())),
    )
    .order_by(_H.stream_id)
    .limit(bindparam("maximum", type_=Int64()))
)


class OldEvents(Pruning):
    """Streams whose first event is older than the cut. `keep` counts events within each stream."""

    table = event_log
    batch = 1
    """A stream for each transaction, so that its writers wait for no other one."""

    def look(self, work: UnitOfWork, cut: Cut, after: Row | None) -> list[Row]:
        return work.rows(_OLD, after="" if after is None else after[0], before=cut.before, maximum=LOOK)

    def tally(self, work: UnitOfWork, cut: Cut, earlier: Sequence[Pruning]) -> Removed | None:
        counted, last = Removed(), None
        while found := self.look(work, cut, last):
            for (stream,) in found:
                with suppress(UnreadableRow, InvalidValue, PayloadTooLarge):  # such a stream is left as it is
                    counted.rows[event_log.name] += count_trimmed(work, stream, before=cut.before, keep=cut.keep)
            last = found[-1]
        return counted

    def remove(self, work: UnitOfWork, cut: Cut, found: Sequence[Row]) -> Removed:
        removed = Removed()
        lock_log(work)
        removed.rows[event_log.name] += trim_each(work, [stream for (stream,) in found], before=cut.before, keep=cut.keep)
        return removed


PRUNINGS = (OldEvents(),)
