"""`tx.events.consumers`: durable readers of the log, each event at least once, in order, whatever is killed in between.

A consumer gets an event only once all smaller positions are settled (persist.events.first_snapshots), so no event becomes visible
behind one that it has seen. Hence one number says all that a consumer has acknowledged.
"""

from datetime import datetime, timedelta
from functools import cache
from typing import Literal

from sqlalchemy import bindparam, delete, null, or_, select, update

from persist.db.expressions.upsert import insert_missing, seen
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_count, check_list, check_timedelta, must_exist, optional_count
from persist.db.values.clock import instant_after
from persist.db.values.frozen import construct
from persist.db.values.pages import check_limit
from persist.errors import Conflict, InvalidValue, LeaseLost, named
from persist.events.first_snapshots import PositionQuery, sees_commits, settled_now
from persist.events.models import event_consumers, event_log
from persist.events.schemas import Consumer, Event, EventBatch

LEASE = timedelta(minutes=1)
"""How long a batch is handed out for."""
MAX_TYPES = 100
"""The most types that one consumer can ask for."""

List = list
_C, _E = event_consumers.c, event_log.c
_name = _C.name == param("row_name")
_CONSUMER = Values(Consumer, event_consumers, without=("behind",))
_consumer = select(*_CONSUMER.columns)
_POSITION = _CONSUMER.fields.index("position")
_GET = Statement(_consumer.where(_name))
_LIST = Statement(_consumer.order_by(_C.name).limit(LIMIT))
_ADD = Statement(insert_missing(event_consumers, "name"))
_REMOVE = Statement(delete(event_consumers).where(_name))
_PLACE = Statement(
    select(_C.position, _C.lease_token, _C.lease_position, _C.lease_expires_at, _C.types_json).where(_name).with_for_update()
)
_EVENT = Values(Event, event_log)
_in_order = select(*_EVENT.columns).order_by(_E.position).limit(LIMIT)
_events = _in_order.where(_E.position > bindparam("after", type_=Int64()))
_is_free = or_(_C.lease_position.is_(None), _C.lease_expires_at.is_(None), _C.lease_expires_at <= param("at"))
_free_place = select(_C.position).where(_name, _is_free, _C.types_json.is_(None)).scalar_subquery()
_EVENTS_AT_ONCE = Statement(_in_order.where(_E.position > _free_place))
"""The next events of a consumer that gets all types and has no lease; sent with the statement that locks its row."""
_place = update(event_consumers).where(_name)
_HAND_OUT = Statement(
    _place.values(
        position=param("new_position"), lease_token=param("token"), lease_position=param("upto"), lease_expires_at=param("until")
    )
)
_PASS_OVER = Statement(_place.values(position=param("new_position"), lease_position=null(), lease_expires_at=null()))
_ACKNOWLEDGE = Statement(_place.values(position=param("new_position"), acknowledged_at=param("at")))
_ACKNOWLEDGE_ALL = Statement(
    _place.values(position=param("new_position"), acknowledged_at=param("at"), lease_position=null(), lease_expires_at=null())
)


@cache
def _next_events(types: int) -> Statement:
    """The SELECT of the next events: of `types` types, or of any type for 0."""
    if not types:
        return Statement(_events)
    return Statement(_events.where(_E.type.in_([bindparam(f"type_{number}", type_=_E.type.type) for number in range(types)])))


