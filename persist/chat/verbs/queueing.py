"""The queue of messages that wait for a turn's end: enqueue, claim, cancel. A waiting message has `queued_at` in its metadata."""

from collections.abc import Mapping
from datetime import datetime
from math import floor
from typing import Any

from sqlalchemy import Text, bindparam, case, cast, false, select, true, update

from persist.chat.models import DELIVERY, IS_UNFINISHED, QUEUED, QUEUED_AT, TRIGGERED, VISIBLE, messages, parts, sessions
from persist.chat.reducer.parts import is_part, tool_name
from persist.chat.schemas import ChatMessage, Role, ToolState, TurnState
from persist.chat.storage import message_insert, turns, usage
from persist.chat.storage.statements import LOCK_SESSION, SET_METADATA, is_stale
from persist.db.changes.batch import Batch, Pending
from persist.db.concurrency.ownership import this_process_as_owner
from persist.db.expressions.upsert import of_former
from persist.db.schema.base import LABEL_CHARACTERS
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.clock import epoch_ms
from persist.db.values.escaping import escape_text
from persist.db.values.json import Json, merge_patch
from persist.errors import Conflict, InvalidValue

_M, _P = messages.c, parts.c
_id = param("row_id")
_in_line = select(*message_insert.MESSAGE_COLUMNS).where(_M.session_id == _id, QUEUED).order_by(QUEUED_AT, _M.id)
_QUEUED = Statement(_in_line, unreadable=OnUnreadable.LEAVE_OUT)
_FIRST = Statement(_in_line.limit(LIMIT), unreadable=OnUnreadable.LEAVE_OUT)
_LAST = Statement(
    select(cast(QUEUED_AT, Text)).where(_M.session_id == _id, QUEUED).order_by(QUEUED_AT.desc(), _M.id.desc()).limit(1)
)
_DELIVERED = Statement(
    select(*message_insert.MESSAGE_COLUMNS).where(
        _M.session_id == _id, TRIGGERED, bindparam("delivery", type_=Text()) == DELIVERY, _M.role == Role.USER
    ),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_USERS = Statement(
    select(*message_insert.MESSAGE_COLUMNS).where(_M.session_id == _id, _M.role == Role.USER), unreadable=OnUnreadable.LEAVE_OUT
)
_OPEN = Statement(
    select(_P.tool_state, _P.data_json)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == _id, IS_UNFINISHED, VISIBLE)
    .order_by(_P.tool_call_id),  # in this order SQLite reads them by their index, and not all parts of the session
    unreadable=OnUnreadable.LEAVE_OUT,
)
_own_session = select(_M.session_id).where(_M.id == _id).scalar_subquery()
_LOCK_SESSION_OF = Statement(select(sessions.c.id).where(sessions.c.id == _own_session).with_for_update())
_CLAIM = Statement(update(messages).where(_M.id == _id).values(claimed_by=param("owner"), claimed_at=param("at")))
# Of a bare condition a server believes that hardly any message meets it, and sorts the session; of CASE, that half of them do.
_shown = case((VISIBLE, true()), else_=false())
_NEWEST = Statement(
    select(*message_insert.MESSAGE_COLUMNS, _M.claimed_by, _M.claimed_at)
    .where(_M.session_id == _id, _shown)
    .order_by(_M.created_at.desc(), _M.id.desc())
    .limit(1),
    unreadable=OnUnreadable.LEAVE_OUT,
)


def enqueue(work: UnitOfWork, posting: message_insert.Posting, *, id: str | None) -> ChatMessage:
    """Insert a waiting user message. For a known delivery, or a known id with equal payload, return the existing message."""
    session_id, delivery = posting.session_id, _delivery_id(posting.metadata)
    with work.batch() as batch:
        session = batch.row(LOCK_SESSION, row_id=session_id)
        same = (
            None
            if id is None
            else (batch.row(message_insert.GET_MESSAGE, row_id=id), batch.rows(message_insert.STORED_PARTS, row_id=id))
        )
        delivered = None if delivery is None else _delivery_candidates(batch, session_id, delivery)
        last = batch.row(_LAST, row_id=session_id)
    session.must_exist("session", session_id)
    if same is not None and same[0].result is not None:
        message = message_insert.message_value(work, same[0].result)
        if message_insert.same_content(posting, message, [data for (data,) in same[1].result]):
            return message
        raise Conflict(f"Message {id} exists with another payload.", constraint="chat_messages.id")
    if same is not None and same[1].result:
        raise of_former(messages, "message", str(id))
    for row in [] if delivered is None else delivered.result:
        message = message_insert.message_value(work, row)
        if _delivery_id(message.metadata) == delivery:
            return message
    at = epoch_ms(work.now())
    # strictly after those that wait already: within one millisecond, ids given by callers have no order
    at = max(at, _after(last.result))
    metadata = {**posting.metadata, "queued_at": at, "queue_enqueued_at": at}
    return message_insert.post(
        work, message_insert.Posting(posting.session_id, Role.USER, posting.parts, metadata), id=id, touch=False
    )


def _after(last: Row | None) -> int:
    """The first millisecond after the last message in line; 0 if there is none, or if another program wrote no instant there."""
    try:
        stamp = 0.0 if last is None else float(last[0])
    except ValueError:
        return 0
    return floor(stamp) + 1 if 0 < stamp < 2**53 else 0


def queued(work: UnitOfWork, session_id: str) -> list[ChatMessage]:
    """The waiting messages, first in, first out: by (queued_at, id)."""
    return [message_insert.message_value(work, row) for row in work.rows(_QUEUED, row_id=session_id)]


