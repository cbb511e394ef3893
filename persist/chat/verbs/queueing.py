"""The queue of messages that wait for a turn's end: enqueue, claim, cancel. A waiting message has `queued_at` in its metadata."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Text, bindparam, select

from persist.chat.models import DELIVERY, IS_UNFINISHED, QUEUED, TRIGGERED, VISIBLE, messages, parts
from persist.chat.recording.flush import place_after_all
from persist.chat.reducer.parts import Part, is_part
from persist.chat.reducer.tool_parts import tool_name
from persist.chat.schemas import ChatMessage, Role, ToolState, TurnState
from persist.chat.storage import turns, usage
from persist.chat.storage.message_insert import (
    MESSAGE_COLUMNS,
    Posting,
    get_message,
    lock_session,
    message_value,
    post,
    set_metadata,
    touch_session,
)
from persist.db.schema.base import LABEL_CHARACTERS
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.clock import epoch_ms
from persist.db.values.escaping import escape_text
from persist.db.values.json import Json, decode, encode, merge_patch
from persist.errors import Conflict, InvalidValue, NotFound

_M, _P = messages.c, parts.c
_id = param("row_id")
_QUEUED = Statement(select(*MESSAGE_COLUMNS).where(_M.session_id == _id, QUEUED), unreadable=OnUnreadable.LEAVE_OUT)
_DELIVERED = Statement(
    select(*MESSAGE_COLUMNS).where(
        _M.session_id == _id, TRIGGERED, bindparam("delivery", type_=Text()) == DELIVERY, _M.role == Role.USER
    ),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_USERS = Statement(select(*MESSAGE_COLUMNS).where(_M.session_id == _id, _M.role == Role.USER), unreadable=OnUnreadable.LEAVE_OUT)
_PARTS = Statement(select(_P.data_json).where(_P.message_id == _id).order_by(_P.index))
_OPEN = Statement(
    select(_P.tool_state, _P.data_json)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == _id, IS_UNFINISHED, VISIBLE),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_OWN_KEYS = frozenset({"queued_at", "queue_enqueued_at", "queue_canceled_at", "hidden_at"})


def enqueue(work: UnitOfWork, posting: Posting, *, id: str | None) -> ChatMessage:
    """Insert a waiting user message. For a known delivery, or a known id with equal payload, return the existing message."""
    lock_session(work, posting.session_id)
    if id is not None:
        earlier = _same_message(work, posting, id)
        if earlier is not None:
            return earlier
    delivery = _delivery_id(posting.metadata)
    if delivery is not None:
        for row in _delivery_candidates(work, posting.session_id, delivery):
            message = message_value(work, row)
            if _delivery_id(message.metadata) == delivery:
                return message
    at = epoch_ms(work.now())
    # strictly after those that wait already: within one millisecond, ids given by callers have no order
    waiting = [message.metadata["queued_at"] for message in queued(work, posting.session_id)]
    at = max([at, *[stamp + 1 for stamp in waiting if type(stamp) is int]])
    metadata = {**posting.metadata, "queued_at": at, "queue_enqueued_at": at}
    return post(work, Posting(posting.session_id, Role.USER, posting.parts, metadata), id=id, touch=False)


def queued(work: UnitOfWork, session_id: str) -> list[ChatMessage]:
    """The waiting messages, first in, first out: by (queued_at, id)."""
    found = [message_value(work, row) for row in work.rows(_QUEUED, row_id=session_id)]
    return sorted(found, key=lambda message: (_queued_at(message), message.id))


def claim(work: UnitOfWork, session_id: str, human_input_tools: frozenset[str]) -> ChatMessage | None:
    """Remove `queued_at` from the oldest message and place it last, under the session's lock, so that one caller gets it."""
    lock_session(work, session_id)
    now = work.now()
    turn = turns.read_turn(work, session_id)
    if turn is not None and (turn.state == TurnState.ERROR or turn.running(now)):
        return None
    if _waits_for_human(work, session_id, human_input_tools):
        return None
    waiting = queued(work, session_id)
    if not waiting:
        return None
    message = waiting[0]
    metadata = {key: value for key, value in message.metadata.items() if key != "queued_at"}
    claimed = set_metadata(work, message.id, metadata, created=place_after_all(work, session_id, message.id, now))
    touch_session(work, session_id, metadata, now)
    marker = usage.newest_marker(work, session_id)
    if marker is not None and marker[0] == claimed.id:  # the compaction is visible from now on: earlier usage no longer counts
        usage.recompute(work, session_id)
    else:
        usage.tally(work, session_id, claimed.id, claimed.role, message.metadata, claimed.metadata)
    return claimed


