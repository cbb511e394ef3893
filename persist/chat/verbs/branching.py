"""Fork, rewind and unrewind: copying a conversation's beginning, and hiding or showing its messages."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Text, cast, select

from persist.chat.models import messages, parts
from persist.chat.schemas import ChatSession, Role
from persist.chat.storage import turns
from persist.chat.storage.folding import fold_session
from persist.chat.storage.statements import INSERT_MESSAGE, INSERT_PART, SET_METADATA
from persist.chat.storage.stored_json import stored_object
from persist.chat.storage.usage import COMPACTION, recompute
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import epoch_ms
from persist.db.values.frozen import construct
from persist.db.values.json import Json
from persist.errors import InvalidValue, NotFound

_M, _P = messages.c, parts.c
_id = param("row_id")
_ROWS = Statement(
    select(_M.id, _M.role, cast(_M.metadata_json, Text), _M.created_at).where(_M.session_id == _id).order_by(_M.created_at, _M.id)
)
_PARTS = Statement(
    select(_P.message_id, _P.index, _P.type, _P.tool_call_id, _P.tool_state, _P.created_at, _P.updated_at, _P.data_json)
    .where(_P.session_id == _id)
    .order_by(_P.message_id, _P.index)
)


def child_of(parent: ChatSession, at_message_id: str, given: dict[str, Any], *, id: str, now: datetime) -> ChatSession:
    """The child's row: the parent's agent, model and workspace, its metadata overridden by `given`, and no permissions."""
    inherited = {key: value for key, value in parent.metadata.items() if key != "ephemeral"}
    metadata = {**inherited, **given}
    title = inherited.get("title")
    if isinstance(title, str) and title and "title" not in given:
        metadata["title"] = f"{title} (copy)"
    counters = dict.fromkeys(
        ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write", "total_tokens"), 0
    )
    fields = {
        **dict(parent),
        **counters,
        "id": id,
        "parent_id": parent.id,
        "parent_message_id": at_message_id,
        "permissions": [],
        "metadata": metadata,
        "cost_usd": 0.0,
        "created_at": now,
        "updated_at": now,
        "archived_at": None,
    }
    return construct(ChatSession, fields)


def messages_through(work: UnitOfWork, session_id: str, at_message_id: str) -> list[Row]:
    """(id, role, metadata, created_at) of visible messages through the fork point. Conflict while a turn runs.

    NotFound for an unknown fork point, InvalidValue for a hidden or queued one.
    """
    turns.refuse_running(work, session_id, work.now(), "Forking")
    visible_rows: list[Row] = []
    for row in work.rows(_ROWS, row_id=session_id):
        metadata = stored_object(work, row[2], f"the metadata of message {row[0]}")
        visible = metadata.get("hidden_at") is None and metadata.get("queued_at") is None
        if row[0] == at_message_id and not visible:
            raise InvalidValue("at_message_id", "a hidden or queued message is no fork point.")
        if visible:
            visible_rows.append((row[0], row[1], metadata, row[3]))
        if row[0] == at_message_id:
            return visible_rows
    raise NotFound("message", at_message_id)


def copy_messages(work: UnitOfWork, child: ChatSession, visible_rows: list[Row]) -> None:
    """Copy messages and parts under new ids, with equal data and created_at. A compaction's tail_start_id names the copy."""
    fold_session(work, child.parent_id or "")
    ids = dict(zip([row[0] for row in visible_rows], work.runtime.ids.mint_many("msg", len(visible_rows)), strict=True))
    now = work.now()
    work.run_many(
        INSERT_MESSAGE,
        [
            {
                "id": ids[id],
                "session_id": child.id,
                "role": role,
                "metadata_json": work.json("metadata", metadata),
                "created_at": created_at,
                "updated_at": now,
            }
            for id, role, metadata, created_at in visible_rows
        ],
    )
    stored = [row for row in work.rows(_PARTS, row_id=child.parent_id) if row[0] in ids]
    new_ids = work.runtime.ids.mint_many("prt", len(stored))
    names = ("message_id", "index", "type", "tool_call_id", "tool_state", "created_at", "updated_at", "data_json")
    copies = []
    for new_id, row in zip(new_ids, stored, strict=True):
        copy = dict(zip(names, row, strict=True))
        data = _remapped(copy["data_json"], ids) if copy["type"] == COMPACTION else copy["data_json"]
        copies.append(
            {**copy, "id": new_id, "message_id": ids[row[0]], "session_id": child.id, "data_json": work.json("part", data)}
        )
    work.run_many(INSERT_PART, copies)
    recompute(work, child.id)


