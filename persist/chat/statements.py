"""Statements that several modules of chat run: one text, compiled once per store. `row_id` names the row."""

from sqlalchemy import insert, update

from persist.chat.models import messages, parts, sessions
from persist.db.hot import Hot, param

_S, _M, _P = sessions.c, messages.c, parts.c
_id = param("row_id")

# Not where it was used in this very millisecond: whoever loads a history would write a row and three indexes for each message.
TOUCH_SESSION = Hot(update(sessions).where(_S.id == _id, _S.updated_at != param("at")).values(updated_at=param("at")))
SET_MODEL = Hot(update(sessions).where(_S.id == _id).values(model_json=param("model"), updated_at=param("at")))

INSERT_MESSAGE = Hot(insert(messages))
SET_METADATA = Hot(update(messages).where(_M.id == _id).values(metadata_json=param("metadata"), updated_at=param("at")))

INSERT_PART = Hot(insert(parts))
REWRITE_PART = Hot(
    update(parts)
    .where(_P.id == _id)
    .values(type=param("kind"), tool_state=param("tool"), data_json=param("data"), updated_at=param("at"))
)
FOLD_PART = Hot(update(parts).where(_P.id == _id).values(data_json=param("data")), silent=True)
"""As REWRITE_PART, for text alone: `updated_at` stays the instant of the last structural chunk."""
