"""What a recorder reads back: a stored message to continue, and the unfinished tool call a late result belongs to."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Text, cast, select

from persist.chat.models import HIDDEN, IS_UNFINISHED, VISIBLE, messages, parts
from persist.chat.parts import Part
from persist.chat.schemas import Role, UIMessage
from persist.chat.stored import stored_object, stored_part
from persist.chat.tails import fold, fold_message
from persist.db.hot import Hot, Row, Statements, param
from persist.db.wire import stored_text
from persist.errors import Conflict, UnreadableRow

_M, _P = messages.c, parts.c
_id = param("row_id")
_HEAD = Hot(select(_M.session_id, _M.role, cast(_M.metadata_json, Text)).where(_M.id == _id))
_PARTS = Hot(select(_P.id, _P.index, stored_text(_P.data_json)).where(_P.message_id == _id).order_by(_P.index))
_CALL = Hot(
    select(_P.id, _P.message_id)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == _id, _P.tool_call_id == param("call_id"), IS_UNFINISHED, VISIBLE)
    .order_by(_M.created_at.desc(), _M.id.desc(), _P.index.desc())
    .limit(1)
)
_HIDDEN = Hot(select(_M.id).where(_M.id == _id, HIDDEN))
_DATA = Hot(select(_P.id, _P.index, stored_text(_P.data_json)).where(_P.id == _id))


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as it stands, and the (id, index) of its part rows."""

    message: UIMessage
    rows: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class StoredCall:
    """An unfinished tool part of an earlier message."""

    part_id: str
    message_id: str
    data: dict[str, Any]


def load_message(db: Statements, session_id: str, id: str) -> StoredMessage | None:
    """The message to resume, its tails folded first; None if there is none.

    Conflict for one that is not ours to continue, UnreadableRow for one with a part that nobody can read.
    """
    head = db.row(_HEAD, row_id=id)
    if head is None:
        return None
    owner, role, stored = head
    if owner != session_id:
        raise Conflict(f"Message {id} belongs to another session.", constraint="chat_messages")
    if role != Role.ASSISTANT:
        raise Conflict(f"Message {id} is a {role} message; only an assistant message can be resumed.", constraint="chat_messages")
    metadata = stored_object(db, stored, f"the metadata of message {id}")
    if metadata.get("hidden_at") is not None:
        raise hidden(id)
    fold_message(db, id)
    rows = db.rows(_PARTS, row_id=id)
    message: UIMessage = {"id": id, "role": "assistant", "parts": [_data(db, row) for row in rows]}
    if metadata:
        message["metadata"] = metadata
    return StoredMessage(message, [(part_id, index) for part_id, index, _ in rows])


def _data(db: Statements, row: Row) -> Part:
    part_id, index, stored = row
    if type(index) is not int:
        raise UnreadableRow("chat_parts", (part_id,), "index", "it is no number")
    return stored_part(part_id, stored, db.wire)


def check_shown(db: Statements, ids: Iterable[str]) -> None:
    """Conflict for a message that a rewind hid: nobody would ever see what is added to it."""
    for id in ids:
        if db.row(_HIDDEN, row_id=id) is not None:
            raise hidden(id)


def hidden(id: str) -> Conflict:
    """Why a message cannot be continued."""
    return Conflict(f"Message {id} was hidden by a rewind; unrewind it, or record another message.", constraint="chat_messages")


def find_unfinished_call(db: Statements, session_id: str, call_id: str) -> StoredCall | None:
    """The latest visible unfinished part of the session with that call id: providers reuse ids across turns."""
    row = db.row(_CALL, row_id=session_id, call_id=call_id)
    if row is None:
        return None
    part_id, message_id = row
    fold(db, part_id)
    found = db.row(_DATA, row_id=part_id)
    assert found is not None  # same transaction
    return StoredCall(part_id, message_id, _data(db, found))
