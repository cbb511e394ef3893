"""What an export of a conversation holds: its branches, their progressions and every message that these name."""

from sqlalchemy import or_, select, union

from persist.conversations.models import branches, members, message_types, messages, progressions, sessions, transitions
from persist.db.operations.exporting import Exported, Rows, the_id

_B, _F, _M, _P, _S, _T = branches.c, members.c, messages.c, progressions.c, sessions.c, transitions.c

_branch_ids = select(_B.id).where(_B.session_id == the_id())
_progressions = union(
    select(_S.progression_id).where(_S.id == the_id()), select(_B.progression_id).where(_B.session_id == the_id())
)
_named = union(
    select(_F.message_id).where(_F.progression_id.in_(_progressions)),
    select(_S.first_msg_id).where(_S.id == the_id()),
    select(_S.last_msg_id).where(_S.id == the_id()),
    select(_B.system_msg_id).where(_B.session_id == the_id()),
)

SESSION = Exported(
    "conversation",
    _S.id,
    (
        Rows(
            message_types,
            message_types.c.type_id.in_(select(_M.lion_class).where(_M.id.in_(_named))),
            (message_types.c.type_id,),
            shared=True,
        ),
        Rows(messages, _M.id.in_(_named), (_M.id,), shared=True),
        Rows(progressions, _P.id.in_(_progressions), (_P.id,)),
        Rows(members, _F.progression_id.in_(_progressions), (_F.progression_id, _F.ord)),
        Rows(sessions, _S.id == the_id(), (_S.id,)),
        Rows(branches, _B.session_id == the_id(), (_B.created_at, _B.id)),
        Rows(  # status transitions outlive the session
            transitions,
            or_(_T.entity_id == the_id(), _T.entity_id.in_(_branch_ids)),
            (_T.created_at, _T.id),
            shared=True,
        ),
    ),
)
"""The rows of a conversation's export. Exchange items are left out: their `seq` orders the whole database."""
