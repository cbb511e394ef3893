"""What several modules of chat read: statements, tool calls, and how long a silent recorder counts as alive."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Text, Update, bindparam, cast, insert, or_, select, update

from persist.chat.models import messages, parts, sessions
from persist.db.concurrency import ownership
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

# When a recorder that is silent counts as dead: every interval in one place, since each one rests on the one before it.

HEARTBEAT = timedelta(seconds=20)
"""How often a running recorder updates its turn's `seen_at`, even if its stream sends nothing."""
STALE_AFTER = 3 * HEARTBEAT
"""A turn not seen for this long has missed three heartbeats: where its process cannot be examined, others may take it over."""
CLEAR_AFTER = 5 * STALE_AFTER
"""Maintenance deletes the row of a stale turn only after this time, when clocks that differ a little no longer matter."""
LEFT_AFTER = timedelta(seconds=5)
"""Deltas older than this were left by a dead recorder: a running one folds its own after `Settings.fold_ms`, usually 250 ms."""


def is_stale(owner: str, seen_at: datetime, now: datetime) -> bool:
    """Whether the owner is known to be gone or, where that cannot be known, was not seen for STALE_AFTER."""
    return ownership.is_stale(owner, seen_at, now, STALE_AFTER)


# The tool calls of a session's messages, with their instants, which messages do not show.

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


# Statements used by several modules of chat. The parameter `row_id` is the row's id.

_S = sessions.c
_M = messages.c
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
