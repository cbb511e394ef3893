"""Answering a tool's approval request."""

from sqlalchemy import select

from persist.chat.models import IS_UNFINISHED, VISIBLE, messages, parts
from persist.chat.reducer.parts import is_part
from persist.chat.reducer.tool_parts import approval_id as approval_of
from persist.chat.reducer.tool_parts import with_approval_response
from persist.chat.schemas import ToolState
from persist.chat.storage.statements import LOCK_SESSION, REWRITE_PART
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import InvalidValue, NotFound

_M, _P = messages.c, parts.c
_REQUESTED = Statement(
    select(_P.id, _P.type, _P.data_json)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == param("session_id"), IS_UNFINISHED, _P.tool_state == ToolState.APPROVAL_REQUESTED, VISIBLE)
    .order_by(_M.created_at.desc(), _M.id.desc(), _P.index.desc()),
    unreadable=OnUnreadable.LEAVE_OUT,
)


def answer(work: UnitOfWork, session_id: str, approval_id: str, *, approved: bool, reason: str | None) -> bool:
    """Move a tool part from approval-requested to approval-responded. False if no such approval is open."""
    if type(approved) is not bool:
        raise InvalidValue("approved", "expected True or False.")
    if reason is not None:
        work.body("reason", reason)
    with work.batch() as batch:
        session = batch.row(LOCK_SESSION, row_id=session_id)
        requested = batch.rows(_REQUESTED, session_id=session_id)
    if session.result is None:
        raise NotFound("session", session_id)
    for id, kind, data in requested.result:
        if not is_part(data) or approval_of(data) != approval_id:
            continue
        response = {"approvalId": approval_id, "approved": approved} | ({} if reason is None else {"reason": reason})
        answered = with_approval_response(data, response)
        text = work.json("approval", answered)
        with work.batch(last=True) as batch:
            batch.run(
                REWRITE_PART, row_id=id, new_type=kind, new_tool_state=ToolState.APPROVAL_RESPONDED, data=text, at=work.now()
            )
        return True
    return False
