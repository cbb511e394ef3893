"""Writing the event log: the changes of a transaction become events, numbered by its last statements.

The heads of their streams are updated first and stay locked until the commit, so a stream's numbers have no gap and follow its
commits. Positions come from a sequence (persist.db.expressions.positions), while the row of `*` says so in `settled`, and no
transaction waits for another one's. A transaction takes them when it has locked its heads: positions follow numbers in each
stream, and come after those of everything that the transaction has seen. Otherwise, as on SQLite and where an older release has
switched the log on, the row of `*` counts them, and stays locked until the commit.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Table, Text, and_, bindparam, case, cast, func, insert, literal, select, update

from persist.db.changes.batch import Batch, Pending, StatementRunner
from persist.db.changes.journal import Change, Op, VerbChanges, key_of, place_of
from persist.db.dialects.interface import MAX_PAYLOAD, Notify
from persist.db.expressions.positions import next_position, position_lock, switch_hold
from persist.db.expressions.upsert import merging
from persist.db.formats import JsonRows
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Statement
from persist.db.values.clock import Clock, to_ms
from persist.db.values.frozen import construct
from persist.db.values.json import JsonLimits, encode
from persist.errors import InvalidValue
from persist.events.models import event_heads, event_log, event_positions
from persist.events.schemas import ALL, OTHER, TYPES, VERSION, Event

MAX_CHANGES = 1000
"""Changes in one event. Further changes go into the next event of the stream."""

_ANY_SIZE = JsonLimits(max_bytes=2**31, max_depth=254)  # limits apply to callers' values; here columns are 4 levels deeper
_E = event_log.c
_H = event_heads.c
_TEXT = Text()
_many = bindparam("many", type_=Int64())
_stream = bindparam("stream", type_=_TEXT)
_all, _own = event_heads.alias("all_streams"), event_heads.alias("own_stream")
_logging = and_(_all.c.stream_id == ALL, _all.c.logging)
_of_stream = and_(_own.c.stream_id == _stream, _own.c.stream_id != _all.c.stream_id, _logging)
_counts = _all.c.settled.is_(None)
_COUNT = Statement(update(event_heads).where(_H.stream_id == ALL, _H.logging, _H.settled.is_(None)).values(seq=_H.seq + _many))
# Without a table: on a distributed server they would run where the table is, without the sequence.
_HOLD = Statement(select(switch_hold(event_positions)))
_LOCK = Statement(select(position_lock(event_positions)))
_TAKE = Statement(select(next_position(event_positions)))
_COUNT_STREAM = Statement(
    merging(
        insert(event_heads).from_select(["stream_id", "seq"], select(_stream, _many).select_from(_all).where(_logging)),
        "stream_id",
        seq="sum",
    )
)


def _insert(position: ColumnElement[int]) -> Statement:
    # A counted number is that of the last event, which the heads have by now, less the events that come after it.
    counted = case((_counts, _all.c.seq - bindparam("after_in_all", type_=Int64())), else_=position)
    names = ["position", "stream_id", "seq", "type", "at", "actor", "data"]
    values = select(
        counted,
        _own.c.stream_id,
        _own.c.seq - bindparam("after_in_stream", type_=Int64()),
        bindparam("kind", type_=_E.type.type),
        bindparam("now", type_=_E.at.type),
        bindparam("actor", type_=_E.actor.type),
        bindparam("content", type_=_E.data.type),
    )
    return Statement(insert(event_log).from_select(names, values.where(_of_stream)).returning(_E.position, _E.seq))


_INSERT = _insert(next_position(event_positions))
_INSERT_AT = _insert(bindparam("taken", type_=Int64()))


@cache
def _notice(notify: Notify) -> Statement:
    """Wakes the readers in other processes when a caller's transaction commits: nobody else learns of its commit."""
    payload = func.substr(cast(_own.c.seq, Text()) + literal(" ", Text()) + _own.c.stream_id, 1, MAX_PAYLOAD)
    return Statement(select(notify(payload)).where(_of_stream))


