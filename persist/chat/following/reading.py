"""What a follower reads: the session's turn, and the message with the parts that may have changed since the last look."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, type_coerce

from persist.chat.following.rendering import IndexedPart
from persist.chat.models import STOP_REQUESTED, deltas, messages, parts, turns
from persist.chat.storage.files import STORED, StoredFile, put_back
from persist.chat.storage.stored_json import grown_part, joined_deltas, read_object, stored_objects
from persist.chat.storage.turns import READ_TURN, Turn, running_among, session_agent, turn_of
from persist.db.expressions.json_text import json_text, stored_text
from persist.db.schema.arrays import among_labels
from persist.db.schema.column_types import Int64, Label
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import NotFound, UnreadableRow

_M, _P, _D, _T = messages.c, parts.c, deltas.c, turns.c
_MARK = 6
"""How many characters of a part's id tell it from one that was there before; the end of an id is random."""

_message, _first = param("message_id"), param("first_index")
_HEAD = Statement(
    select(
        _M.session_id,
        type_coerce(_M.role, Label()),
        json_text(_M.metadata_json),
    ).where(_M.id == _message),
    unreadable=OnUnreadable.RAISE,
)
_PARTS = Statement(
    select(_P.index, _P.id, json_text(_P.data_json)).where(_P.message_id == _message, _P.index >= _first).order_by(_P.index),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_TAILS = Statement(
    select(_D.part_id, stored_text(_D.seq), stored_text(_D.delta))
    .join(parts, _P.id == _D.part_id)
    .where(_P.message_id == _message, _P.index >= _first)
    .order_by(_D.part_id, _D.seq),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_unfolded = select(func.sum(_D.seq)).join(parts, _P.id == _D.part_id).where(_P.message_id == _T.message_id)
_MARKS = Statement(
    select(
        _T.session_id,
        _T.owner,
        type_coerce(_T.state, Label()),
        _T.message_id,
        select(func.count()).where(_P.message_id == _T.message_id).correlate(turns).scalar_subquery(),
        type_coerce(
            select(func.max(_P.updated_at)).where(_P.message_id == _T.message_id).correlate(turns).scalar_subquery(), Int64()
        ),
        type_coerce(_unfolded.correlate(turns).scalar_subquery(), Int64()),
    ).where(among_labels(_T.session_id, "ids")),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_STOPPED = Statement(select(_T.session_id, _T.owner).where(STOP_REQUESTED), unreadable=OnUnreadable.LEAVE_OUT)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a session: its running turn, and a message's metadata and parts from an index on, unless it is not shown."""

    turn: Turn | None
    metadata: dict[str, Any] | None = None
    """None: there is no such message to be shown, or not yet."""
    parts: tuple[IndexedPart, ...] = ()


def look_at(work: UnitOfWork, session_id: str, message_id: str | None, first: int) -> Look:
    """Look at a session and one of its messages; without `message_id` at the running turn's. Raises NotFound."""
    if message_id is None:
        _, _, turn = session_agent(work, session_id)
        if turn is None or not turn.running(work.now()) or turn.message_id is None:
            return Look(turn)
        return look_at(work, session_id, turn.message_id, first)
    with work.batch() as batch:
        turn_row = batch.row(READ_TURN, of_session=session_id)
        head = batch.row(_HEAD, message_id=message_id)
        rows = batch.rows(_PARTS, message_id=message_id, first_index=first)
        tails = batch.rows(_TAILS, message_id=message_id, first_index=first)
    turn = turn_of(turn_row.result)
    if head.result is None:
        return Look(turn)
    owner, role, stored = head.result
    if owner != session_id or role != "assistant":
        raise NotFound("message", message_id)
    metadata = read_object(stored, f"the metadata of message {message_id}")
    if metadata.get("hidden_at") is not None:
        return Look(turn)
    found = _whole(rows.result, tails.result)
    filed = [StoredFile(message_id, one.place, one.part) for one in found if one.part.get("state") == STORED]
    if filed:
        put_back(work, work.runtime, filed)
    return Look(turn, metadata, tuple(found))


def _whole(rows: list[Row], tails: list[Row]) -> list[IndexedPart]:
    pieces: dict[str, list[tuple[Any, Any]]] = {}
    for part_id, seq, delta in tails:
        pieces.setdefault(part_id, []).append((seq, delta))
    found: list[IndexedPart] = []
    for (index, part_id, _), data in zip(rows, stored_objects([text for *_, text in rows]), strict=True):
        if data is None or not isinstance(data.get("type"), str):
            continue  # lists leave it out as well
        whole = data
        try:
            if part_id in pieces:
                tail, _ = joined_deltas(part_id, pieces[part_id])
                whole = grown_part(part_id, data, tail)
        except UnreadableRow:
            pass  # shown without its latest text, as in lists
        found.append(IndexedPart(index, part_id[-_MARK:], whole))
    return found


def marks_of(work: UnitOfWork, session_ids: list[str]) -> dict[str, tuple[Any, ...]]:
    """For each of the sessions that has a turn, values of which one changes whenever its recorder writes."""
    return {session_id: tuple(rest) for session_id, *rest in work.rows(_MARKS, ids=session_ids)}


def stopped_turns(work: UnitOfWork) -> set[tuple[str, str]]:
    """(session, owner) of all turns that were asked to stop."""
    return {(session_id, owner) for session_id, owner in work.rows(_STOPPED)}


def ended_turns(work: UnitOfWork, session_ids: list[str]) -> list[str]:
    """The sessions of the list whose turn ended, or whose recorder's process is gone."""
    running = running_among(work, session_ids)
    return [session_id for session_id in session_ids if session_id not in running]