def cancel(work: UnitOfWork, id: str) -> bool:
    """Cancel a waiting message. It stays as a hidden row, so that its id stays taken."""
    try:
        found = get_message(work, id)
    except NotFound:
        return False
    lock_session(work, found.session_id)  # in the order of locks that claim uses
    message = get_message(work, id, lock=True)
    if message.metadata.get("queued_at") is None:
        return False
    at = epoch_ms(work.now())
    metadata = {key: value for key, value in message.metadata.items() if key != "queued_at"}
    set_metadata(work, id, {**metadata, "queue_canceled_at": at, "hidden_at": at})
    return True


def patch_metadata(work: UnitOfWork, id: str, patch: Mapping[str, Json]) -> ChatMessage:
    """Merge a patch into any message's metadata. InvalidValue for keys that belong to queue and rewind."""
    owned = sorted(_OWN_KEYS & set(patch))
    if owned:
        raise InvalidValue(f"patch.{owned[0]}", "this key belongs to the queue and rewind verbs.")
    message = get_message(work, id, lock=True)
    changed = set_metadata(work, id, merge_patch(message.metadata, patch))
    usage.tally(work, message.session_id, id, message.role, message.metadata, changed.metadata)
    return changed


def _same_message(work: UnitOfWork, posting: Posting, id: str) -> ChatMessage | None:
    try:
        message = get_message(work, id)
    except NotFound:
        return None
    stored = [data for (data,) in work.rows(_PARTS, row_id=id)]
    wanted: list[Part] = [decode(text) for _, text in posting.parts]
    given = decode(encode(posting.metadata))
    known = {key: value for key, value in message.metadata.items() if key not in _OWN_KEYS}
    if (
        message.session_id == posting.session_id
        and message.role == Role.USER
        and stored == wanted
        and (not given or known == given)
    ):
        return message
    raise Conflict(f"Message {id} exists with another payload.", constraint="chat_messages.id")


def _waits_for_human(work: UnitOfWork, session_id: str, tools: frozenset[str]) -> bool:
    for state, data in work.rows(_OPEN, row_id=session_id):
        if state == ToolState.APPROVAL_REQUESTED:
            return True
        if state == ToolState.INPUT_AVAILABLE and is_part(data) and tool_name(data) in tools:
            return True
    return False


def _delivery_id(metadata: Mapping[str, Any]) -> str | None:
    trigger = metadata.get("trigger")
    found = trigger.get("delivery_id") if isinstance(trigger, dict) else None
    return found if isinstance(found, str) and found else None


def _delivery_candidates(work: UnitOfWork, session_id: str, delivery: str) -> list[Row]:
    """User messages whose delivery id may equal this one: those with its indexed prefix; all if it is stored escaped."""
    if escape_text(delivery, nul=True) != delivery:
        return work.rows(_USERS, row_id=session_id)
    return work.rows(_DELIVERED, row_id=session_id, delivery=delivery[:LABEL_CHARACTERS])


def _queued_at(message: ChatMessage) -> float:
    stamp = message.metadata.get("queued_at")
    return stamp if isinstance(stamp, (int, float)) else 0
