"""`tx.messaging`: a user's session in a channel or thread, reused until a pause is longer than the idle time; its messages."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, bindparam, delete, false, func, insert, select, update
from sqlalchemy.sql.expression import ColumnElement

from persist.db.expressions.keyset import behind
from persist.db.expressions.upsert import insert_missing, insert_where, merging
from persist.db.operations.keyset import Keyset
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import Domain, F, Repository, on_demand, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import check_choice, check_flag, check_timedelta, optional_count, optional_label
from persist.db.values.clock import instant_before
from persist.db.values.frozen import construct
from persist.db.values.pages import Page, check_limit
from persist.errors import Conflict, NotFound
from persist.messaging.models import DELIVERED_ONCE, IS_ACTIVE, SAME_THREAD, messages, sessions
from persist.messaging.schemas import MessagingMessage, MessagingRole, MessagingSession

IDLE = timedelta(minutes=30)
"""A session without activity for longer is stale."""
KEPT = timedelta(days=7)
"""An inactive session without activity for longer may be cleaned up."""
_MILLISECOND = timedelta(milliseconds=1)
_TRIES = 8
_S = sessions.c
_SESSION = Values(MessagingSession, sessions)


def _param(name: str, column: ColumnElement[Any]) -> ColumnElement[Any]:
    return bindparam(name, type_=column.type)


_id = param("row_id")
_newest_first = _S.last_activity_at.desc(), _S.id.desc()
# The same expression as in the unique index, so that the query uses it and finds the row that an insert conflicts with.
_in_thread = (
    _S.platform == param("key_platform"),
    _S.channel_id == param("key_channel"),
    _param("key_thread", _S.thread_id) == SAME_THREAD,
    IS_ACTIVE,
)
_of_key = (*_in_thread, _S.user_id == param("key_user"))
_LATEST = Keyset(
    "messaging.sessions",
    _SESSION,
    (_S.last_activity_at, _S.id),
    {
        # There are few platforms: reading sessions in index order is faster than finding one platform's and sorting them.
        # coalesce() keeps the planner from using an index on the column.
        "platform": func.coalesce(_S.platform, "") == _param("platform", _S.platform),
        "active": _S.active == param("active"),
    },
)
_GET = Statement(select(*_SESSION.columns).where(_S.id == _id))
_OF_KEY = Statement(select(*_SESSION.columns).where(*_of_key).order_by(*_newest_first).limit(1))
_LOCK_OF_KEY = Statement(select(*_SESSION.columns).where(*_of_key).order_by(*_newest_first).limit(1).with_for_update())
_DEACTIVATE_KEY = Statement(update(sessions).where(*_of_key).values(active=False))
_before = _param("before", _S.last_activity_at)
# as an expression, or an index of all sessions by their activity might be read instead of the one of active keys
_is_stale = func.coalesce(_S.last_activity_at, _before) < _before
_DEACTIVATE_STALE = Statement(update(sessions).where(*_of_key, _is_stale).values(active=False))
_INSERT = Statement(insert_missing(sessions))
# With the condition, it does not wait for a transaction that uses the active session.
_INSERT_UNLESS_ACTIVE = Statement(merging(insert_where(sessions, ~select(_S.id).where(*_of_key).exists())))
_IN_THREAD = Statement(select(*_SESSION.columns).where(*_in_thread).order_by(*_newest_first).limit(1))
_TOUCH = Statement(
    update(sessions)
    .where(_S.id == _id)
    .values(message_count=func.coalesce(_S.message_count, 0) + 1, last_activity_at=param("at"))
)
_DEACTIVATE = Statement(update(sessions).where(_S.id == _id, IS_ACTIVE).values(active=False))
_SET_AGENT = Statement(update(sessions).where(_S.id == _id).values(agent_session_id=param("value")))
# SKIP LOCKED: a session locked by another transaction is in use, and is left for the next cleanup.
_LOCK_STALE = Statement(
    select(_S.id)
    .where(_S.active.is_(false()), _S.last_activity_at < param("before"))
    .order_by(*_newest_first)
    .with_for_update(skip_locked=True)
)
_DELETE_MESSAGES = Statement(delete(messages).where(messages.c.session_id == _id))
_DELETE = Statement(delete(sessions).where(_S.id == _id))


class MessagingSessions(Repository[F]):
    """`tx.messaging.sessions`."""

    @reads
    def list(
        self, *, platform: str | None = None, active: bool | None = None, limit: int = 20, after: str | None = None
    ) -> Page[MessagingSession]:
        """Sessions, latest activity first. Pass a page's `cursor` as `after` for the next page.

        `active` True or False: only such sessions; one whose `active` is None is neither.
        """
        work = self._work
        filters: dict[str, Any] = {}
        if platform is not None:
            filters["platform"] = work.label("platform", platform)
        if active is not None:
            filters["active"] = check_flag("active", active)
        return _LATEST.page(work, limit, after, filters)

    @writes
    def get_or_create(
        self, *, platform: str, channel_id: str, user_id: str, thread_id: str | None = None, idle: timedelta = IDLE
    ) -> MessagingSession:
        """The user's active session if it was used within `idle`; otherwise a new one, and the old one becomes inactive.

        Concurrent callers get the same new session. `thread_id` None: the channel itself.
        """
        work = self._work
        now = work.now()
        since = _ago("idle", now, idle)
        key = {**_thread_params(work, platform, channel_id, thread_id), "key_user": work.label("user_id", user_id)}
        names = {"platform": platform, "channel_id": channel_id, "user_id": user_id, "thread_id": thread_id}
        new_session = _new(work, now, **names)
        if not work.runtime.dialect.one_writer:
            with work.batch() as batch:
                batch.run(_DEACTIVATE_STALE, **key, before=since)
                batch.run(_INSERT_UNLESS_ACTIVE, **key, **new_session)
                active = batch.row(_OF_KEY, **key)
            if active.result is not None and _used_since(found := _SESSION(active.result), since):
                return found
        for _ in range(_TRIES):
            row = work.row(_OF_KEY, **key)
            if row is not None and not _used_since(_SESSION(row), since):
                row = work.row(_LOCK_OF_KEY, **key)  # another caller may have used it or replaced it
            if row is not None:
                found = _SESSION(row)
                if _used_since(found, since):
                    return found
                work.run(_DEACTIVATE_KEY, **key)
            if work.run(_INSERT, **new_session):
                return construct(MessagingSession, new_session)
        raise Conflict("The active session of this key kept changing; try again.")

    @reads
    def get(self, id: str) -> MessagingSession:
        """The session, active or not. Raises NotFound."""
        return _SESSION.found(self._work.row(_GET, row_id=self._work.label("id", id)), "messaging session", id)

    @reads
    def find_active(
        self, *, platform: str, channel_id: str, thread_id: str | None, include_stale: bool = False
    ) -> MessagingSession | None:
        """The active session of any user in that thread with the latest activity; None if there is none.

        A session without activity for 30 minutes counts only with `include_stale`. `thread_id` None: the channel itself.
        """
        work = self._work
        place = _thread_params(work, platform, channel_id, thread_id)
        row = work.row(_IN_THREAD, **place)
        if row is None:
            return None
        latest = _SESSION(row)
        return latest if include_stale or latest.last_activity_at >= _ago("idle", work.now(), IDLE) else None

    @writes
    def touch(self, id: str) -> bool:
        """Add one to `message_count` and set `last_activity_at` to now. False for an unknown id."""
        return self._changed(_TOUCH, row_id=self._work.label("id", id), at=self._work.now())

    @writes
    def deactivate(self, id: str) -> bool:
        """Deactivate a session: its user gets a new one. False if it is unknown or not active."""
        return self._changed(_DEACTIVATE, row_id=self._work.label("id", id))

    @writes
    def set_agent_session(self, id: str, agent_session_id: str | None) -> bool:
        """Set the id of the agent's session that answers here; None removes it. False for an unknown id."""
        work = self._work
        agent = optional_label("agent_session_id", agent_session_id)
        return self._changed(_SET_AGENT, row_id=work.label("id", id), value=agent)

    @writes
    def cleanup_stale(self, older_than: timedelta = KEPT) -> int:
        """Delete inactive sessions without activity for longer than `older_than`, and their messages; the number of sessions."""
        work = self._work
        before = _ago("older_than", work.now(), older_than)
        # Delete by id, not by age: sessions may become stale or get messages between the two statements.
        stale = [{"row_id": id} for (id,) in work.rows(_LOCK_STALE, before=before)]
        with work.batch(last=True) as batch:
            batch.run_many(_DELETE_MESSAGES, stale)
            batch.run_many(_DELETE, stale)
        return len(stale)

    def _changed(self, statement: Statement, **values: Any) -> bool:
        with self._work.batch(last=True) as batch:
            changed = batch.run(statement, **values)
        return changed.result == 1


