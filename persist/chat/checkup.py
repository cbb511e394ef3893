"""Findings of `persist doctor` in chats: turns of dead processes, unfolded text, and tool calls that will get no result."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Text, cast, func, select

from persist.chat.models import IS_UNFINISHED, VISIBLE, deltas, messages, part_blobs, parts, turns
from persist.chat.recording.recovery import old_before
from persist.chat.schemas import ToolState, TurnState
from persist.chat.storage.files import FILE_TYPES, STORED, referred
from persist.chat.storage.folding import PART_ID, fold_each, has_deltas, log_left_unfolded, part_ids
from persist.chat.storage.stored_json import stored_objects
from persist.chat.storage.turns import TURN, Turn, end_turn, read_turn
from persist.db.dialects.findings import Problem, Severity
from persist.db.expressions.json_text import json_text, stored_text
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import UnreadableRow

_IDLE = timedelta(minutes=5)
_WAITS_FOR_PERSON = ToolState.APPROVAL_REQUESTED
_T, _P, _D = turns.c, parts.c, deltas.c
_RUNNING = select(_T.session_id, *TURN).where(_T.state == TurnState.RUNNING)
_UNFOLDED = (
    select(PART_ID, stored_text(_P.session_id))
    .outerjoin(parts, _P.id == _D.part_id)
    .group_by(_P.session_id, _D.part_id)
    .order_by(_D.part_id)
)
_CALLS = (
    select(_P.session_id, _P.id, _P.type, _P.tool_state)
    .join(messages, messages.c.id == _P.message_id)
    .where(IS_UNFINISHED, VISIBLE, _P.tool_state != _WAITS_FOR_PERSON)
    .order_by(_P.session_id, _P.id)
)
_FILED = (
    select(_P.id, _P.session_id, json_text(_P.data_json))
    .outerjoin(part_blobs, part_blobs.c.part_id == _P.id)
    .where(_P.type.in_(FILE_TYPES), part_blobs.c.part_id.is_(None), cast(_P.data_json, Text).contains(STORED))
    .order_by(_P.id)
)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """The findings; sessions with a running turn are skipped."""
    now = work.now()
    alive: set[str] = set()
    dead: list[tuple[str, str]] = []
    running: Iterable[Any] = work.found(_RUNNING.order_by(_T.session_id), unreadable=OnUnreadable.LEAVE_OUT)
    for session, *columns in running:
        turn = Turn(*columns)
        if turn.running(now):
            alive.add(session)
        else:
            dead.append((session, turn.owner))
    for session, owner in dead:
        message = f"its turn says running, and {owner} is gone; the next recorder takes over, and so does --fix."
        yield Problem("turn_dead", Severity.WARNING, f"session {session}", message, partial(_drop, session=session))
    yield from _unfolded(work, alive, old_before(now))
    for part, session, text in work.found(_FILED, unreadable=OnUnreadable.LEAVE_OUT):
        if any(data is not None and referred(data) is not None for data in stored_objects([text])):
            message = f"{part} looks as if its file were a blob, and names none: it is shown as it is stored."
            yield Problem("file_unnamed", Severity.WARNING, f"session {session}", message)
    calls: Iterable[Any] = work.found(_CALLS.where(_P.updated_at < now - _IDLE), unreadable=OnUnreadable.LEAVE_OUT)
    for session, part, kind, state in calls:
        if session not in alive:
            message = (
                f"{part} ({kind}) is still {state} and no turn runs: messages.repair_interrupted ends it, or resume the turn."
            )
            yield Problem("tool_call_orphaned", Severity.WARNING, f"session {session}", message)


def _unfolded(work: UnitOfWork, alive: set[str], before: datetime) -> Iterator[Problem]:
    skipped = {session.encode() for session in alive} | alive
    rows: Iterable[Any] = work.select(_UNFOLDED.having(func.max(_D.created_at) < before)).all()
    unreadable: list[UnreadableRow] = []
    unfolded = []
    for part in part_ids([(part,) for part, session in rows if session not in skipped], unreadable.append):
        try:
            unfolded += [part] if has_deltas(work, part) else []
        except UnreadableRow as error:
            unreadable.append(error)
    for failure in unreadable:
        yield Problem("tail_unreadable", Severity.ERROR, "table chat_part_deltas", f"text waits that cannot be folded: {failure}")
    if unfolded:
        message = f"parts whose latest text is not folded; it is shown, but takes longer to read: {len(unfolded):,}."
        yield Problem("tails_unfolded", Severity.INFO, "table chat_part_deltas", message, partial(_fold, parts=unfolded))


def _fold(work: UnitOfWork, *, parts: list[str]) -> None:
    fold_each(work, parts, log_left_unfolded)


def _drop(work: UnitOfWork, *, session: str) -> None:
    turn = read_turn(work, session)
    if turn is not None and turn.state == TurnState.RUNNING and not turn.running(work.now()):
        end_turn(work, session, turn.owner)
