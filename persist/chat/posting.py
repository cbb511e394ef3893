"""Writing a complete message: its row, its parts, and what the session row learns from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Text, bindparam, case, cast, func, insert, literal, select, type_coerce, update

from persist.chat.models import messages, sessions
from persist.chat.schemas import ChatMessage, Role
from persist.chat.statements import INSERT_PART, SET_METADATA, SET_MODEL, TOUCH_SESSION
from persist.chat.stored import stored_object
from persist.chat.tool_parts import tool_columns
from persist.chat.usage import COMPACTION, recompute, tally
from persist.db.hot import Hot, Row, Statements, param
from persist.db.json import Json, JsonText, decode, plain_object
from persist.db.types import Whole
from persist.db.values import build
from persist.db.work import Work
from persist.errors import InvalidValue, NotFound

_M, _S = messages.c, sessions.c
_id = param("row_id")
MESSAGE_COLUMNS = (_M.id, _M.session_id, _M.role, cast(_M.metadata_json, Text), _M.created_at, _M.updated_at)
_LOCK_SESSION = Hot(select(_S.id).where(_S.id == _id).with_for_update())
_GET = Hot(select(*MESSAGE_COLUMNS).where(_M.id == _id))
_LOCK = Hot(select(*MESSAGE_COLUMNS).where(_M.id == _id).with_for_update())
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
# As place_after_all decides it, without a question before: on a server that would be a round trip of its own.
_place = select(
    case((_newest.c.at < _now, _now), (_newest.c.id < bindparam("new", type_=_M.id.type), _newest.c.at), else_=_later)
)
_INSERT_LAST = Hot(
    insert(messages)
    .values(
        id=param("new"),
        session_id=param("session"),
        role=param("speaker"),
        created_at=func.coalesce(_place.scalar_subquery(), _now),
        updated_at=param("at"),
        metadata_json=param("metadata"),
    )
    .returning(_M.created_at)
)
_RESTAMP = Hot(
    update(messages)
    .where(_M.id == _id)
    .values(metadata_json=param("metadata"), created_at=param("created"), updated_at=param("at"))
)


@dataclass(frozen=True, slots=True)
class Posting:
    """A message to write: checked, its parts encoded."""

    session_id: str
    role: Role
    parts: list[tuple[Mapping[str, Any], JsonText]]
    metadata: dict[str, Any]


def check_parts(work: Work, parts: Sequence[Json]) -> list[tuple[Mapping[str, Any], JsonText]]:
    """Each part an object with a `type`, encoded; InvalidValue names the part."""
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


def post(work: Work, given: Posting, *, id: str | None, touch: bool = True) -> ChatMessage:
    """Insert the message after every other of its session; NotFound. `touch` False: the session is locked already."""
    metadata = work.json("metadata", given.metadata)
    now = work.now()
    if touch:
        fired(work, given.session_id, given.metadata if given.role is Role.USER else {}, now)
    ids = work.runtime.ids
    id = ids.mint("msg", now) if id is None else id
    row = work.returned(_INSERT_LAST, new=id, session=given.session_id, speaker=given.role, at=now, metadata=metadata)
    assert row is not None
    created: datetime = row[0]
    written = []
    for index, (data, text) in enumerate(given.parts):
        call_id, state = tool_columns(data)
        written.append(
            {
                "id": ids.mint("prt", now),
                "message_id": id,
                "session_id": given.session_id,
                "index": index,
                "type": data["type"],
                "tool_call_id": call_id,
                "tool_state": state,
                "created_at": now,
                "updated_at": now,
                "data_json": text,
            }
        )
    work.run_many(INSERT_PART, written)
    if any(data["type"] == COMPACTION for data, _ in given.parts):
        recompute(work, given.session_id)
    else:
        tally(work, given.session_id, id, given.role, {}, given.metadata)
    return _message(id, given.session_id, given.role, decode(metadata), created, now)


def fired(work: Work, session_id: str, metadata: Mapping[str, Any], now: datetime) -> None:
    """The session was used just now; a user message may have chosen another model. It is locked from here on; NotFound."""
    model = metadata.get("model")
    if model is not None:
        if not work.run(SET_MODEL, row_id=session_id, model=work.json("metadata.model", model), at=now):
            raise NotFound("session", session_id)
    elif not work.run(TOUCH_SESSION, row_id=session_id, at=now):
        lock_session(work, session_id)


def lock_session(db: Statements, session_id: str) -> None:
    """Hold the session against other writers until the transaction ends; NotFound."""
    if db.row(_LOCK_SESSION, row_id=session_id) is None:
        raise NotFound("session", session_id)


def get_message(db: Statements, id: str, *, lock: bool = False) -> ChatMessage:
    """The message's row; NotFound."""
    row = db.row(_LOCK if lock else _GET, row_id=id)
    if row is None:
        raise NotFound("message", id)
    return message_value(db, row)


def set_metadata(work: Work, id: str, metadata: Mapping[str, Any], *, created: datetime | None = None) -> ChatMessage:
    """Replace the metadata, and with `created` the message's place in the transcript."""
    text = work.json("metadata", dict(metadata))
    if created is None:
        work.run(SET_METADATA, row_id=id, metadata=text, at=work.now())
    else:
        work.run(_RESTAMP, row_id=id, metadata=text, created=created, at=work.now())
    return get_message(work, id)


def message_value(db: Statements, row: Row) -> ChatMessage:
    """A row of MESSAGE_COLUMNS."""
    id, session_id, role, stored, created_at, updated_at = row
    metadata = stored_object(db, stored, f"the metadata of message {id}")
    return _message(id, session_id, role, metadata, created_at, updated_at)


def _message(id: str, session_id: str, role: Role, metadata: dict[str, Any], created: datetime, updated: datetime) -> ChatMessage:
    return build(
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