def _used_since(session: MessagingSession, since: datetime) -> bool:
    return not is_unreadable(session.last_activity_at) and session.last_activity_at >= since


def _new(work: UnitOfWork, now: datetime, **key: str | None) -> dict[str, Any]:
    activity = {"created_at": now, "last_activity_at": now, "message_count": 0, "active": True}
    return {"id": work.runtime.ids.mint("mse"), **key, "agent_session_id": None, **activity}


def _thread_params(work: UnitOfWork, platform: str, channel_id: str, thread_id: str | None) -> dict[str, str]:
    return {
        "key_platform": work.label("platform", platform),
        "key_channel": work.label("channel_id", channel_id),
        "key_thread": optional_label("thread_id", thread_id) or "",
    }


def _ago(path: str, now: datetime, span: object) -> datetime:
    """`now` minus `span`, with whole milliseconds as the columns have."""
    rounded = check_timedelta(path, span) // _MILLISECOND * _MILLISECOND
    return instant_before(now, rounded)


_M = messages.c
_MESSAGE = Values(MessagingMessage, messages)
_GIVEN = (*(column for column in _MESSAGE.columns if column is not _M.id and column is not _M.session_id), _M.unique_message_id)
_new_columns = {column.name: bindparam(f"new_{column.name}", type_=column.type) for column in _GIVEN}
_CLOCKS_APART = timedelta(hours=1)
"""By how much a host's clock may be behind that of the host which added the message before."""
_is_ahead = and_(_M.timestamp > _new_columns["timestamp"], _M.timestamp <= bindparam("latest", type_=_M.timestamp.type))
_ahead = select(func.max(_M.timestamp)).where(_M.session_id == _id, _is_ahead).scalar_subquery()
# An answer never stands before its question, whatever the clock of the host that adds it says.
_new_values = {**_new_columns, "timestamp": func.coalesce(_ahead, _new_columns["timestamp"])}
_EXISTS = Statement(select(_S.id).where(_S.id == _id))
# Waits for a transaction that is cleaning up the session, and then finds it deleted. It is no part of the INSERT: where an id
# comes from a sequence, Citus refuses to lock the rows of an INSERT … SELECT.
_HOLD = Statement(select(_S.id).where(_S.id == _id).with_for_update(read=True, key_share=True))
_ADD = Statement(
    merging(
        insert(messages).from_select([_M.session_id, *_GIVEN], select(_S.id, *_new_values.values()).where(_S.id == _id))
    ).returning(_M.id, _M.timestamp)
)
_DELIVERED = Statement(
    select(*_MESSAGE.columns).where(
        _M.session_id == _id, _M.role == param("said_by"), _M.unique_message_id == param("message_id"), DELIVERED_ONCE
    )
)
_NEWEST = Statement(
    select(*_MESSAGE.columns)
    .where(_M.session_id == _id)
    .order_by(_M.timestamp.desc(), _M.id.desc())
    .limit(bindparam("maximum", type_=Int64()))
)
_PLACE = Statement(select(_M.timestamp, _M.id).where(_M.session_id == _id, _M.id == bindparam("before", type_=Int64())))
_behind = behind((_M.timestamp, _M.id), ("at", "last"), descending=True)
_EARLIER = Statement(_NEWEST.statement.where(_behind))  # type: ignore[attr-defined]  # it is the select above


