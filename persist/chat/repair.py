"""After a restart: what a dead turn left unfinished becomes an error that the next turn can build on."""

import logging
from datetime import datetime, timedelta

from sqlalchemy import func, select

from persist.chat import turns
from persist.chat.models import IS_UNFINISHED, VISIBLE, messages, parts, sessions
from persist.chat.parts import Part
from persist.chat.schemas import ToolState
from persist.chat.statements import REWRITE_PART
from persist.chat.stored import stored_part
from persist.chat.tails import fold, fold_session
from persist.chat.tool_parts import is_dynamic, tool_name
from persist.db.hot import Hot, Row, param
from persist.db.wire import stored_text
from persist.db.work import Work
from persist.errors import NotFound, UnreadableRow

log = logging.getLogger("persist")

ABORTED = "aborted by host restart"

_M, _P = messages.c, parts.c
_COLUMNS = (_P.session_id, _P.message_id, _P.id, _P.type, _P.tool_state, _M.updated_at)
_OF_SESSION = Hot(
    select(*_COLUMNS).join(messages, _M.id == _P.message_id).where(_P.session_id == param("session_id"), IS_UNFINISHED, VISIBLE)
)
_OF_ALL = Hot(select(*_COLUMNS).join(messages, _M.id == _P.message_id).where(IS_UNFINISHED, VISIBLE))
_LATEST = Hot(select(func.max(_P.updated_at)).where(_P.message_id == param("message_id")))
_DATA = Hot(select(stored_text(_P.data_json), _P.tool_state).where(_P.id == param("row_id")).with_for_update())
_EXISTS = Hot(select(sessions.c.id).where(sessions.c.id == param("row_id")))


def repair(work: Work, session_id: str | None, *, idle: timedelta, human_input_tools: frozenset[str]) -> int:
    """The number of parts turned into `output-error`."""
    now = work.now()
    if session_id is None:
        found = [row for row in work.rows(_OF_ALL) if _untouched(work, row, now - idle)]
    else:
        if work.row(_EXISTS, row_id=session_id) is None:
            raise NotFound("session", session_id)
        found = work.rows(_OF_SESSION, session_id=session_id)
    alive: dict[str, bool] = {}
    repaired = 0
    for session, _, part_id, kind, state, _ in found:
        if state == ToolState.APPROVAL_REQUESTED:
            continue
        if session not in alive:
            alive[session] = _is_alive(work, session, now)
        if alive[session]:
            continue
        try:
            part = _unfinished(work, part_id, state)
        except UnreadableRow as error:
            log.warning("an unfinished tool call is left as it is: %s", error)
            continue
        if part is None or tool_name(part) in human_input_tools:
            continue
        data = aborted(part)
        work.run(REWRITE_PART, row_id=part_id, kind=kind, tool=ToolState.OUTPUT_ERROR, data=work.json("part", data), at=now)
        repaired += 1
    if session_id is not None and not _is_alive(work, session_id, now):
        fold_session(work, session_id)
    return repaired


def _unfinished(work: Work, part_id: str, state: str) -> Part | None:
    """The part with all of its input, if it is still in that state."""
    fold(work, part_id)
    row = work.row(_DATA, row_id=part_id)
    return None if row is None or row[1] != state else stored_part(part_id, row[0], work.wire)


def aborted(part: Part) -> Part:
    """The part as an error; a static tool that was still receiving its input keeps what came as `rawInput`."""
    changed = {**part, "state": str(ToolState.OUTPUT_ERROR), "errorText": ABORTED}
    if part.get("state") == ToolState.INPUT_STREAMING and is_dynamic(part):
        changed.pop("rawInput", None)
    changed.pop("preliminary", None)
    return changed


def _untouched(work: Work, row: Row, before: datetime) -> bool:
    latest = work.row(_LATEST, message_id=row[1])
    touched = row[5] if latest is None or latest[0] is None else max(row[5], latest[0])
    return bool(touched <= before)


def _is_alive(work: Work, session_id: str, now: datetime) -> bool:
    turn = turns.read_turn(work, session_id)
    return turn is not None and turn.running(now)
