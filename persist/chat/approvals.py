"""Answering a tool's approval request."""

from sqlalchemy import select

from persist.chat.models import IS_UNFINISHED, VISIBLE, messages, parts
from persist.chat.parts import is_part
from persist.chat.posting import lock_session
from persist.chat.schemas import ToolState
from persist.chat.statements import REWRITE_PART
from persist.db.hot import Hot, param
from persist.db.spoilt import Spoilt
from persist.db.work import Work
from persist.errors import InvalidValue

_M, _P = messages.c, parts.c
_REQUESTED = Hot(
    select(_P.id, _P.type, _P.data_json)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == param("session_id"), IS_UNFINISHED, _P.tool_state == ToolState.APPROVAL_REQUESTED, VISIBLE)
    .order_by(_M.created_at.desc(), _M.id.desc(), _P.index.desc()),
    spoilt=Spoilt.LEAVE_OUT,
)


def answer(work: Work, session_id: str, approval_id: str, *, approved: bool, reason: str | None) -> bool:
    """approval-requested -> approval-responded with {id, approved[, reason]}; False without such an open approval."""
    if type(approved) is not bool:
        raise InvalidValue("approved", "expected True or False.")
    if reason is not None:
        work.body("reason", reason)
    lock_session(work, session_id)
    for id, kind, data in work.rows(_REQUESTED, session_id=session_id):
        approval = data.get("approval") if is_part(data) else None
        if not isinstance(approval, dict) or approval.get("id") != approval_id:
            continue
        said = {"id": approval_id, "approved": approved} | ({} if reason is None else {"reason": reason})
        answered = {**data, "state": str(ToolState.APPROVAL_RESPONDED), "approval": {**approval, **said}}
        text = work.json("approval", answered)
        work.run(REWRITE_PART, row_id=id, kind=kind, tool=ToolState.APPROVAL_RESPONDED, data=text, at=work.now())
        return True
    return False
