"""Reading, locking and writing the rows of sessions, branches and messages, in the order in which recording takes locks."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from operator import itemgetter
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Table, func, or_, select, update

from persist.conversations.embeddings import unpack
from persist.conversations.models import KNOWN_TYPES, UNKNOWN_TYPE, branches, message_types, messages, progressions, sessions
from persist.conversations.schemas import Branch, ConvMessage, ConvSession
from persist.conversations.storage.progressions import add_row
from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.upsert import insert_missing, upsert
from persist.db.schema.column_types import among_labels
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.clock import EPOCH
from persist.db.values.frozen import Value, construct
from persist.errors import Conflict, UnreadableRow

V = TypeVar("V", bound=Value)


class Rows(Generic[V]):
    """Reads and locks the rows of sessions, or those of branches, by their ids."""

    def __init__(self, what: str, kind: type[V], table: Table) -> None:
        self._what, self.table, self.values = what, table, Values(kind, table)
        query = select(*self.values.columns).where(table.c.id == param("row_id"))
        self._get, self._lock = Statement(query), Statement(query.with_for_update())

    def find(self, work: UnitOfWork, id: str, *, lock: bool = False) -> V | None:
        return self.values.optional(work.row(self._lock if lock else self._get, row_id=id))

    def get(self, work: UnitOfWork, id: str, *, lock: bool = False) -> V:
        return self.values.found(work.row(self._lock if lock else self._get, row_id=work.label("id", id)), self._what, id)

    def ask(self, batch: Batch, id: str, *, lock: bool = False) -> Pending[Row | None]:
        """Read the row with a batch; `found` is its value."""
        return batch.row(self._lock if lock else self._get, row_id=id)

    def found(self, asked: Pending[Row | None], id: str) -> V:
        return self.values.found(asked.result, self._what, id)

    def change(self, batch: Batch, id: str, changes: Mapping[str, Any]) -> None:
        batch.run(_setting(self.table, *changes), row_id=id, **{f"set_{name}": value for name, value in changes.items()})


@cache
def _setting(table: Table, *names: str) -> Statement:
    return Statement(update(table).where(table.c.id == param("row_id")).values({name: param(f"set_{name}") for name in names}))


_S = sessions.c
SESSIONS = Rows("session", ConvSession, sessions)
BRANCHES = Rows("branch", Branch, branches)
_POOL = Statement(
    select(progressions.c.id)
    .where(progressions.c.id == select(_S.progression_id).where(_S.id == param("row_id")).scalar_subquery())
    .with_for_update()
)
_PROGRESSION = Statement(select(progressions.c.id).where(progressions.c.id == param("row_id")))


def lock_with_pool(batch: Batch, id: str) -> Pending[Row | None]:
    """Lock the session after its progression, the order in which recording locks them; `SESSIONS.found` is its value."""
    batch.lock(_POOL, row_id=id)
    return SESSIONS.ask(batch, id, lock=True)


def ask_progression(batch: Batch, wanted: str | None) -> Pending[Row | None] | None:
    """Look for a progression with a batch; None for None."""
    return None if wanted is None else batch.row(_PROGRESSION, row_id=wanted)


def check_progression(found: Pending[Row | None] | None, wanted: str | None) -> None:
    """Raises Conflict if `ask_progression` did not find it."""
    if found is not None and found.result is None:
        raise Conflict(f"There is no progression {wanted!r}.", constraint="fk_sessions_progression_id")


def owned_progression(work: UnitOfWork, batch: Batch, wanted: str | None) -> str:
    """The id of the wanted progression, or for None of a new one, which is inserted with a batch."""
    if wanted is not None:
        return wanted
    minted = work.runtime.ids.mint_uuid()
    add_row(work, batch, minted)
    return minted


_B = branches.c
_HOLD = Statement(select(_B.id).where(_B.id == param("row_id")).with_for_update(read=True, key_share=True))


def hold_with(batch: Batch, id: str) -> None:
    """Lock the branch FOR KEY SHARE with a batch: nobody deletes it until the transaction ends, and later reads are current."""
    batch.lock(_HOLD, row_id=id)


log = logging.getLogger("persist")
_M, _T = messages.c, message_types.c
_STORED = ("id", "created_at", "node_metadata", "content", "embedding", "sender", "recipient", "channel", "role", "lion_class")
_READ = (*_STORED, "lion_class_str")
COLUMNS = (*[_M[name] for name in _STORED], _T.lion_class.label("lion_class_str"))
"""The columns that `message_value` reads, from messages joined with their types."""
WITH_TYPE = messages.join(message_types, _T.type_id == _M.lion_class)
_GET_MESSAGE = Statement(select(*COLUMNS).select_from(WITH_TYPE).where(_M.id == param("row_id")))
_PUT = Statement(upsert(messages, "id", keep=("created_at", "stored_at")))
_TYPE = Statement(select(_T.type_id).where(_T.lion_class == param("path")))
_NEXT_TYPE = Statement(select(func.max(_T.type_id) + 1))
_ADD_TYPE = Statement(insert_missing(message_types))
_TYPE_TRIES = 100
_NUMBERS = {path: number for number, path in KNOWN_TYPES.items()}
CHUNK = 500


def message_value(row: Row) -> ConvMessage:
    """A row of the columns above. Raises UnreadableRow where its instant is none."""
    values: dict[str, Any] = dict(zip(_READ, row, strict=True))
    epoch, packed = values["created_at"], values["embedding"]
    values["created_at_epoch"] = epoch
    try:
        values["created_at"] = EPOCH + timedelta(seconds=epoch)
    except (OverflowError, ValueError):  # the latter for NaN
        raise UnreadableRow(messages.name, [values["id"]], "created_at", "the instant cannot be read") from None
    values["embedding"] = None if packed is None else unpack(packed)
    return construct(ConvMessage, values)


def message_values(rows: Iterable[Row]) -> Iterator[ConvMessage]:
    """The messages of a list, but for those that cannot be read, which the log names."""
    for row in rows:
        try:
            yield message_value(row)
        except UnreadableRow as error:
            log.warning("a message is left out: %s", error)


def find_message(work: UnitOfWork, id: str) -> ConvMessage | None:
    """The message, if there is one."""
    row = work.row(_GET_MESSAGE, row_id=id)
    return None if row is None else message_value(row)


def find_messages(work: UnitOfWork, ids: Sequence[str]) -> dict[str, ConvMessage]:
    """The messages that exist, by id, in the order of `ids`."""
    found: dict[str, ConvMessage] = {}
    distinct = list(dict.fromkeys(ids))
    for start in range(0, len(distinct), CHUNK):
        query = select(*COLUMNS).select_from(WITH_TYPE).where(_M.id.in_(distinct[start : start + CHUNK]))
        found |= {message.id: message for message in message_values(work.found(query))}
    return {id: found[id] for id in distinct if id in found}


def ask_message(batch: Batch, id: str) -> Pending[Row | None]:
    """Read a message that exists with a batch; `stored_message` is its value."""
    return batch.row(_GET_MESSAGE, row_id=id)


def put_message(work: UnitOfWork, fields: Mapping[str, Any]) -> ConvMessage:
    """Insert the message, or overwrite it but for its first `created_at`; the stored message."""
    number = type_number(work, fields["lion_class"])
    with work.batch() as batch:
        stored = add_message(batch, fields, number)
    return stored_message(stored)


def add_message(batch: Batch, fields: Mapping[str, Any], number: int) -> Pending[Row | None]:
    """What `put_message` does, with a batch; `stored_message` is the message then. `number`: that of its class."""
    batch.run(_PUT, **{**fields, "lion_class": number})
    return batch.row(_GET_MESSAGE, row_id=fields["id"])


def stored_message(stored: Pending[Row | None]) -> ConvMessage:
    """The message that a batch stored or read."""
    assert stored.result is not None, "it was written a moment ago"
    return message_value(stored.result)


def message_rows(work: UnitOfWork, many: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of many messages, with the numbers of their classes; in the order that all writers use: no deadlock."""
    numbers = {path: type_number(work, path) for path in dict.fromkeys(one["lion_class"] for one in many)}
    return [{**one, "lion_class": numbers[one["lion_class"]]} for one in sorted(many, key=itemgetter("id"))]


