"""Reading and writing rows of messages, and the numbers of their classes."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import Any

from sqlalchemy import func, select

from persist.conversations.models import KNOWN_TYPES, UNKNOWN_TYPE, message_types, messages
from persist.conversations.schemas import ConvMessage
from persist.conversations.storage.embeddings import unpack
from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.upsert import insert_missing, upsert
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import EPOCH
from persist.db.values.frozen import construct
from persist.errors import Conflict, UnreadableRow

log = logging.getLogger("persist")

_M, _T = messages.c, message_types.c
_STORED = ("id", "created_at", "node_metadata", "content", "embedding", "sender", "recipient", "channel", "role", "lion_class")
_READ = (*_STORED, "lion_class_str")
COLUMNS = (*[_M[name] for name in _STORED], _T.lion_class.label("lion_class_str"))
"""The columns that `message_value` reads, from messages joined with their types."""

WITH_TYPE = messages.join(message_types, _T.type_id == _M.lion_class)
_GET = Statement(select(*COLUMNS).select_from(WITH_TYPE).where(_M.id == param("row_id")))
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
    row = work.row(_GET, row_id=id)
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
    return batch.row(_GET, row_id=id)


def put_message(work: UnitOfWork, fields: Mapping[str, Any]) -> ConvMessage:
    """Insert the message, or overwrite it but for its first `created_at`; the stored message."""
    number = type_number(work, fields["lion_class"])
    with work.batch() as batch:
        stored = add_message(batch, fields, number)
    return stored_message(stored)


def add_message(batch: Batch, fields: Mapping[str, Any], number: int) -> Pending[Row | None]:
    """What `put_message` does, with a batch; `stored_message` is the message then. `number`: that of its class."""
    batch.run(_PUT, **{**fields, "lion_class": number})
    return batch.row(_GET, row_id=fields["id"])


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