def rewind(work: UnitOfWork, session_id: str, to_message_id: str, now: datetime) -> int:
    """Hide the messages after the anchor, a user message, and show those through it. Queued and canceled ones are unchanged.

    A turn whose message gets hidden is ended: what its recorder adds would not be shown. A turn whose message is not stored
    yet is ended if a user message gets hidden: its answer would follow the anchor without its question.
    """
    turn = turns.hold_turn(work, session_id)
    rows, anchor = _anchor(work, session_id, to_message_id)
    if rows[anchor][1] != Role.USER:
        raise InvalidValue("to_message_id", "the anchor of a rewind is a user message.")
    hidden: list[str] = []
    for position, (id, role, stored, _) in enumerate(rows):
        metadata = stored_object(work, stored, f"the metadata of message {id}")
        if metadata.get("queued_at") is not None or metadata.get("queue_canceled_at") is not None:
            continue
        if position > anchor and metadata.get("hidden_at") is None:
            _set(work, id, {**metadata, "hidden_at": epoch_ms(now)}, now)
            hidden.append(role)
        elif position <= anchor and metadata.get("hidden_at") is not None:
            _set(work, id, _without_hidden(metadata), now)
    if turn is not None:
        places = {row[0]: position for position, row in enumerate(rows)}
        if places[turn.message_id] > anchor if turn.message_id in places else Role.USER in hidden:
            turns.stop_turn(work, session_id, turn)
    recompute(work, session_id)
    return len(hidden)


def unrewind(work: UnitOfWork, session_id: str, after_message_id: str, now: datetime) -> int:
    """Show hidden messages after the anchor, except canceled ones; the number shown."""
    rows, anchor = _anchor(work, session_id, after_message_id)
    visible_rows = 0
    for id, _, stored, _ in rows[anchor + 1 :]:
        metadata = stored_object(work, stored, f"the metadata of message {id}")
        if metadata.get("hidden_at") is not None and metadata.get("queue_canceled_at") is None:
            _set(work, id, _without_hidden(metadata), now)
            visible_rows += 1
    recompute(work, session_id)
    return visible_rows


def _anchor(work: UnitOfWork, session_id: str, message_id: str) -> tuple[list[Row], int]:
    rows = work.rows(_ROWS, row_id=session_id)
    for position, row in enumerate(rows):
        if row[0] == message_id:
            if stored_object(work, row[2], f"the metadata of message {row[0]}").get("queued_at") is not None:
                raise InvalidValue("message_id", "a queued message is not in the transcript yet.")
            return rows, position
    raise NotFound("message", message_id)


def _without_hidden(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key != "hidden_at"}


def _set(work: UnitOfWork, id: str, metadata: dict[str, Any], now: datetime) -> None:
    work.run(SET_METADATA, row_id=id, metadata=work.json("metadata", metadata), at=now)


def _remapped(data: Json, ids: Mapping[str, str]) -> Json:
    inner = data.get("data") if isinstance(data, dict) else None
    if not isinstance(inner, dict) or inner.get("tail_start_id") is None:
        return data
    return {**data, "data": {**inner, "tail_start_id": ids.get(inner["tail_start_id"])}}
