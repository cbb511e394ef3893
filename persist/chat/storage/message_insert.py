"""Writing a complete message: its row, its parts, and the session row's model, time and counters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Text, bindparam, case, cast, func, literal, select, type_coerce, update

from persist.chat.models import messages, parts, sessions
from persist.chat.reducer.tool_parts import tool_columns
from persist.chat.schemas import ChatMessage, Role
from persist.chat.storage.statements import SET_METADATA, SET_MODEL, TOUCH_SESSION
from persist.chat.storage.stored_json import stored_object
from persist.chat.storage.usage import ADD_COUNTERS, COMPACTION, counters_of, recompute
from persist.db.changes.batch import Batch
from persist.db.changes.driver_statements import StatementRunner
from persist.db.expressions.conditional_insert import insert_where
from persist.db.schema.column_types import Whole
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.frozen import construct
from persist.db.values.json import Json, JsonText, decode, plain_object
from persist.errors import InvalidValue, NotFound

_M, _S = messages.c, sessions.c
_id = param("row_id")
MESSAGE_COLUMNS = (_M.id, _M.session_id, _M.role, cast(_M.metadata_json, Text), _M.created_at, _M.updated_at)
_LOCK_SESSION = Statement(select(_S.id).where(_S.id == _id).with_for_update())
_GET = Statement(select(*MESSAGE_COLUMNS).where(_M.id == _id))
_LOCK = Statement(select(*MESSAGE_COLUMNS).where(_M.id == _id).with_for_update())
_now = bindparam("at", type_=_M.created_at.type)
_newest = (
    select(_M.created_at.label("at"), func.max(_M.id).label("id"))
    .where(_M.session_id == param("session"))
    .group_by(_M.created_at)
    .order_by(_M.created_at.desc())
    .limit(1)
    .subquery()
)
_later = type_coerce(_newest.c.at, Whole()) + literal(1, Whole())
# place_after_all's rule as SQL inside the INSERT, which saves a round trip to a server.
_sorts_last_at = select(
    case((_newest.c.at < _now, _now), (_newest.c.id < bindparam("new", type_=_M.id.type), _newest.c.at), else_=_later)
)
_INSERT_LAST = Statement(
    insert_where(
        messages,
        _S.id == param("session"),
        {
            "id": bindparam("new", type_=_M.id.type),
            "session_id": _S.id,
            "role": bindparam("speaker", type_=_M.role.type),
            "created_at": func.coalesce(_sorts_last_at.scalar_subquery(), _now),
            "updated_at": _now,
            "metadata_json": bindparam("metadata", type_=_M.metadata_json.type),
        },
        of=sessions,
        lock=True,
    ).returning(_M.created_at)
)
_INSERT_PART = Statement(
    insert_where(parts, _M.id == bindparam("message_id", type_=_M.id.type), {"message_id": _M.id}, of=messages)
)
_RESTAMP = Statement(
    update(messages)
    .where(_M.id == _id)
    .values(metadata_json=param("metadata"), created_at=param("created"), updated_at=param("at"))
)


@dataclass(frozen=True, slots=True)
class Posting:
    """A message to insert, already checked, with its parts encoded."""

    session_id: str
    role: Role
    parts: list[tuple[Mapping[str, Any], JsonText]]
    metadata: dict[str, Any]


def check_parts(work: UnitOfWork, parts: Sequence[Json]) -> list[tuple[Mapping[str, Any], JsonText]]:
    """Check that each part is an object with a `type`, and encode it. InvalidValue names the bad part."""
    if isinstance(parts, (str, bytes, Mapping)) or not isinstance(parts, Sequence):
        raise InvalidValue("parts", "expected a list of parts.")
    checked: list[tuple[Mapping[str, Any], JsonText]] = []
    for index, part in enumerate(parts):
        path = f"parts[{index}]"
        data = plain_object(part, path)
        text = work.json(path, data)
        work.label(f"{path}.type", data.get("type"))
        checked.append((data, text))
    return checked


def post(work: UnitOfWork, posting: Posting, *, id: str | None, touch: bool = True) -> ChatMessage:
    """Insert a message that sorts last in its session. NotFound without the session. `touch=False`: it is locked already."""
    metadata = work.json("metadata", posting.metadata)
    session_id, now = posting.session_id, work.now()
    id = work.runtime.ids.mint("msg", now) if id is None else id
    added = counters_of(posting.role, posting.metadata)
    compacts = any(data["type"] == COMPACTION for data, _ in posting.parts)
    with work.batch(last=not compacts) as batch:
        if touch:
            batch.lock(_LOCK_SESSION, row_id=session_id)
            _touch(work, batch, session_id, posting.metadata if posting.role is Role.USER else {}, now)
        inserted = batch.returned(_INSERT_LAST, new=id, session=session_id, speaker=posting.role, at=now, metadata=metadata)
        batch.run_many(_INSERT_PART, _part_rows(work, posting, id, now))
        if added and not compacts:
            batch.run(ADD_COUNTERS, row_id=session_id, **added)
    row = inserted.result
    if row is None:
        raise NotFound("session", session_id)
    if compacts:
        recompute(work, session_id)
    created: datetime = row[0]
    return _message(id, session_id, posting.role, decode(metadata), created, now)


def _part_rows(work: UnitOfWork, posting: Posting, message_id: str, now: datetime) -> list[dict[str, Any]]:
    rows = []
    for index, (data, text) in enumerate(posting.parts):
        call_id, state = tool_columns(data)
        rows.append(
            {
                "id": work.runtime.ids.mint("prt", now),
                "message_id": message_id,
                "session_id": posting.session_id,
                "index": index,
                "type": data["type"],
                "tool_call_id": call_id,
                "tool_state": state,
                "created_at": now,
                "updated_at": now,
                "data_json": text,
            }
        )
    return rows


def _touch(work: UnitOfWork, batch: Batch, session_id: str, metadata: Mapping[str, Any], now: datetime) -> None:
    model = metadata.get("model")
    if model is None:
        batch.run(TOUCH_SESSION, row_id=session_id, at=now)
    else:
        batch.run(SET_MODEL, row_id=session_id, model=work.json("metadata.model", model), at=now)


def touch_session(work: UnitOfWork, session_id: str, metadata: Mapping[str, Any], now: datetime) -> None:
    """Set the session's `updated_at`, and its model if the metadata has one. Locks the session's row; NotFound without it."""
    model = metadata.get("model")
    if model is not None:
        if not work.run(SET_MODEL, row_id=session_id, model=work.json("metadata.model", model), at=now):
            raise NotFound("session", session_id)
    elif not work.run(TOUCH_SESSION, row_id=session_id, at=now):
        lock_session(work, session_id)


def lock_session(db: StatementRunner, session_id: str) -> None:
    """Lock the session against other writers until the transaction ends. NotFound without the session."""
    if db.row(_LOCK_SESSION, row_id=session_id) is None:
        raise NotFound("session", session_id)


def get_message(db: StatementRunner, id: str, *, lock: bool = False) -> ChatMessage:
    """The message, without its parts; NotFound. `lock`: until the transaction ends."""
    row = db.row(_LOCK if lock else _GET, row_id=id)
    if row is None:
        raise NotFound("message", id)
    return message_value(db, row)


def set_metadata(work: UnitOfWork, id: str, metadata: Mapping[str, Any], *, created: datetime | None = None) -> ChatMessage:
    """Replace a message's metadata and, if `created` is given, its created_at, and so its place in the transcript."""
    text = work.json("metadata", dict(metadata))
    if created is None:
        work.run(SET_METADATA, row_id=id, metadata=text, at=work.now())
    else:
        work.run(_RESTAMP, row_id=id, metadata=text, created=created, at=work.now())
    return get_message(work, id)


def message_value(db: StatementRunner, row: Row) -> ChatMessage:
    """The ChatMessage of a row of MESSAGE_COLUMNS."""
    id, session_id, role, stored, created_at, updated_at = row
    metadata = stored_object(db, stored, f"the metadata of message {id}")
    return _message(id, session_id, role, metadata, created_at, updated_at)


def _message(id: str, session_id: str, role: Role, metadata: dict[str, Any], created: datetime, updated: datetime) -> ChatMessage:
    return construct(
        ChatMessage,
        {
            "id": id,
            "session_id": session_id,
            "role": role,
            "metadata": metadata,
            "created_at": created,
            "updated_at": updated,
        },
    )
