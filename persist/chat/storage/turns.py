"""Turns: which recorder owns a session, as rows of `chat_turns`.

A row is inserted at the first chunk and deleted at finish, abort and close, so only a dead process leaves one behind.
A row in state `error` does not count as running; it stays until the next recorder starts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Exists, Text, bindparam, delete, exists, insert, select, update
from sqlalchemy.types import TypeEngine

from persist.chat.models import sessions, turns
from persist.chat.schemas import TurnState
from persist.chat.storage.statements import CLEAR_AFTER, is_stale
from persist.db.changes.batch import Batch, Requirement, StatementRunner
from persist.db.schema.column_types import among_labels
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import Conflict, NotFound, PersistError

_NO_OWNER = "-"
_T = turns.c
_session, _owner = param("of_session"), bindparam("owner_id", type_=Text())
_ours = _T.session_id == bindparam("of_session", type_=Text()), _T.owner == _owner
"""A turn by its session and owner. A recorder's ids are known to be labels: as plain Text they skip the checks of that type."""
TURN = (_T.owner, _T.state, _T.seen_at, _T.message_id, _T.started_at, _T.stop_requested_at)
"""The columns of a Turn."""
_OF_SESSIONS = Statement(
    select(_T.session_id, *TURN).where(among_labels(_T.session_id, "ids")), unreadable=OnUnreadable.LEAVE_OUT
)
READ_TURN = Statement(select(*TURN).where(_T.session_id == _session))
_HEAD = Statement(select(sessions.c.agent, sessions.c.owner).where(sessions.c.id == _session))
LOCK_SESSION_SHARED = Statement(select(sessions.c.id).where(sessions.c.id == _session).with_for_update(read=True, key_share=True))
_RUNNING = Statement(
    select(_T.session_id, _T.owner, _T.seen_at)
    .where(_T.state == TurnState.RUNNING, _T.seen_at < param("before"))
    .order_by(_T.session_id)
)
_DELETE_DEAD = Statement(delete(turns).where(*_ours, _T.seen_at == param("seen")))
_INSERT = Statement(insert(turns))
_REPLACE = Statement(
    update(turns)
    .where(_T.session_id == _session, _T.owner == param("former"))
    .values(
        owner=_owner,
        message_id=param("message"),
        state=TurnState.RUNNING,
        started_at=param("at"),
        seen_at=param("at2"),
        stop_requested_at=None,
    )
)
_SET_SEEN = Statement(update(turns).where(*_ours).values(seen_at=param("at")), silent=True)
_SET_STATE = Statement(update(turns).where(*_ours).values(state=param("new_state")))
_TURN_TO = Statement(update(turns).where(*_ours).values(message_id=param("message")))
_DISOWN = Statement(update(turns).where(*_ours).values(owner=_NO_OWNER))
_ASK_TO_STOP = Statement(update(turns).where(*_ours, _T.stop_requested_at.is_(None)).values(stop_requested_at=param("at")))
LOCK_TURN = Statement(select(*TURN).where(_T.session_id == _session).with_for_update())
"""The session's turn, locked: until the transaction ends, its recorder can insert deltas and nothing else."""
_END = Statement(delete(turns).where(*_ours))
_owned = select(_T.owner).where(*_ours)
_OWNED = Statement(_owned)
REQUIRE_OWN_TURN = Requirement(_owned.with_for_update())
"""The turn of `owner_id`, locked until the transaction ends."""


def owned(text: TypeEngine[str]) -> Exists:
    """A condition for the recorder's statements, with parameters session_id and owner_id: that owner still has the turn."""
    ours = _T.session_id == bindparam("session_id", type_=text), _T.owner == bindparam("owner_id", type_=text)
    return exists().where(*ours)


@dataclass(frozen=True, slots=True)
class Turn:
    """A row of chat_turns."""

    owner: str
    state: TurnState
    seen_at: datetime
    message_id: str | None
    started_at: datetime
    stop_requested_at: datetime | None

    def running(self, now: datetime) -> bool:
        """Whether a live recorder owns the turn."""
        return self.state == TurnState.RUNNING and not is_stale(self.owner, self.seen_at, now)


def session_agent(db: StatementRunner, session_id: str, *, last: bool = True) -> tuple[str, str | None, Turn | None]:
    """The session's agent and owner, and its turn. Raises NotFound without the session."""
    with db.batch(last=last) as batch:
        head = batch.row(_HEAD, of_session=session_id)
        turn = batch.row(READ_TURN, of_session=session_id)
    agent, owner, *_ = head.must_exist("session", session_id)
    return agent, owner, turn_of(turn.result)


def read_turn(db: StatementRunner, session_id: str) -> Turn | None:
    """The session's turn, None if it is idle."""
    return turn_of(db.row(READ_TURN, of_session=session_id))


def turn_of(row: Row | None) -> Turn | None:
    """The turn of a row of READ_TURN; None without one."""
    return None if row is None else Turn(*row)


def running_sessions(rows: Iterable[Row], now: datetime) -> set[str]:
    """The sessions in which a live recorder owns the turn, of rows of a session's id and TURN."""
    return {session_id for session_id, *row in rows if Turn(*row).running(now)}


def running_among(work: UnitOfWork, ids: Sequence[str]) -> set[str]:
    """The sessions of the list in which a live recorder owns the turn."""
    return running_sessions(work.rows(_OF_SESSIONS, ids=ids), work.now())