class Consumers(Repository[F]):
    """`tx.events.consumers`: a name stands for a consumer, however many processes work for it."""

    @writes
    def create(
        self, name: str, *, at: Literal["beginning", "now"] | int = "beginning", types: List[str] | None = None
    ) -> Consumer:
        """Make a consumer, or return the one that has the name. Raises Conflict if that one gets other types.

        `at`: the first event it gets is the log's oldest ("beginning"), the next one ("now"), or the one after a position.
        `types`: only events of these types, such as `["run.completed"]`, at most 100.
        """
        work = self._work
        wanted = _checked_types(work, types)
        consumer = work.label("name", name)
        position = settled_now(work) if at == "now" else 0 if at == "beginning" else _checked_position(at)
        added = {
            "name": consumer,
            "position": position,
            "lease_token": 0,
            "lease_position": None,
            "lease_expires_at": None,
            "created_at": work.now(),
            "acknowledged_at": None,
            "types_json": None if wanted is None else work.json("types", wanted),
        }
        with work.batch(last=True) as batch:
            batch.run(_ADD, **added)
            found, last = batch.row(_GET, row_name=consumer), PositionQuery(batch, given=True)
        made = _value(seen(found.result, _ADD, "consumer", name), last)
        if made.types != wanted:
            raise Conflict(
                f"The consumer {named(name)} gets events of other types; remove it first.", constraint="event_consumers"
            )
        return made

    @writes
    def next(self, name: str, *, limit: int = 100, lease: timedelta = LEASE) -> EventBatch:
        """Hand out the next events that the consumer has not acknowledged, at most `limit`, until `lease` is over.

        Until then other callers get nothing, and after it the same events. Empty: there is no event, or another caller has it. A
        name that was never used is a new consumer, at the beginning of the log. Handle the events after this transaction has
        committed, and then `ack` them.
        """
        work = self._work
        consumer, most = work.label("name", name), check_limit(limit)
        span = check_timedelta("lease", lease, zero=False)
        now = work.now()
        until = instant_after("lease", now, span)
        if not sees_commits(work):
            raise InvalidValue("transaction", "a consumer would pass over events in one snapshot: begin it as READ COMMITTED.")
        with work.batch() as batch:
            place, settled = batch.row(_PLACE, row_name=consumer), PositionQuery(batch)
            at_once = batch.rows(_EVENTS_AT_ONCE, row_name=consumer, at=now, limit=most)
        row = place.result
        if row is None:
            self.create(consumer)
            row = seen(work.row(_PLACE, row_name=consumer), _ADD, "consumer", name)
        position, token, lease_position, expires_at, types = row
        if lease_position is not None and expires_at is not None and expires_at > now:
            return _batch(consumer, [], max(position, lease_position), token, None)
        head = settled.position
        if head <= position:
            return _batch(consumer, [], position, token, None)
        wanted = {f"type_{number}": kind for number, kind in enumerate(types or ())}
        rows = at_once.result or work.rows(_next_events(len(wanted)), after=position, limit=most, **wanted)
        found = [_EVENT(values) for values in rows]
        events = [event for event in found if event.position <= head]
        if events:
            upto = events[-1].position
            work.run_last(_HAND_OUT, row_name=consumer, new_position=position, token=token + 1, upto=upto, until=until)
            return _batch(consumer, events, upto, token + 1, until)
        # nothing that is wanted is settled, so what is settled need not be read again
        work.run_last(_PASS_OVER, row_name=consumer, new_position=head)
        return _batch(consumer, [], head, token, None)

    @writes
    def ack(self, name: str, position: int, *, token: int | None = None) -> bool:
        """Acknowledge all events up to `position`: nobody gets them again. False if they were acknowledged before.

        `position` comes from a batch or from an event in it; the events after it stay handed out. `token`, the batch's: LeaseLost
        if another caller has had the lease since. Without it a late caller cannot be told from the one who has the lease now.
        Raises LeaseLost if no event up to there is handed out, NotFound.
        """
        work = self._work
        upto, fence = _checked_position(position), optional_count("token", token)
        row = must_exist(work.row(_PLACE, row_name=work.label("name", name)), "consumer", name)
        acknowledged, current, lease_position, _, _ = row
        if fence is not None and fence != current:
            raise _lost(name, fence, "another caller has had the lease since, and handles these events again.")
        if upto <= acknowledged:
            return False
        if lease_position is None or upto > lease_position:
            raise _lost(name, fence, f"position {upto} is not handed out; acknowledge what `next` returned.")
        statement = _ACKNOWLEDGE_ALL if upto == lease_position else _ACKNOWLEDGE
        work.run_last(statement, row_name=name, new_position=upto, at=work.now())
        return True

    @reads
    def get(self, name: str) -> Consumer:
        """How far the consumer is. Raises NotFound."""
        consumer = self._work.label("name", name)
        with self._work.batch() as batch:
            row, last = batch.row(_GET, row_name=consumer), PositionQuery(batch, given=True)
        return _value(row.must_exist("consumer", name), last)

    @reads
    def list(self, *, limit: int = 100) -> List[Consumer]:
        """The consumers by name, at most `limit`."""
        most = check_limit(limit)
        with self._work.batch() as batch:
            rows, last = batch.rows(_LIST, limit=most), PositionQuery(batch, given=True)
        return [_value(row, last) for row in rows.result]

    @writes
    def remove(self, name: str) -> bool:
        """Forget a consumer, so that `trim` and pruning no longer keep events for it. False for an unknown name."""
        return self._work.run_last(_REMOVE, row_name=self._work.label("name", name)) == 1


def _lost(name: str, token: int | None, reason: str) -> LeaseLost:
    return LeaseLost(name, token, reason, kind="consumer")


def _value(row: Row, last: PositionQuery) -> Consumer:
    return _CONSUMER.beside(row, behind=max(0, last.position - row[_POSITION]))


def _batch(consumer: str, events: List[Event], position: int, token: int, expires_at: datetime | None) -> EventBatch:
    fields = {"consumer": consumer, "events": events, "position": position, "token": token, "expires_at": expires_at}
    return construct(EventBatch, fields)


def _checked_types(work: UnitOfWork, types: object) -> List[str] | None:
    if types is None:
        return None
    labels = sorted({work.label(f"types[{number}]", kind) for number, kind in enumerate(check_list("types", types))})
    if not 1 <= len(labels) <= MAX_TYPES:
        raise InvalidValue("types", f"expected 1 to {MAX_TYPES} types of events.")
    return labels


def _checked_position(position: object) -> int:
    if isinstance(position, str):
        raise InvalidValue("at", "expected 'beginning', 'now' or a position.")
    return check_count("position", position)
