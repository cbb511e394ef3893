"""Deleting one message: its parts, deltas and step usage go with it, by their foreign keys."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Text, cast, delete, select

from persist.chat.models import IS_COMPACTION, messages, parts, sessions, turns
from persist.chat.schemas import UIMessage
from persist.chat.storage.statements import REWRITE_PART
from persist.chat.storage.stored_json import stored_object
from persist.chat.storage.turns import TURN, stop_turn, turn_of
from persist.chat.storage.usage import SET_COUNTERS, marker_value, newest_of, totals_of
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import Conflict, NotFound

_M, _P = messages.c, parts.c
_id = param("row_id")
_session = select(_M.session_id).where(_M.id == _id).scalar_subquery()
_LOCK_TURN = Statement(select(*TURN).where(turns.c.session_id == _session).with_for_update())
_LOCK_SESSION = Statement(select(sessions.c.id).where(sessions.c.id == _session).with_for_update())
_ROWS = Statement(
    select(_M.id, _M.role, cast(_M.metadata_json, Text)).where(_M.session_id == _session).order_by(_M.created_at, _M.id)
)
_MARKERS = Statement(
    select(_P.message_id, _P.data_json, _P.id, _P.type)
    .where(_P.session_id == _session, IS_COMPACTION)
    .order_by(_P.message_id, _P.index)
)
_DELETE = Statement(delete(messages).where(_M.id == _id))


def delete_message(work: UnitOfWork, id: str) -> None:
    """Delete the message. The tail of a compaction that begins with it begins with the next visible message.

    Raises NotFound, and Conflict for the message of a running turn.
    """
    now = work.now()
    with work.batch() as batch:
        turn_row = batch.row(_LOCK_TURN, row_id=id)  # locked before the session, in the order that recorders use
        session = batch.row(_LOCK_SESSION, row_id=id)
        rows = batch.rows(_ROWS, row_id=id)
        marker_rows = batch.rows(_MARKERS, row_id=id)
    if session.result is None:
        raise NotFound("message", id)
    session_id, turn = session.result[0], turn_of(turn_row.result)
    if turn is not None and turn.message_id == id and turn.running(now):
        raise Conflict(f"Message {id} is being written by a turn that runs; request_stop ends it.", constraint="chat_turns")
    everything = [
        {"id": row_id, "role": str(role), "metadata": stored_object(work, stored, f"the metadata of message {row_id}")}
        for row_id, role, stored in rows.result
    ]
    visible = [message for message in everything if message["id"] != id and _is_visible(message)]
    markers = [row for row in marker_rows.result if row[0] != id]
    moved = [(row, _without_tail(row, id, everything)) for row in markers if (marker_value(row) or ("", None))[1] == id]
    latest = {row[2]: data for row, data in moved}
    counted = [(row[0], latest.get(row[2], row[1])) for row in markers]
    with work.batch(last=True) as batch:
        for row, data in moved:
            batch.run(REWRITE_PART, row_id=row[2], new_type=row[3], new_tool_state=None, data=work.json("part", data), at=now)
        batch.run(_DELETE, row_id=id)
        batch.run(SET_COUNTERS, row_id=session_id, **totals_of(visible, newest_of(counted, visible)))
        if turn is not None and turn.message_id == id:
            stop_turn(batch, session_id, turn)


def _is_visible(message: UIMessage) -> bool:
    return message["metadata"].get("queued_at") is None and message["metadata"].get("hidden_at") is None


def _without_tail(marker: Row, id: str, everything: Sequence[UIMessage]) -> dict[str, Any]:
    """The data of a compaction whose tail begins after that message."""
    ids = [message["id"] for message in everything]
    following = everything[ids.index(id) + 1 : ids.index(marker[0]) if marker[0] in ids else 0]
    start = next((message["id"] for message in following if _is_visible(message)), None)
    return {**marker[1], "data": {**marker[1]["data"], "tail_start_id": start}}
