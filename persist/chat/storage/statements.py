"""Statements used by several modules of chat. The parameter `row_id` is the row's id."""

from typing import Any

from sqlalchemy import Text, Update, bindparam, cast, insert, or_, select, update

from persist.chat.models import messages, parts, sessions
from persist.db.statements.prepared import Statement, param

_S, _M, _P = sessions.c, messages.c, parts.c
_id = param("row_id")

LOCK_SESSION = Statement(select(_S.id).where(_S.id == _id).with_for_update())
"""Lock the session against other writers until the transaction ends. No row without the session."""

_OUTDATED = or_(_S.updated_at < param("before"), _S.updated_at > param("at"))
_model = bindparam("model", type_=_S.model_json.type)


def touching(*conditions: Any) -> Update:
    """An UPDATE of a session's instant, if the stored one is older than `before`: its indexes are not written for every chunk."""
    return update(sessions).where(_S.id == _id, _OUTDATED, *conditions).values(updated_at=param("at"))


def setting_model(*conditions: Any) -> Update:
    """An UPDATE of a session's model and instant, if the model is another one or the stored instant is older than `before`."""
    other = cast(_S.model_json, Text) != cast(_model, Text)
    return (
        update(sessions)
        .where(_S.id == _id, or_(other, _OUTDATED), *conditions)
        .values(model_json=param("model"), updated_at=param("at"))
    )


TOUCH_SESSION = Statement(touching())
SET_MODEL = Statement(setting_model())

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
