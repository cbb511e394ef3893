"""What goes on in the chats of all sessions now: turns that are being written, and tool calls that wait for a person."""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import and_, literal_column, or_, select

from persist.chat.models import IS_UNFINISHED, TITLE, VISIBLE, messages, parts, sessions, turns
from persist.chat.schemas import ToolState, TurnState
from persist.chat.storage.statements import STALE_AFTER, is_stale
from persist.db.statements.prepared import LIMIT, Statement, among, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

MOST = 10_000
"""How many unfinished tool calls are looked at for the oldest ones."""
_M, _P, _S, _T = messages.c, parts.c, sessions.c, turns.c
_TURNS = Statement(
    select(_T.owner, _T.seen_at, _T.session_id, _T.message_id, _T.started_at, _T.stop_requested_at, _S.agent, _S.owner, TITLE)
    .join(sessions, _S.id == _T.session_id)
    .where(_T.state == TurnState.RUNNING)
    .order_by(_T.started_at, _T.session_id)
    .limit(LIMIT),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_open = select(_P.id, _P.session_id, _P.message_id, _P.tool_state, _P.updated_at).where(IS_UNFINISHED)
_some = _open.limit(literal_column(str(MOST))).subquery("some")
_goes_on = and_(_T.state == TurnState.RUNNING, _T.seen_at >= param("alive_since"))
_oldest = (
    select(_some.c.id, _some.c.updated_at)
    .join(messages, _M.id == _some.c.message_id)
    .where(
        VISIBLE,
        or_(
            _some.c.tool_state == ToolState.APPROVAL_REQUESTED,
            and_(
                _some.c.tool_state == ToolState.INPUT_AVAILABLE,
                ~select(_T.session_id).where(_T.session_id == _some.c.session_id, _goes_on).exists(),
            ),
        ),
    )
    .order_by(_some.c.updated_at, _some.c.id)
    .limit(LIMIT)
    .subquery("oldest")
)
_WAITING = Statement(
    select(_P.session_id, _P.message_id, _P.tool_call_id, _P.tool_state, _P.updated_at, _S.agent, _S.owner, TITLE, _P.data_json)
    .join(_oldest, _oldest.c.id == _P.id)
    .join(sessions, _S.id == _P.session_id)
    .where(among(_P.tool_state, (ToolState.APPROVAL_REQUESTED, ToolState.INPUT_AVAILABLE)))
    .order_by(_oldest.c.updated_at, _oldest.c.id),
    unreadable=OnUnreadable.LEAVE_OUT,
)


class SpeakingTurn(NamedTuple):
    """A turn whose recorder is alive."""

    session_id: str
    message_id: str | None
    started_at: datetime
    stop_requested_at: datetime | None
    agent: str
    owner: str | None
    title: str | None


class WaitingCall(NamedTuple):
    """A visible tool call that no turn goes on with by itself: an open approval, or a call without a result.

    since    when it came into its state
    data     the part, as another program may have stored it: of any kind
    """

    session_id: str
    message_id: str
    tool_call_id: str | None
    state: str
    since: datetime
    agent: str
    owner: str | None
    title: str | None
    data: Any


def speaking(work: UnitOfWork, limit: int) -> list[SpeakingTurn]:
    """The turns that are being written, the first that began coming first."""
    now = work.now()
    rows = work.rows(_TURNS, limit=limit)
    return [SpeakingTurn(*row[2:]) for row in rows if not is_stale(row[0], row[1], now)]


def waiting_calls(work: UnitOfWork, limit: int) -> list[WaitingCall]:
    """The tool calls that wait for a person, those that wait longest coming first."""
    return [WaitingCall(*row) for row in work.rows(_WAITING, alive_since=work.now() - STALE_AFTER, limit=limit)]
