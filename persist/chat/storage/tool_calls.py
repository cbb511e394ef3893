"""The tool calls of a session's messages, with their instants, which messages do not show."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import select

from persist.chat.models import parts
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

_P = parts.c
_session = _P.session_id == param("of_session"), _P.tool_call_id.is_not(None)
_plain = (_P.id, _P.message_id, _P.type, _P.tool_call_id, _P.tool_state, _P.created_at, _P.updated_at)
_CALLS = Statement(select(*_plain).where(*_session).order_by(_P.message_id, _P.index, _P.id), unreadable=OnUnreadable.LEAVE_OUT)
_WHOLE = Statement(
    select(*_plain, _P.data_json).where(*_session).order_by(_P.message_id, _P.index, _P.id), unreadable=OnUnreadable.LEAVE_OUT
)


class ToolCallPart(NamedTuple):
    """A tool part: `type` is `tool-<name>` or `dynamic-tool`. `data` is the part itself, None if it was not asked for."""

    id: str
    message_id: str
    type: str
    tool_call_id: str
    tool_state: str | None
    created_at: datetime
    updated_at: datetime
    data: dict[str, Any] | None = None


def tool_calls(work: UnitOfWork, session_id: str, *, whole: bool) -> Iterator[ToolCallPart]:
    """The tool parts of a session, in the order of their messages and in these. Unreadable ones are left out."""
    return (ToolCallPart(*row) for row in work.rows(_WHOLE if whole else _CALLS, of_session=session_id))