class EventWriter:
    """Writes the event log of one store's transactions."""

    def __init__(
        self,
        clock: Clock,
        scopes: dict[str, str],
        notify: Notify | None,
        switched_off: Callable[[], None],
        settle: Callable[[], None],
        *,
        distributed: bool = False,
        actor: str | None = None,
    ) -> None:
        self._clock, self._scopes, self._notice = clock, scopes, None if notify is None else _notice(notify)
        self._actor = actor
        """Who acts in this store, where a transaction does not say."""
        self._takes_positions = notify is not None
        self._apart = distributed and self._takes_positions
        """Whether positions are taken by statements of their own, before the rows that have them."""
        self._switched_off, self.ended = switched_off, settle
        """`ended` is called after the end of a transaction that had events: it wakes the readers."""

    def write(self, db: StatementRunner, verb_changes: Sequence[VerbChanges], actor: str | None = None) -> list[Event]:
        """Number and store the events of these changes, in one batch. No events if another process switched the log off."""
        actor = self._actor if actor is None else actor
        event_fields = [fields for verb in verb_changes for fields in self._event_fields(verb)]
        after_in_stream = Counter(stream for stream, _, _ in event_fields)
        after_in_all, at = len(event_fields), to_ms(self._clock())
        streams = sorted(after_in_stream)
        sent: list[Pending[Any]] = []
        apart = self._apart
        if apart:
            with db.batch() as batch:
                self._count(batch, after_in_stream)
                taken = [batch.row(_TAKE) for _ in event_fields]
        with db.batch(last=True) as batch:
            if not apart:
                self._count(batch, after_in_stream)
            for stream, kind, data in event_fields:
                after_in_all -= 1
                after_in_stream[stream] -= 1
                after = {"after_in_all": after_in_all, "after_in_stream": after_in_stream[stream]}
                content = encode(data, "data", _ANY_SIZE)
                row = {"stream": stream, "kind": kind, "now": at, "actor": actor, "content": content, **after}
                number = taken[len(sent)].result if apart else None
                sent.append(
                    batch.returned(_INSERT, **row) if number is None else batch.returned(_INSERT_AT, taken=number[0], **row)
                )
            if self._notice is not None and db.joined:
                for stream in streams:
                    batch.row(self._notice, stream=stream)
        events = []
        for (stream, kind, data), pending in zip(event_fields, sent, strict=True):
            if pending.result is None:
                self._switched_off()
                return []
            position, seq = pending.result
            event = {"stream_id": stream, "seq": seq, "position": position, "type": kind, "at": at, "data": data}
            events.append(construct(Event, {**event, "actor": actor}))
        return events

    @property
    def database_logs(self) -> bool:
        """Whether the database logs inserted text deltas itself: not if distributed, nor if the transaction has an actor."""
        return not self._apart and self._actor is None

    def _count(self, batch: Batch, events: Mapping[str, int]) -> None:
        if self._takes_positions:
            batch.row(_HOLD)  # or the log may be off before the events are stored, whose numbers are given here
        batch.run(_COUNT, many=sum(events.values()))
        for stream in sorted(events):
            batch.run(_COUNT_STREAM, stream=stream, many=events[stream])
        if self._takes_positions:
            batch.row(_LOCK)

    def _event_fields(self, verb: VerbChanges) -> Iterator[tuple[str, str, Any]]:
        """(stream, type, data) of a verb's events: one for each stream it changed, more if it has over MAX_CHANGES changes."""
        if verb.data is not ...:
            assert verb.stream is not None
            yield verb.stream, verb.name, verb.data
            return
        kind, batches = TYPES.get(verb.name, OTHER), []
        for stream, changes in self._by_stream(verb):
            batches += [(stream, changes[at : at + MAX_CHANGES]) for at in range(0, len(changes), MAX_CHANGES)]
        final = {stream: at for at, (stream, _) in enumerate(batches)}
        for at, (stream, batch) in enumerate(batches):
            data: dict[str, Any] = {"v": VERSION, "changes": [_described(change) for change in batch]}
            if at < final[stream]:
                data["more"] = True
            yield stream, kind, data

    def _by_stream(self, verb: VerbChanges) -> list[tuple[str, list[Change]]]:
        """A verb's changes by stream, ordered so that a replay inserts a row before rows that refer to it and deletes it after.

        A row without a stream of its own belongs to the first stream that the verb's rows name; if it is deleted, to the last.
        Shared streams come first. If the verb changes several streams and writes rows after deleting others, the changes are
        kept in the order in which they were made.
        """
        own_streams = [self.stream_of(change) for change in verb.changes]
        streams = list(dict.fromkeys(stream for stream in own_streams if stream is not None))
        first = verb.stream or (streams[0] if streams else None)
        ops = [change.op for change in verb.changes]
        if len(streams) > 1 and Op.DELETE in ops and Op.PUT in ops[ops.index(Op.DELETE) :]:
            return self._in_order_made(verb, own_streams, streams[0])
        last = verb.stream or (streams[-1] if streams else None)
        found: dict[str, list[Change]] = {}
        for change in verb.changes:  # shared streams first: other rows refer to theirs
            if (rule := place_of(change.table)) is not None and rule.always_shared:
                found[rule.shared] = []
        for stream in streams:
            found.setdefault(stream, [])
        for change, own_stream in zip(verb.changes, own_streams, strict=True):
            rule = place_of(change.table)
            assert rule is not None
            default = last if change.op is Op.DELETE else first
            found.setdefault(rule.shared if rule.always_shared else own_stream or default or rule.shared, []).append(change)
        return list(found.items())

    @staticmethod
    def _in_order_made(verb: VerbChanges, own_streams: Sequence[str | None], stream: str) -> list[tuple[str, list[Change]]]:
        runs: list[tuple[str, list[Change]]] = []
        for change, own_stream in zip(verb.changes, own_streams, strict=True):
            rule = place_of(change.table)
            assert rule is not None
            stream = own_stream or stream
            wanted = rule.shared if rule.always_shared else stream
            if not runs or runs[-1][0] != wanted:
                runs.append((wanted, []))
            runs[-1][1].append(change)
        return runs

    def stream_of(self, change: Change) -> str | None:
        """The stream that a changed row names; None if it names none."""
        rule = place_of(change.table)
        assert rule is not None
        if rule.column is None:
            return None
        value = change.row[rule.column]
        if value is None:
            return rule.shared
        stream = rule.name(value or self._scopes.get(rule.column, ""))
        if stream == ALL:
            raise InvalidValue(rule.column, "'*' stands for all streams, and cannot be the name of one.")
        return stream


@cache
def plain_rows(table: Table) -> JsonRows:
    """The converter between a table's rows and JSON."""
    return JsonRows(table)


@cache
def _key_names(table: Table) -> tuple[str, ...]:
    return tuple(key_of(table))


def _described(change: Change) -> dict[str, Any]:
    table, row = change.table, plain_rows(change.table).plain(change.row)
    if change.op is Op.PUT:
        return {"table": str(table.name), "op": "put", "row": row}
    key = {name: row[name] for name in _key_names(table)}
    if change.op is Op.DELETE:
        return {"table": str(table.name), "op": "delete", "key": key}
    rule = place_of(table)
    assert rule is not None
    omitted = {*key, rule.column, rule.through}
    return {
        "table": str(table.name),
        "op": "set",
        "key": key,
        "row": {name: value for name, value in row.items() if name not in omitted},
    }
