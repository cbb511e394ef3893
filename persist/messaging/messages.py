"""`tx.messaging.messages`: appending messages to a session and reading the newest."""

from datetime import timedelta

from sqlalchemy import and_, bindparam, func, insert, select, tuple_

from persist.db.expressions.upsert import merging
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import check_choice, optional_count, optional_label
from persist.db.values.frozen import construct
from persist.db.values.pages import check_limit
from persist.errors import NotFound
from persist.messaging.models import DELIVERED_ONCE, messages, sessions
from persist.messaging.schemas import MessagingMessage, MessagingRole

_M, _S = messages.c, sessions.c
_FIELDS = tuple(MessagingMessage.model_fields)
_COLUMNS = tuple(_M[name] for name in _FIELDS)
_GIVEN = (*(column for column in _COLUMNS if column is not _M.id and column is not _M.session_id), _M.unique_message_id)
_id = param("row_id")
_new = {column.name: bindparam(f"new_{column.name}", type_=column.type) for column in _GIVEN}

_CLOCKS_APART = timedelta(hours=1)
"""By how much a host's clock may be behind that of the host which added the message before."""
_is_ahead = and_(_M.timestamp > _new["timestamp"], _M.timestamp <= bindparam("latest", type_=_M.timestamp.type))
_ahead = select(func.max(_M.timestamp)).where(_M.session_id == _id, _is_ahead).scalar_subquery()
# An answer never stands before its question, whatever the clock of the host that adds it says.
_new_values = {**_new, "timestamp": func.coalesce(_ahead, _new["timestamp"])}

_EXISTS = Statement(select(_S.id).where(_S.id == _id))
# Waits for a transaction that is cleaning up the session, and then finds it deleted. It is no part of the INSERT: where an id
# comes from a sequence, Citus refuses to lock the rows of an INSERT … SELECT.
_HOLD = Statement(select(_S.id).where(_S.id == _id).with_for_update(read=True, key_share=True))
_ADD = Statement(
    merging(
        insert(messages).from_select(
            [_M.session_id, *_GIVEN],
            select(_S.id, *_new_values.values()).where(_S.id == _id),
        )
    ).returning(_M.id, _M.timestamp)
)
_DELIVERED = Statement(
    select(*_COLUMNS).where(
        _M.session_id == _id,
        _M.role == param("said_by"),
        _M.unique_message_id == param("message_id"),
        DELIVERED_ONCE,
    )
)
_NEWEST = Statement(
    select(*_COLUMNS)
    .where(_M.session_id == _id)
    .order_by(_M.timestamp.desc(), _M.id.desc())
    .limit(bindparam("maximum", type_=Int64()))
)
_PLACE = Statement(select(_M.timestamp, _M.id).where(_M.session_id == _id, _M.id == bindparam("before", type_=Int64())))
_last = tuple_(bindparam("at", type_=_M.timestamp.type), bindparam("last", type_=Int64()))
_EARLIER = Statement(_NEWEST.statement.where(tuple_(_M.timestamp, _M.id) < _last))  # type: ignore[attr-defined]  # it is the select above


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
                return construct(MessagingMessage, dict(zip(_FIELDS, first, strict=True)))
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
        return [construct(MessagingMessage, dict(zip(_FIELDS, row, strict=True))) for row in reversed(rows)]
