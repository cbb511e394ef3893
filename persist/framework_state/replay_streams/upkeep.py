"""Upkeep of replay streams: sessions of clients, with the messages that were stored for them."""

from collections.abc import Iterator

from sqlalchemy import select

from persist.db.dialects.interface import Problem, Severity
from persist.db.expressions.keyset import behind
from persist.db.operations.erasing import SESSION, equal
from persist.db.operations.upkeep import Upkeep, aged, erasable, exported
from persist.db.schema.base import json_text
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import named
from persist.framework_state.replay_streams.models import SESSIONS, messages, sessions

_M = messages.c
_PAGE = 500
_NEXT = (
    select(_M.session_id, _M.id, _M.message)
    .where(_M.message.is_not(None), behind((_M.session_id, _M.id), ("in_session", "after")))
    .order_by(_M.session_id, _M.id)
    .limit(_PAGE)
)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each damaged message that begins as a JSON object; other text is allowed. Reads page by page."""
    place = {"in_session": "", "after": ""}
    while page := work.found(_NEXT, place, unreadable=OnUnreadable.LEAVE_OUT):
        for session_id, id, message in page:
            if message.startswith("{") and json_text(message) is not None:
                said = f"its JSON is damaged, so that a server of MCP does not send it again to {named(session_id)}."
                yield Problem("replay_message", Severity.WARNING, f"replay message {id}", said)
        place = {"in_session": page[-1][0], "after": page[-1][1]}


UPKEEP = Upkeep(
    prunings=(aged(SESSIONS, sessions.c.updated_at),),
    erasables=(erasable(SESSIONS, {SESSION: equal(sessions.c.id)}),),
    exports=(exported(SESSIONS, "replay session"),),
    checkup=checkup,
)
