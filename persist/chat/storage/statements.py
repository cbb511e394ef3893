"""Statements used by several modules of chat. The parameter `row_id` is the row's id."""

from sqlalchemy import insert, or_, select, update

from persist.chat.models import messages, parts, sessions
from persist.db.statements.prepared import Statement, param

_S, _M, _P = sessions.c, messages.c, parts.c
_id = param("row_id")

LOCK_SESSION = Statement(select(_S.id).where(_S.id == _id).with_for_update())
"""Lock the session against other writers until the transaction ends. No row without the session."""

# Skipped if updated in this millisecond: loading a history would otherwise write the row and three indexes for each message.
TOUCH_SESSION = Statement(update(sessions).where(_S.id == _id, _S.updated_at != param("at")).values(updated_at=param("at")))
TOUCH_SESSION_AFTER = Statement(
    update(sessions)
    .where(_S.id == _id, or_(_S.updated_at < param("before"), _S.updated_at > param("at")))
    .values(updated_at=param("at"))
)
"""Set the session's instant if the stored one is older than `before`: its indexes are not written for each chunk of an answer."""
SET_MODEL = Statement(update(sessions).where(_S.id == _id).values(model_json=param("model"), updated_at=param("at")))

INSERT_MESSAGE = Statement(insert(messages))
SET_METADATA = Statement(update(messages).where(_M.id == _id).values(metadata_json=param("metadata"), updated_at=param("at")))

INSERT_PART = Statement(insert(parts))
REWRITE_PART = Statement(
    update(parts)
    .where(_P.id == _id)
    .values(type=param("new_type"), tool_state=param("new_tool_state"), data_json=param("data"), updated_at=param("at"))
)
FOLD_PART = Statement(update(parts).where(_P.id == _id).values(data_json=param("data")), silent=True)
"""Store a part's data after a fold. `updated_at` stays the instant of the last structural chunk."""
