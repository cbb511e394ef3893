"""What a recorder reads from the database: a message to continue, and the unfinished tool call that a late result belongs to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Text, cast, select

from persist.chat.models import HIDDEN, IS_UNFINISHED, VISIBLE, messages, parts
from persist.chat.reducer.parts import Part
from persist.chat.reducer.tool_parts import approval_id as approval_of
from persist.chat.schemas import UNFINISHED, Role, ToolState, UIMessage
from persist.chat.storage.files import StoredFile, put_back, referred
from persist.chat.storage.folding import fold, fold_message
from persist.chat.storage.stored_json import stored_object, stored_part
from persist.db.changes.batch import Requirement
from persist.db.changes.driver_statements import StatementRunner
from persist.db.expressions.json_text import stored_text
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.transactions.runtime import Runtime
from persist.errors import Conflict, UnreadableRow

_M, _P = messages.c, parts.c
_id = param("row_id")
_HEAD = Statement(select(_M.session_id, _M.role, cast(_M.metadata_json, Text)).where(_M.id == _id))
_PARTS = Statement(select(_P.id, _P.index, stored_text(_P.data_json)).where(_P.message_id == _id).order_by(_P.index))
_calls = (
    select(_P.id, _P.message_id)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == _id, IS_UNFINISHED, VISIBLE)
    .order_by(_M.created_at.desc(), _M.id.desc(), _P.index.desc())
)
_CALL = Statement(_calls.where(_P.tool_call_id == param("call_id")))
_ASKED_STATES = (ToolState.APPROVAL_REQUESTED, ToolState.APPROVAL_RESPONDED)
_ASKED = Statement(_calls.where(among(_P.tool_state, _ASKED_STATES)))
_hidden = select(_M.id).where(_M.id == _id, HIDDEN)
NOT_HIDDEN = Requirement(_hidden, absent=True)
"""A message that no rewind hides. What is added to a hidden one would never be shown."""
_DATA = Statement(select(_P.id, _P.index, stored_text(_P.data_json)).where(_P.id == _id))


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A stored message and the (id, index) of its part rows."""

    message: UIMessage
    rows: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class StoredCall:
    """An unfinished tool part of an earlier message."""

    part_id: str
    message_id: str
    call_id: str
    data: dict[str, Any]


def load_message(db: StatementRunner, runtime: Runtime, session_id: str, id: str) -> StoredMessage | None:
    """The message to resume, its deltas folded first; None if there is no such message.

    Conflict: the message is hidden_error, of another session, or not the assistant's. UnreadableRow: a part cannot be read.
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
        raise hidden_error(id)
    fold_message(db, id)
    rows = db.rows(_PARTS, row_id=id)
    message: UIMessage = {"id": id, "role": "assistant", "parts": [_data(db, row) for row in rows]}
    filed = [StoredFile(id, row[1], data) for row, data in zip(rows, message["parts"], strict=True) if referred(data) is not None]
    if filed:
        put_back(db, runtime, filed)
    if metadata:
        message["metadata"] = metadata
    return StoredMessage(message, [(part_id, index) for part_id, index, _ in rows])


def _data(db: StatementRunner, row: Row) -> Part:
    part_id, index, stored = row
    if type(index) is not int:
        raise UnreadableRow("chat_parts", (part_id,), "index", "it is no number")
    return stored_part(part_id, stored, db.to_plain_json)


def refuse_hidden(db: StatementRunner, ids: Iterable[str]) -> None:
    """Raise Conflict if a rewind hid one of the messages: what is added to it would never be shown."""
    for id in ids:
        if db.row(NOT_HIDDEN.plain, row_id=id) is not None:
            raise hidden_error(id)


def hidden_error(id: str) -> Conflict:
    """The error for continuing a hidden message."""
    return Conflict(f"Message {id} was hidden by a rewind; unrewind it, or record another message.", constraint="chat_messages")


def waits_for(part: Part, call_id: str | None, approval_id: str | None) -> bool:
    """Whether this is an unfinished tool call with that call id, or else with that approval, which was asked for."""
    if call_id is not None:
        return part.get("toolCallId") == call_id and part.get("state") in UNFINISHED
    return approval_of(part) == approval_id and part.get("state") in _ASKED_STATES


def find_unfinished_call(
    db: StatementRunner, session_id: str, call_id: str | None, approval_id: str | None, newer: Mapping[str, Part | None]
) -> StoredCall | None:
    """The session's latest visible unfinished tool part with that call id, or else with that approval; None if there is none.

    Providers reuse call ids: hence the latest. `newer`: parts by id as they are to be written, None for those to be removed.
    """
    rows = db.rows(_ASKED, row_id=session_id) if call_id is None else db.rows(_CALL, row_id=session_id, call_id=call_id)
    for part_id, message_id in rows:
        known = newer.get(part_id)
        if known is not None and waits_for(known, call_id, approval_id):
            return StoredCall(part_id, message_id, str(known.get("toolCallId")), known)
        if part_id not in newer and waits_for((call := _call(db, part_id, message_id)).data, call_id, approval_id):
            return call
    return None


def _call(db: StatementRunner, part_id: str, message_id: str) -> StoredCall:
    fold(db, part_id)
    found = db.row(_DATA, row_id=part_id)
    assert found is not None  # same transaction
    data = _data(db, found)
    return StoredCall(part_id, message_id, str(data.get("toolCallId")), data)
