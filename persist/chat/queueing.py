"""Messages that wait behind a running turn: enqueue, claim, cancel. `queued_at` in the metadata says that one waits."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Text, bindparam, select

from persist.chat import turns, usage
from persist.chat.flush import place_after_all
from persist.chat.models import DELIVERY, IS_UNFINISHED, QUEUED, TRIGGERED, VISIBLE, messages, parts
from persist.chat.parts import Part, is_part
from persist.chat.posting import MESSAGE_COLUMNS, Posting, fired, get_message, lock_session, message_value, post, set_metadata
from persist.chat.schemas import ChatMessage, Role, ToolState, TurnState
from persist.chat.tool_parts import tool_name
from persist.db.base import LABEL_CHARACTERS
from persist.db.clock import epoch_ms
from persist.db.escape import escape_text
from persist.db.hot import Hot, Row, param
from persist.db.json import Json, decode, encode, merge_patch
from persist.db.spoilt import Spoilt
from persist.db.work import Work
from persist.errors import Conflict, InvalidValue, NotFound

_M, _P = messages.c, parts.c
_id = param("row_id")
_QUEUED = Hot(select(*MESSAGE_COLUMNS).where(_M.session_id == _id, QUEUED), spoilt=Spoilt.LEAVE_OUT)
_DELIVERED = Hot(
    select(*MESSAGE_COLUMNS).where(
        _M.session_id == _id, TRIGGERED, bindparam("delivery", type_=Text()) == DELIVERY, _M.role == Role.USER
    ),
    spoilt=Spoilt.LEAVE_OUT,
)
_USERS = Hot(select(*MESSAGE_COLUMNS).where(_M.session_id == _id, _M.role == Role.USER), spoilt=Spoilt.LEAVE_OUT)
_PARTS = Hot(select(_P.data_json).where(_P.message_id == _id).order_by(_P.index))
_OPEN = Hot(
    select(_P.tool_state, _P.data_json)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == _id, IS_UNFINISHED, VISIBLE),
    spoilt=Spoilt.LEAVE_OUT,
)
_OWN_KEYS = frozenset({"queued_at", "queue_enqueued_at", "queue_canceled_at", "hidden_at"})


def enqueue(work: Work, given: Posting, *, id: str | None) -> ChatMessage:
    """A waiting user message; the same id and payload, or the same delivery, again is the row that is there."""
    lock_session(work, given.session_id)
    if id is not None:
        earlier = _same_message(work, given, id)
        if earlier is not None:
            return earlier
    delivery = _delivery_id(given.metadata)
    if delivery is not None:
        for row in _maybe_delivered(work, given.session_id, delivery):
            message = message_value(work, row)
            if _delivery_id(message.metadata) == delivery:
                return message
    at = epoch_ms(work.now())
    # strictly after those that wait already: within a millisecond their ids may be foreign and say nothing
    waiting = [message.metadata["queued_at"] for message in queued(work, given.session_id)]
    at = max([at, *[stamp + 1 for stamp in waiting if type(stamp) is int]])
    metadata = {**given.metadata, "queued_at": at, "queue_enqueued_at": at}
    return post(work, Posting(given.session_id, Role.USER, given.parts, metadata), id=id, touch=False)


def queued(work: Work, session_id: str) -> list[ChatMessage]:
    """First in, first out: (queued_at, id)."""
    found = [message_value(work, row) for row in work.rows(_QUEUED, row_id=session_id)]
    return sorted(found, key=lambda message: (_stamp(message), message.id))


def claim(work: Work, session_id: str, human_input_tools: frozenset[str]) -> ChatMessage | None:
    """Clear queued_at of the oldest and stamp it now, under the session's lock: one winner."""
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
    fired(work, session_id, metadata, now)
    marker = usage.newest_marker(work, session_id)
    if marker is not None and marker[0] == claimed.id:  # shown from now on, and so what came before it counts no more
        usage.recompute(work, session_id)
    else:
        usage.tally(work, session_id, claimed.id, claimed.role, message.metadata, claimed.metadata)
    return claimed


def cancel(work: Work, id: str) -> bool:
    """Leave a hidden tombstone, so that the id stays taken."""
    try:
        found = get_message(work, id)
    except NotFound:
        return False
    lock_session(work, found.session_id)  # the order claim takes them in
    message = get_message(work, id, lock=True)
    if message.metadata.get("queued_at") is None:
        return False
    at = epoch_ms(work.now())
    metadata = {key: value for key, value in message.metadata.items() if key != "queued_at"}
    set_metadata(work, id, {**metadata, "queue_canceled_at": at, "hidden_at": at})
    return True


def patch_metadata(work: Work, id: str, patch: Mapping[str, Json]) -> ChatMessage:
    """A merge patch of any message's metadata; the keys that the queue and rewind own are theirs."""
    owned = sorted(_OWN_KEYS & set(patch))
    if owned:
        raise InvalidValue(f"patch.{owned[0]}", "this key belongs to the queue and rewind verbs.")
    message = get_message(work, id, lock=True)
    changed = set_metadata(work, id, merge_patch(message.metadata, patch))
    usage.tally(work, message.session_id, id, message.role, message.metadata, changed.metadata)
    return changed


def _same_message(work: Work, given: Posting, id: str) -> ChatMessage | None:
    try:
        message = get_message(work, id)
    except NotFound:
        return None
    stored = [data for (data,) in work.rows(_PARTS, row_id=id)]
    wanted: list[Part] = [decode(text) for _, text in given.parts]
    mine = decode(encode(given.metadata))
    own = {key: value for key, value in message.metadata.items() if key not in _OWN_KEYS}
    if message.session_id == given.session_id and message.role == Role.USER and stored == wanted and (not mine or own == mine):
        return message
    raise Conflict(f"Message {id} exists with another payload.", constraint="chat_messages.id")


def _waits_for_human(work: Work, session_id: str, tools: frozenset[str]) -> bool:
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


def _maybe_delivered(work: Work, session_id: str, delivery: str) -> list[Row]:
    """The user messages whose delivery begins like that one; all of them where text is kept escaped, by either database."""
    if escape_text(delivery, nul=True) != delivery:
        return work.rows(_USERS, row_id=session_id)
    return work.rows(_DELIVERED, row_id=session_id, delivery=delivery[:LABEL_CHARACTERS])


def _stamp(message: ChatMessage) -> float:
    stamp = message.metadata.get("queued_at")
    return stamp if isinstance(stamp, (int, float)) else 0
