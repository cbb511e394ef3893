"""Writing the log: the deeds of a transaction become events, numbered by its last statements.

The count of `*` is taken first, and kept until the commit: from then on transactions commit one after the other, in the order
of their positions, so whoever reads up to a position has seen everything before it. (An identity column promises no such
thing: the later number may be seen first, and a reader who went past it never sees the earlier one.)
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Table, Text, bindparam, insert, update

from persist.db.changes import Change, Deed, Op
from persist.db.clock import Clock, to_ms
from persist.db.hot import Hot, Statements
from persist.db.insert import merge
from persist.db.json import JsonLimits, encode
from persist.db.plain import PlainRows
from persist.db.streams import key_of, place_of
from persist.db.types import Whole
from persist.db.values import build
from persist.errors import InvalidValue
from persist.events.models import event_heads, event_log
from persist.events.schemas import ALL, OTHER, TYPES, VERSION, Event

MOST_CHANGES = 1000
"""Of one event; what is beyond goes into the next."""

_ANY_SIZE = JsonLimits(max_bytes=2**31, max_depth=254)  # the caps are for what callers give; a column is four levels down
_H = event_heads.c
_TEXT = Text()
_many = bindparam("many", type_=Whole())
_POSITIONS = Hot(update(event_heads).where(_H.stream_id == ALL, _H.logging).values(seq=_H.seq + _many).returning(_H.seq))
_SEQS = Hot(
    merge(event_heads, "stream_id", seq="sum").values(stream_id=bindparam("stream", type_=_TEXT), seq=_many).returning(_H.seq)
)
_INSERT = Hot(insert(event_log))


class EventWriter:
    """Keeps the log of one store's transactions."""

    def __init__(
        self, clock: Clock, scopes: dict[str, str], notice: Hot | None, switched_off: Callable[[], None], tell: Callable[[], None]
    ) -> None:
        self._clock, self._scopes, self._notice = clock, scopes, notice
        self._switched_off, self._tell = switched_off, tell

    def write(self, db: Statements, deeds: Sequence[Deed]) -> list[Event]:
        """Number and store what was done; nothing where the log was switched off meanwhile."""
        drafts = [draft for deed in deeds for draft in self._drafts(deed)]
        last = db.rows(_POSITIONS, many=len(drafts))
        if not last:
            self._switched_off()
            return []
        position = last[0][0] - len(drafts)
        counts: dict[str, int] = defaultdict(int)
        for stream, _, _ in drafts:
            counts[stream] += 1
        seqs = {stream: db.rows(_SEQS, stream=stream, many=many)[0][0] - many for stream, many in sorted(counts.items())}
        at, events = to_ms(self._clock()), []
        for stream, kind, data in drafts:
            position += 1
            seqs[stream] += 1
            event = {"stream_id": stream, "seq": seqs[stream], "position": position, "type": kind, "at": at}
            db.run(_INSERT, **event, data=encode(data, "data", _ANY_SIZE))
            events.append(build(Event, {**event, "data": data}))
        if self._notice is not None:
            for stream, seq in seqs.items():
                db.row(self._notice, payload=f"{seq} {stream}"[:2000])
        return events

    def committed(self, events: Sequence[Event]) -> None:
        """Wake the readers of this process."""
        self._tell()

    def _drafts(self, deed: Deed) -> Iterator[tuple[str, str, Any]]:
        """(stream, type, data) of its events: one for each stream it touched."""
        if deed.data is not ...:
            assert deed.stream is not None
            yield deed.stream, deed.name, deed.data
            return
        kind, batches = TYPES.get(deed.name, OTHER), []
        for stream, changes in self._by_stream(deed):
            batches += [(stream, changes[at : at + MOST_CHANGES]) for at in range(0, len(changes), MOST_CHANGES)]
        final = {stream: at for at, (stream, _) in enumerate(batches)}
        for at, (stream, batch) in enumerate(batches):
            data: dict[str, Any] = {"v": VERSION, "changes": [_described(change) for change in batch]}
            if at < final[stream]:
                data["more"] = True
            yield stream, kind, data

    def _by_stream(self, deed: Deed) -> list[tuple[str, list[Change]]]:
        """What a row does not say itself, the first row that does says for it; of what is deleted, the last stream of all.

        So a row is there before others lean on it, and goes after them. Where that is not enough, since a row was written
        after another went, changes stay in the order in which they were made, however often their streams take turns.
        """
        named = [self.stream_of(change) for change in deed.changes]
        streams = list(dict.fromkeys(stream for stream in named if stream is not None))
        known = deed.stream or (streams[0] if streams else None)
        ops = [change.op for change in deed.changes]
        if len(streams) > 1 and Op.DELETE in ops and Op.PUT in ops[ops.index(Op.DELETE) :]:
            return self._in_turns(deed, named, streams[0])
        last = deed.stream or (streams[-1] if streams else None)
        found: dict[str, list[Change]] = {}
        for change in deed.changes:  # what the others lean on comes first
            if (place := place_of(change.table)) is not None and place.common:
                found[place.shared] = []
        for stream in streams:
            found.setdefault(stream, [])
        for change, said in zip(deed.changes, named, strict=True):
            place = place_of(change.table)
            assert place is not None
            loose = last if change.op is Op.DELETE else known
            found.setdefault(place.shared if place.common else said or loose or place.shared, []).append(change)
        return list(found.items())

    @staticmethod
    def _in_turns(deed: Deed, named: Sequence[str | None], stream: str) -> list[tuple[str, list[Change]]]:
        turns: list[tuple[str, list[Change]]] = []
        for change, said in zip(deed.changes, named, strict=True):
            place = place_of(change.table)
            assert place is not None
            stream = said or stream
            wanted = place.shared if place.common else stream
            if not turns or turns[-1][0] != wanted:
                turns.append((wanted, []))
            turns[-1][1].append(change)
        return turns

    def stream_of(self, change: Change) -> str | None:
        """The stream that the row names; None if it names none."""
        place = place_of(change.table)
        assert place is not None
        if place.column is None:
            return None
        value = change.row[place.column]
        if value is None:
            return place.shared
        stream = place.name(value or self._scopes.get(place.column, ""))
        if stream == ALL:
            raise InvalidValue(place.column, "'*' stands for all streams, and cannot be the name of one.")
        return stream


@cache
def plain_rows(table: Table) -> PlainRows:
    """The conversions of a table's rows to JSON and back."""
    return PlainRows(table)


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
    place = place_of(table)
    assert place is not None
    silent = {*key, place.column, place.through}
    return {
        "table": str(table.name),
        "op": "set",
        "key": key,
        "row": {name: value for name, value in row.items() if name not in silent},
    }