def claim(work: UnitOfWork, session_id: str, human_input_tools: frozenset[str]) -> ChatMessage | None:
    """Remove `queued_at` from the oldest message and place it last, under the session's lock, so that one caller gets it."""
    now = work.now()
    with work.batch() as batch:
        session = batch.row(LOCK_SESSION, row_id=session_id)
        turn_row = batch.row(turns.READ_TURN, of_session=session_id)
        unfinished = batch.rows(_OPEN, row_id=session_id)
        first = batch.rows(_FIRST, row_id=session_id, limit=1)
        newest = batch.rows(_NEWEST, row_id=session_id)
    session.must_exist("session", session_id)
    turn = turns.turn_of(turn_row.result)
    if turn is not None and (turn.state == TurnState.ERROR or turn.running(now)):
        return None
    if _waits_for_human(unfinished.result, human_input_tools):
        return None
    left = _left_by_dead(newest.result, now)
    if left is not None:
        work.run_last(_CLAIM, row_id=left[0], owner=this_process_as_owner(), at=now)
        return message_insert.message_value(work, left)
    if not first.result:
        return None
    message = message_insert.message_value(work, first.result[0])
    metadata = {key: value for key, value in message.metadata.items() if key != "queued_at"}
    added = usage.counters_of(message.role, message.metadata, metadata)
    with work.batch() as batch:
        batch.run(message_insert.PLACE_LAST, new=message.id, session=session_id, metadata=work.json("metadata", metadata), at=now)
        batch.run(_CLAIM, row_id=message.id, owner=this_process_as_owner(), at=now)
        message_insert.touch_session(work, batch, session_id, metadata, now)
        if added:
            batch.run(usage.ADD_COUNTERS, row_id=session_id, **added)
        marker = batch.row(usage.NEWEST_MARKER, row_id=session_id)
        claimed = batch.row(message_insert.GET_MESSAGE, row_id=message.id)
    if marker.result is not None and marker.result[0] == message.id:  # it is visible from now on: earlier usage no longer counts
        usage.recompute(work, session_id)
    return message_insert.found_message(work, message.id, claimed.result)


def _left_by_dead(newest: list[Row], now: datetime) -> Row | None:
    """The newest visible message, if a process took it out of the queue and died before it recorded the answer's first chunk."""
    for *message, claimed_by, claimed_at in newest:
        if (
            message[2] == Role.USER
            and claimed_by is not None
            and claimed_at is not None
            and is_stale(claimed_by, claimed_at, now)
        ):
            return tuple(message)
    return None


def cancel(work: UnitOfWork, id: str) -> bool:
    """Cancel a waiting message. Its row stays, hidden, so that the id stays taken."""
    with work.batch() as batch:
        batch.lock(_LOCK_SESSION_OF, row_id=id)  # in the order of locks that claim uses
        row = batch.row(message_insert.LOCK_MESSAGE, row_id=id)
    if row.result is None:
        return False
    message = message_insert.message_value(work, row.result)
    if message.metadata.get("queued_at") is None:
        return False
    at = epoch_ms(work.now())
    metadata = {key: value for key, value in message.metadata.items() if key != "queued_at"}
    text = work.json("metadata", {**metadata, "queue_canceled_at": at, "hidden_at": at})
    work.run_last(SET_METADATA, row_id=id, metadata=text, at=work.now())
    return True


def patch_metadata(work: UnitOfWork, id: str, patch: Mapping[str, Json]) -> ChatMessage:
    """Merge a patch into any message's metadata. Raises InvalidValue for keys that belong to queue and rewind."""
    owned = sorted(message_insert.STORE_KEYS & set(patch))
    if owned:
        raise InvalidValue(f"patch.{owned[0]}", "this key belongs to the queue and rewind verbs.")
    message = message_insert.found_message(work, id, work.row(message_insert.LOCK_MESSAGE, row_id=id))
    metadata = merge_patch(message.metadata, patch)
    text, added = work.json("metadata", metadata), usage.counters_of(message.role, message.metadata, metadata)
    with work.batch(last=not added) as batch:
        batch.run(SET_METADATA, row_id=id, metadata=text, at=work.now())
        if added:
            batch.run(usage.ADD_COUNTERS, row_id=message.session_id, **added)
            boundary = usage.boundary_of(batch, id)
        changed = batch.row(message_insert.GET_MESSAGE, row_id=id)
    if added and usage.is_before(id, boundary.result):
        usage.recompute(work, message.session_id)
    return message_insert.found_message(work, id, changed.result)


def _waits_for_human(unfinished: list[Row], tools: frozenset[str]) -> bool:
    for state, data in unfinished:
        if state == ToolState.APPROVAL_REQUESTED:
            return True
        if state == ToolState.INPUT_AVAILABLE and is_part(data) and tool_name(data) in tools:
            return True
    return False


def _delivery_id(metadata: Mapping[str, Any]) -> str | None:
    trigger = metadata.get("trigger")
    found = trigger.get("delivery_id") if isinstance(trigger, dict) else None
    return found if isinstance(found, str) and found else None


def _delivery_candidates(batch: Batch, session_id: str, delivery: str) -> Pending[list[Row]]:
    """User messages whose delivery id may equal this one: those with its indexed prefix; all if it is stored escaped."""
    if escape_text(delivery, nul=True) != delivery:
        return batch.rows(_USERS, row_id=session_id)
    return batch.rows(_DELIVERED, row_id=session_id, delivery=delivery[:LABEL_CHARACTERS])