class MessagingMessages(Repository[F]):
    """`tx.messaging.messages`."""

    @writes
    def add(self, session_id: str, *, role: str, content: str, platform_message_id: str | None = None) -> MessagingMessage:
        """Append a message to the session, or return the one that this role said under this `platform_message_id`.

        So a message that the platform delivers twice is stored once, with its first content. Raises NotFound without the session.
        `content` is any text up to `Settings.max_text_bytes` (PayloadTooLarge). Its timestamp is now, or that of the message
        before it, should another host's clock be ahead. The session's row is not changed; see `sessions.touch`.
        """
        work = self._work
        now = work.now()
        fields = {
            "role": check_choice("role", role, MessagingRole),
            "content": work.body("content", content),
            "timestamp": now,
            "platform_message_id": optional_label("platform_message_id", platform_message_id),
        }
        id, key = work.label("session_id", session_id), fields["platform_message_id"]
        new_values = {f"new_{name}": value for name, value in {**fields, "unique_message_id": key}.items()}
        with work.batch(last=True) as batch:
            batch.lock(_HOLD, row_id=id)
            added = batch.returned(_ADD, row_id=id, latest=now + _CLOCKS_APART, **new_values)
        if added.result is not None:
            message_id, at = added.result
            return construct(MessagingMessage, {**fields, "id": message_id, "session_id": session_id, "timestamp": at})
        if key is not None:
            first = work.row(_DELIVERED, row_id=id, said_by=fields["role"], message_id=key)
            if first is not None:
                return _MESSAGE(first)
        raise NotFound("messaging session", session_id)

    @reads
    def history(self, session_id: str, *, limit: int = 50, before: int | None = None) -> list[MessagingMessage]:
        """The newest `limit` messages (1 to 1000), oldest first. `before`: only messages before the one with that id.

        Raises NotFound without the session, or if it has no message `before`.
        """
        work = self._work
        id, maximum = work.label("session_id", session_id), check_limit(limit)
        last = optional_count("before", before)
        if last is None:
            rows = work.rows(_NEWEST, row_id=id, maximum=maximum)
        else:
            place = work.row(_PLACE, row_id=id, before=last)
            if place is None and work.row(_EXISTS, row_id=id) is not None:
                raise NotFound("messaging message", str(last))
            rows = [] if place is None else work.rows(_EARLIER, row_id=id, maximum=maximum, at=place[0], last=place[1])
        if not rows and work.row(_EXISTS, row_id=id) is None:
            raise NotFound("messaging session", id)
        return [_MESSAGE(row) for row in reversed(rows)]


class Messaging(Domain[F]):
    """Sessions of users on chat platforms, and their messages."""

    sessions = on_demand(MessagingSessions[F])
    messages = on_demand(MessagingMessages[F])
