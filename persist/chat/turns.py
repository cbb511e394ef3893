"""Whose turn runs in a session: `chat_turns` rows.

A row is written at the first chunk fed and removed at finish, abort and close, so only a dead process leaves one behind.
A row in state `error` does not count as running; it stays until the next recorder starts.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Exists, bindparam, delete, exists, insert, select, update
from sqlalchemy.types import TypeEngine

from persist.chat.models import sessions, turns
from persist.chat.owners import is_stale
from persist.chat.schemas import TurnState
from persist.db.hot import Hot, Statements, param
from persist.db.work import Work
from persist.errors import Conflict, NotFound, PersistError

BEAT_SECONDS = 20.0
_DEAD_AFTER = timedelta(minutes=5)
_NOBODY = "-"

_T = turns.c
_session, _owner = param("of_session"), param("owner_id")
_READ = Hot(select(_T.owner, _T.state, _T.seen_at, _T.message_id).where(_T.session_id == _session))
_HEAD = Hot(select(sessions.c.agent).where(sessions.c.id == _session))
_PIN = Hot(select(sessions.c.id).where(sessions.c.id == _session).with_for_update(read=True, key_share=True))
_RUNNING = Hot(
    select(_T.session_id, _T.owner, _T.seen_at)
    .where(_T.state == TurnState.RUNNING, _T.seen_at < param("before"))
    .order_by(_T.session_id)
)
_CLEAR = Hot(delete(turns).where(_T.session_id == _session, _T.owner == _owner, _T.seen_at == param("seen")))
_INSERT = Hot(insert(turns))
_TAKE = Hot(
    update(turns)
    .where(_T.session_id == _session, _T.owner == param("former"))
    .values(
        owner=_owner,
        message_id=param("message"),
        state=TurnState.RUNNING,
        started_at=param("at"),
        seen_at=param("at2"),
    )
)
_BEAT = Hot(update(turns).where(_T.session_id == _session, _T.owner == _owner).values(seen_at=param("at")), silent=True)
_MARK = Hot(update(turns).where(_T.session_id == _session, _T.owner == _owner).values(state=param("mark")))
_TURN_TO = Hot(update(turns).where(_T.session_id == _session, _T.owner == _owner).values(message_id=param("message")))
_DISOWN = Hot(update(turns).where(_T.session_id == _session, _T.owner == _owner).values(owner=_NOBODY))
_HOLD = Hot(select(_T.owner, _T.state, _T.seen_at, _T.message_id).where(_T.session_id == _session).with_for_update())
_END = Hot(delete(turns).where(_T.session_id == _session, _T.owner == _owner))
_GUARD = Hot(select(_T.owner).where(_T.session_id == _session, _T.owner == _owner).with_for_update())


def owned(text: TypeEngine[str]) -> Exists:
    """A condition for the recorder's statements, with parameters session_id and owner_id: the turn is still ours."""
    ours = _T.session_id == bindparam("session_id", type_=text), _T.owner == bindparam("owner_id", type_=text)
    return exists().where(*ours)


@dataclass(frozen=True, slots=True)
class Turn:
    """A row of chat_turns."""

    owner: str
    state: TurnState
    seen_at: datetime
    message_id: str | None

    def running(self, now: datetime) -> bool:
        """Whether somebody alive is recording."""
        return self.state == TurnState.RUNNING and not is_stale(self.owner, self.seen_at, now)


def session_agent(db: Statements, session_id: str) -> str:
    """The session's agent; NotFound without a session."""
    row = db.row(_HEAD, of_session=session_id)
    if row is None:
        raise NotFound("session", session_id)
    agent: str = row[0]
    return agent


def read_turn(db: Statements, session_id: str) -> Turn | None:
    """The session's turn row, None when it is idle."""
    row = db.row(_READ, of_session=session_id)
    return None if row is None else Turn(*row)


def refuse_running(db: Statements, session_id: str, now: datetime, doing: str) -> None:
    """Conflict while somebody alive is recording in the session."""
    turn = read_turn(db, session_id)
    if turn is not None and turn.running(now):
        raise Conflict(f"{doing} must wait: a turn is running in session {session_id}.", constraint="chat_turns")


def clear_dead(work: Work) -> int:
    """Remove the turns whose process is gone, and that nobody saw for five minutes; how many. No turn means idle."""
    now = work.now()
    rows = work.rows(_RUNNING, before=now - _DEAD_AFTER)
    dead = [(session, owner, seen) for session, owner, seen in rows if is_stale(owner, seen, now)]
    return sum([work.run(_CLEAR, of_session=session, owner_id=owner, seen=seen) for session, owner, seen in dead])


def begin_turn(db: Statements, session_id: str, owner: str, message_id: str | None, now: datetime, *, takeover: bool) -> None:
    """Make the turn ours; Conflict if somebody alive has it and we do not take over. NotFound for a session that goes now."""
    if db.row(_PIN, of_session=session_id) is None:
        raise NotFound("session", session_id)
    turn = read_turn(db, session_id)
    if turn is None:
        db.run(_INSERT, session_id=session_id, message_id=message_id, state="running", owner=owner, started_at=now, seen_at=now)
        return
    if turn.owner != owner and not takeover and turn.running(now):
        raise lost(db, session_id)
    if db.run(_TAKE, of_session=session_id, former=turn.owner, owner_id=owner, message=message_id, at=now, at2=now) != 1:
        raise lost(db, session_id)


def guard(db: Statements, session_id: str, owner: str) -> None:
    """Conflict unless the turn is still ours, and ours until the transaction ends."""
    if db.row(_GUARD, of_session=session_id, owner_id=owner) is None:
        raise lost(db, session_id)


def turn_to(db: Statements, session_id: str, owner: str, message_id: str) -> None:
    """As `guard`, and the turn is about another message from now on."""
    if db.run(_TURN_TO, of_session=session_id, owner_id=owner, message=message_id) != 1:
        raise lost(db, session_id)


def hold_turn(db: Statements, session_id: str) -> Turn | None:
    """The session's turn row; until the transaction ends its recorder writes no more than a piece of text."""
    row = db.row(_HOLD, of_session=session_id)
    return None if row is None else Turn(*row)


def stop_turn(db: Statements, session_id: str, turn: Turn) -> None:
    """Its recorder gets Conflict at its next chunk. What an error says of the session stays."""
    db.run(_END if turn.state == TurnState.RUNNING else _DISOWN, of_session=session_id, owner_id=turn.owner)


def beat(db: Statements, session_id: str, owner: str, now: datetime) -> None:
    """Say that we are alive."""
    db.run(_BEAT, of_session=session_id, owner_id=owner, at=now)


def mark_error(db: Statements, session_id: str, owner: str) -> None:
    """The stream reported an error."""
    db.run(_MARK, of_session=session_id, owner_id=owner, mark=TurnState.ERROR)


def end_turn(db: Statements, session_id: str, owner: str) -> None:
    """Nobody's turn runs any more."""
    db.run(_END, of_session=session_id, owner_id=owner)


def lost(db: Statements, session_id: str) -> PersistError:
    """Why the turn is not ours: another recorder has it, it was ended, or the session was deleted."""
    if db.row(_HEAD, of_session=session_id) is None:
        return NotFound("session", session_id)
    turn = read_turn(db, session_id)
    if turn is None or turn.owner == _NOBODY:
        return Conflict(
            f"This recorder's turn in session {session_id} was ended: a rewind hid its message, or it was taken for dead.",
            constraint="chat_turns",
        )
    return Conflict(
        f"Another recorder is running in session {session_id}; wait for it, or record with takeover=True.",
        constraint="chat_turns",
    )