def refuse(turn: Turn | None, session_id: str, now: datetime, doing: str) -> None:
    """Raise Conflict if this turn of the session is running. `doing` begins its message."""
    if turn is not None and turn.running(now):
        raise Conflict(f"{doing} must wait: a turn is running in session {session_id}.", constraint="chat_turns")


def clear_dead(work: UnitOfWork) -> int:
    """Delete turns whose process is gone and whose last heartbeat is older than CLEAR_AFTER; the number deleted."""
    now = work.now()
    rows = work.rows(_RUNNING, before=now - CLEAR_AFTER)
    dead = [(session, owner, seen) for session, owner, seen in rows if is_stale(owner, seen, now)]
    return sum([work.run(_DELETE_DEAD, of_session=session, owner_id=owner, seen=seen) for session, owner, seen in dead])


def former_turn(db: StatementRunner, session_id: str, owner: str, now: datetime, *, takeover: bool) -> Turn | None:
    """The turn that `begin_turn` may replace. Raises Conflict if another recorder runs it and not `takeover`, or NotFound."""
    with db.batch() as batch:
        session = batch.row(LOCK_SESSION_SHARED, of_session=session_id)
        row = batch.row(READ_TURN, of_session=session_id)
    session.must_exist("session", session_id)
    turn = turn_of(row.result)
    if turn is not None and turn.owner != owner and not takeover and turn.running(now):
        raise lost_turn_error(db, session_id)
    return turn


def begin_turn(batch: Batch, session_id: str, owner: str, message_id: str | None, now: datetime, *, former: Turn | None) -> None:
    """Give `owner` the turn, which is still that of `former`."""
    if former is None:
        batch.run(
            _INSERT,
            session_id=session_id,
            message_id=message_id,
            state="running",
            owner=owner,
            started_at=now,
            seen_at=now,
            stop_requested_at=None,
        )
    else:
        values = {"former": former.owner, "message": message_id, "at": now, "at2": now}
        batch.run_required(_REPLACE, REQUIRE_OWN_TURN, of_session=session_id, owner_id=owner, **values)


def guard(batch: Batch, session_id: str, owner: str) -> None:
    """Lock the turn's row until the transaction ends. Raises RequirementMissed unless `owner` still owns it."""
    batch.require(REQUIRE_OWN_TURN, of_session=session_id, owner_id=owner)


def owns(db: StatementRunner, session_id: str, owner: str) -> bool:
    """Whether `owner` still owns the turn."""
    return db.row(_OWNED, of_session=session_id, owner_id=owner) is not None


def turn_to(batch: Batch, session_id: str, owner: str, message_id: str) -> None:
    """Set the turn's message. Raises RequirementMissed unless `owner` still owns the turn."""
    batch.run_required(_TURN_TO, REQUIRE_OWN_TURN, of_session=session_id, owner_id=owner, message=message_id)


def stop_turn(db: Batch, session_id: str, turn: Turn) -> None:
    """End another recorder's turn: that recorder gets Conflict at its next chunk. A row in state `error` stays."""
    db.run(_END if turn.state == TurnState.RUNNING else _DISOWN, of_session=session_id, owner_id=turn.owner)


def request_stop(work: UnitOfWork, session_id: str, now: datetime) -> bool:
    """Note in the running turn's row that it shall stop; False if no turn runs. Raises NotFound without the session."""
    with work.batch() as batch:
        head = batch.row(_HEAD, of_session=session_id)
        row = batch.row(LOCK_TURN, of_session=session_id)
    head.must_exist("session", session_id)
    turn = turn_of(row.result)
    if turn is None or not turn.running(now):
        return False
    work.run_last(_ASK_TO_STOP, of_session=session_id, owner_id=turn.owner, at=now)
    return True


def heartbeat(db: StatementRunner, session_id: str, owner: str, now: datetime) -> None:
    """Update the turn's `seen_at`, which shows other processes that the recorder is alive."""
    with db.batch(last=True) as batch:
        batch.run(_SET_SEEN, of_session=session_id, owner_id=owner, at=now)


def mark_error(db: Batch, session_id: str, owner: str) -> None:
    """Set the turn's state to error: the stream reported one."""
    db.run(_SET_STATE, of_session=session_id, owner_id=owner, new_state=TurnState.ERROR)


def end_turn(db: StatementRunner | Batch, session_id: str, owner: str) -> None:
    """Delete the turn's row: the session is idle."""
    db.run(_END, of_session=session_id, owner_id=owner)


def end_own_turn(batch: Batch, session_id: str, owner: str) -> None:
    """Delete the turn's row in a batch of one writer. Raises RequirementMissed unless `owner` still owns it."""
    batch.run_required(_END, REQUIRE_OWN_TURN, of_session=session_id, owner_id=owner)


def lost_turn_error(db: StatementRunner, session_id: str) -> PersistError:
    """The error for a recorder without the turn: another recorder has it, it was ended, or the session was deleted (NotFound)."""
    if db.row(_HEAD, of_session=session_id) is None:
        return NotFound("session", session_id)
    turn = read_turn(db, session_id)
    if turn is None or turn.owner == _NO_OWNER:
        return Conflict(
            f"This recorder's turn in session {session_id} was ended: a rewind hid its message, or it was taken for dead.",
            constraint="chat_turns",
        )
    return Conflict(
        f"Another recorder is running in session {session_id}; wait for it, or record with takeover=True.",
        constraint="chat_turns",
    )
