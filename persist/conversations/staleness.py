"""Sessions with status running that have gone silent: found in a snapshot, ended if they still are when written."""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from persist.conversations.repository import Conversations
from persist.conversations.schemas import ConvSession, Status
from persist.db.values.arguments import check_choice, check_timedelta
from persist.db.values.clock import as_utc
from persist.errors import InvalidValue, NotFound, UnreadableRow

log = logging.getLogger("persist")
DAY = timedelta(hours=24)
ENDS = (Status.ABORTED, Status.FAILED)
"""The statuses that `end_stale` may set."""
ACTOR = "doctor"
_PAGE = 1000


def stale_sessions(conversations: Conversations, *, now: datetime, older_than: timedelta = DAY) -> list[ConvSession]:
    """Running sessions that did not start, resume or record a message for `older_than` before `now`, or whose start is unknown.

    `conversations` may come from any transaction.
    """
    try:
        began = as_utc("now", now) - check_timedelta("older_than", older_than)
    except OverflowError:
        raise InvalidValue("older_than", "it reaches back before the year 1.") from None
    found: list[ConvSession] = []
    cursor: str | None = None
    while True:
        page = conversations.sessions.list(status=Status.RUNNING, limit=_PAGE, after=cursor)
        found += [session for session in page.items if _was_silent(conversations, session, began)]
        cursor = page.cursor
        if cursor is None:
            return found


def _was_silent(conversations: Conversations, session: ConvSession, since: datetime) -> bool:
    if any(at is not None and at >= since for at in (session.started_at, session.last_message_at)):
        return False
    # a session that ended and was resumed counts from its resumption, not from started_at
    last = next(reversed(conversations.sessions.transitions(session.id)), None)
    return last is None or last.previous_status is None or last.created_at < since


def end_stale(
    conversations: Conversations, stale: Iterable[ConvSession], *, status: str = Status.ABORTED, reason: str | None = None
) -> list[str]:
    """Set the sessions that still run and are still silent to aborted, or to failed; return their ids.

    A session that ended since then keeps its status; one that recorded a message since then keeps running.
    """
    word = check_choice("status", status, Status)
    if word not in ENDS:
        raise InvalidValue("status", f"expected one of {', '.join(ENDS)}.")
    ended = []
    for session in stale:
        try:
            if conversations.sessions.get(session.id).last_message_at != session.last_message_at:
                continue
            if conversations.sessions.set_status(
                session.id, word, expected=[Status.RUNNING], reason=reason, source="admin", actor=ACTOR
            ):
                ended.append(session.id)
        except NotFound:
            continue  # deleted in between
        except UnreadableRow as error:
            log.warning("the session %s is left as it is: %s", session.id, error)
    return ended
