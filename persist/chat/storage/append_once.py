"""Appending a message under an id that the caller gives, so that doing it again changes nothing, or at an instant of the past.

One batch asks for the message and inserts it unless it is there: its statements then write nothing. A message with fewer parts
is given the further ones, which the error that follows undoes.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, exists, select

from persist.blobs.bodies import add_outside
from persist.chat.models import messages, parts, sessions
from persist.chat.schemas import ChatMessage, Role
from persist.chat.storage import usage
from persist.chat.storage.message_insert import (
    GET_MESSAGE,
    INSERT_LAST,
    Posting,
    insert_part,
    insert_parts,
    insert_with,
    message_value,
    naming_taken,
    new_message,
    touch_before,
)
from persist.chat.storage.statements import LOCK_SESSION, setting_model, touching
from persist.db.expressions.upsert import taken, unless_there
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.json import Json, decode, encode
from persist.errors import NotFound

_M, _P, _S = messages.c, parts.c, sessions.c
_id = param("row_id")
_unknown = ~exists().where(_M.id == bindparam("new", type_=_M.id.type))
_TOUCH = Statement(touching(_unknown))
_SET_MODEL = Statement(setting_model(_unknown))
_COUNT = Statement(usage.adding_counters().where(_unknown))
_INSERT_LAST = Statement(unless_there(insert_with(), "id").returning(_M.created_at))
_INSERT_THEN = Statement(
    unless_there(insert_with(created_at=bindparam("then", type_=_M.created_at.type)), "id").returning(_M.created_at)
)
_INSERT_PART = Statement(unless_there(insert_part(), "message_id", "index"))
STORED_PARTS = Statement(select(_P.data_json).where(_P.message_id == _id).order_by(_P.index))
STORE_KEYS = frozenset({"queued_at", "queue_enqueued_at", "queue_canceled_at", "hidden_at"})
"""The keys of a message's metadata that belong to the verbs of queue and rewind."""


def append(work: UnitOfWork, posting: Posting, *, id: str | None, created_at: datetime | None) -> ChatMessage:
    """Insert a message that sorts last in its session, or at `created_at`. Returns a stored one with that id and equal content.

    Raises NotFound without the session, Conflict if the id is taken by another message.
    """
    session_id, now = posting.session_id, work.now()
    id = work.runtime.ids.mint("msg", now) if id is None else id
    metadata = encode(posting.metadata, "metadata", work.runtime.limits)
    added = usage.counters_of(posting.role, {}, posting.metadata) if posting.role is Role.ASSISTANT else {}
    compacts = any(part.data["type"] == usage.COMPACTION for part in posting.parts)
    recounts = compacts or (created_at is not None and bool(added))
    values: dict[str, Any] = {"new": id, "session": session_id, "speaker": posting.role, "at": now, "metadata": metadata}
    if posting.files and work.row(LOCK_SESSION, row_id=session_id) is None:
        raise NotFound("session", session_id)
    with naming_taken(work, id), work.batch() as batch:
        session = batch.row(LOCK_SESSION, row_id=session_id)
        known, known_parts = batch.row(GET_MESSAGE, row_id=id), batch.rows(STORED_PARTS, row_id=id)
        model = posting.metadata.get("model") if posting.role is Role.USER else None
        touched = {"row_id": session_id, "new": id, "at": now, "before": touch_before(work, session_id, now)}
        if model is None:
            batch.run(_TOUCH, **touched)
        else:
            batch.run(_SET_MODEL, **touched, model=work.json("metadata.model", model))
        if added and not recounts:
            batch.run(_COUNT, row_id=session_id, new=id, **added)
        if created_at is None:
            inserted = batch.returned(_INSERT_LAST, **values)
        else:
            inserted = batch.returned(_INSERT_THEN, **values, then=created_at)
        files = insert_parts(work, batch, posting, id, now, _INSERT_PART)
    if session.result is None:
        raise NotFound("session", session_id)
    if known.result is not None:
        message = message_value(work, known.result)
        if same_content(posting, message, [data for (data,) in known_parts.result]):
            return message
    if known.result is not None or inserted.result is None:
        raise taken(INSERT_LAST, "message", id)
    add_outside(files)
    if recounts:
        usage.recompute(work, session_id)
    return new_message(id, posting, decode(metadata), inserted.result[0], now)


def same_content(posting: Posting, message: ChatMessage, stored: Sequence[Json]) -> bool:
    """Whether a stored message, given its parts, is the one to be posted. Metadata counts if it was given."""
    given = decode(encode(posting.metadata))
    ours = STORE_KEYS if "usage" in given else STORE_KEYS | {"usage"}
    known = {key: value for key, value in message.metadata.items() if key not in ours}
    return (
        (message.session_id, message.role) == (posting.session_id, posting.role)
        and list(stored) == [decode(part.text) for part in posting.parts]
        and (not given or known == given)
    )