def write_messages(batch: Batch, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert or overwrite the messages of `message_rows` with a batch; the last of several with one id is stored."""
    batch.run_many(_PUT, rows)


def type_number(work: UnitOfWork, path: str) -> int:
    """The number of a class; an unknown class gets the next one, and concurrent writers get different numbers."""
    if not path:
        return UNKNOWN_TYPE
    known = _NUMBERS.get(path)
    if known is not None:
        return known
    for _ in range(_TYPE_TRIES):
        row = work.row(_TYPE, path=path)
        if row is not None:
            return int(row[0])
        following = work.row(_NEXT_TYPE)
        assert following is not None
        work.run(_ADD_TYPE, type_id=following[0] or 1, lion_class=path)
    raise Conflict(f"No number could be allocated for the message class {path!r}: others were always faster.")


# Locks before a deletion: branches, progressions, sessions, messages, each in the order of ids, as recording takes them, so that
# nothing deadlocks. SQLite, which has one writer, needs none.

_P = progressions.c
_MAX_LOOKS = 10
R = TypeVar("R")


class Line:
    """Chosen branches, their forks, and the former branches that they were forked from."""

    def __init__(self, chosen: ColumnElement[bool]) -> None:
        self.chosen = chosen
        ids, parents = select(_B.id).where(chosen), select(_B.parent_branch_id).where(chosen)
        line = or_(chosen, _B.parent_branch_id.in_(ids), _B.id.in_(parents) & _B.former_of.is_not(None))
        self._lock = _locking(select(_B.id).where(line).order_by(_B.id))

    def locked(self, work: UnitOfWork, ask: Callable[[Batch], R], **values: Any) -> R:
        """Lock the line, and ask in the same round trip what is to be known of it then."""
        for _ in range(_MAX_LOOKS):
            with work.batch() as batch:
                if work.runtime.dialect.one_writer:
                    return ask(batch)
                looks = batch.rows(self._lock, **values), batch.rows(self._lock, **values)
                asked = ask(batch)
            if looks[0].result == looks[1].result:  # else another writer forked one of them while the first look waited
                break
        return asked


def _locking(query: Any) -> Statement:
    return Statement(query.with_for_update(), unreadable=OnUnreadable.LEAVE_OUT)


OF_BRANCH, OF_PROGRESSION = Line(_B.id == param("row_id")), Line(_B.progression_id == param("row_id"))
OF_SESSIONS = Line(among_labels(_B.session_id, "ids"))
_of_them = among_labels(_S.id, "ids")
_pools = select(_S.progression_id).where(_of_them), select(_B.progression_id).where(OF_SESSIONS.chosen)
_LOCK_POOLS = _locking(select(_P.id).where(or_(*(_P.id.in_(pool) for pool in _pools))).order_by(_P.id))
_LOCK_SESSIONS = _locking(select(_S.id).where(_of_them).order_by(_S.id))


def lock_sessions(batch: Batch, ids: list[str]) -> None:
    """Lock sessions with their progressions, before they are deleted; their branches are locked."""
    batch.lock(_LOCK_POOLS, ids=ids)
    batch.lock(_LOCK_SESSIONS, ids=ids)
