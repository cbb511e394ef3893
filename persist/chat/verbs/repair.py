"""Repair after a restart: tool calls that a dead turn left unfinished become errors, so that the next turn can continue."""

import logging
from datetime import datetime, timedelta

from sqlalchemy import case, func, select

from persist.chat.models import IS_UNFINISHED, STOPPED, VISIBLE, messages, parts, sessions
from persist.chat.reducer.parts import Part, is_dynamic, tool_name
from persist.chat.schemas import ToolState
from persist.chat.storage import turns
from persist.chat.storage.folding import fold, fold_session, stored_part
from persist.chat.storage.statements import REWRITE_PART
from persist.db.expressions.json_text import stored_text
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_timedelta
from persist.db.values.clock import instant_before
from persist.errors import UnreadableRow

log = logging.getLogger("persist")
ABORTED = "aborted by host restart"
_WAS_STOPPED = "the answer was stopped"
_M, _P = messages.c, parts.c
_COLUMNS = (_P.session_id, _P.message_id, _P.id, _P.type, _P.tool_state, _M.updated_at, case((STOPPED, 1), else_=0))
_OF_SESSION = Statement(
    select(*_COLUMNS)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == param("session_id"), IS_UNFINISHED, VISIBLE)
    .order_by(_P.tool_call_id)  # in this order SQLite reads them by their index, and not all parts of the session
)
_OF_ALL = Statement(select(*_COLUMNS).join(messages, _M.id == _P.message_id).where(IS_UNFINISHED, VISIBLE))
_LATEST = Statement(select(func.max(_P.updated_at)).where(_P.message_id == param("message_id")))
_DATA = Statement(select(stored_text(_P.data_json), _P.tool_state).where(_P.id == param("row_id")).with_for_update())
_EXISTS = Statement(select(sessions.c.id).where(sessions.c.id == param("row_id")))


def repair(work: UnitOfWork, session_id: str | None, *, idle: timedelta, human_input_tools: frozenset[str]) -> int:
    """Set unfinished tool parts of dead turns to `output-error`, denied ones to `output-denied`; how many. Folds a session."""
    now = work.now()
    before = instant_before(now, check_timedelta("idle", idle))
    alive: dict[str, bool] = {}
    if session_id is None:
        found = [row for row in work.rows(_OF_ALL) if _is_idle(work, row, before)]
    else:
        with work.batch() as batch:
            exists = batch.row(_EXISTS, row_id=session_id)
            turn_row = batch.row(turns.READ_TURN, of_session=session_id)
            rows = batch.rows(_OF_SESSION, session_id=session_id)
        exists.must_exist("session", session_id)
        turn = turns.turn_of(turn_row.result)
        alive[session_id] = turn is not None and turn.running(now)
        found = rows.result
    repaired = 0
    for session, _, part_id, kind, state, _, was_stopped in found:
        if state == ToolState.APPROVAL_REQUESTED:
            continue
        if session not in alive:
            turn = turns.read_turn(work, session)
            alive[session] = turn is not None and turn.running(now)
        if alive[session]:
            continue
        try:
            part = _unfinished(work, part_id, state)
        except UnreadableRow as error:
            log.warning("an unfinished tool call is left as it is: %s", error)
            continue
        if part is None or tool_name(part) in human_input_tools:
            continue
        data = aborted(part, _WAS_STOPPED if was_stopped else ABORTED)
        work.run(REWRITE_PART, row_id=part_id, new_type=kind, new_tool_state=data["state"], data=work.json("part", data), at=now)
        repaired += 1
    if session_id is not None and not alive[session_id]:
        fold_session(work, session_id)
    return repaired


def _unfinished(work: UnitOfWork, part_id: str, state: str) -> Part | None:
    """The part with all of its input, folded and locked; None if it is no longer in that state."""
    fold(work, part_id)
    row = work.row(_DATA, row_id=part_id)
    return None if row is None or row[1] != state else stored_part(part_id, row[0], work.to_plain_json)


def aborted(part: Part, why: str = ABORTED) -> Part:
    """The part in state output-error. A static tool whose input was still streaming keeps its `rawInput`.

    A call that was denied is in state output-denied: the SDK's validator refuses an error of a call that nobody allowed.
    """
    approval = part.get("approval")
    if isinstance(approval, dict) and approval.get("approved") is False:
        return {**part, "state": str(ToolState.OUTPUT_DENIED)}
    changed = {**part, "state": str(ToolState.OUTPUT_ERROR), "errorText": why}
    if part.get("state") == ToolState.INPUT_STREAMING and is_dynamic(part):
        changed.pop("rawInput", None)
    changed.pop("preliminary", None)
    return changed


def _is_idle(work: UnitOfWork, row: Row, before: datetime) -> bool:
    latest = work.row(_LATEST, message_id=row[1])
    touched = row[5] if latest is None or latest[0] is None else max(row[5], latest[0])
    return bool(touched <= before)
