"""Messages of a messaging session: appended, and read back as the newest of a conversation."""

from sqlalchemy import bindparam, insert, select, tuple_

from persist.db.checks import check_word, optional_count, optional_label
from persist.db.cursor import check_limit
from persist.db.hot import Hot, param
from persist.db.repository import Repository, reads, writes
from persist.db.types import Whole
from persist.db.values import build
from persist.errors import NotFound
from persist.messaging.models import messages, sessions
from persist.messaging.schemas import MessagingMessage, MessagingRole

_M, _S = messages.c, sessions.c
_FIELDS = tuple(MessagingMessage.model_fields)
_COLUMNS = tuple(_M[name] for name in _FIELDS)
_GIVEN = tuple(column for column in _COLUMNS if column is not _M.id and column is not _M.session_id)
_id = param("row_id")

_EXISTS = Hot(select(_S.id).where(_S.id == _id))
# A session that is just being cleaned up is waited for, and then found to be gone.
_ADD = Hot(
    insert(messages)
    .from_select(
        [_M.session_id, *_GIVEN],
        select(_S.id, *(bindparam(f"new_{column.name}", type_=column.type) for column in _GIVEN))
        .where(_S.id == _id)
        .with_for_update(read=True, key_share=True),
    )
    .returning(_M.id)
)
_NEWEST = Hot(
    select(*_COLUMNS)
    .where(_M.session_id == _id)
    .order_by(_M.timestamp.desc(), _M.id.desc())
    .limit(bindparam("most", type_=Whole()))
)
_PLACE = Hot(select(_M.timestamp, _M.id).where(_M.session_id == _id, _M.id == bindparam("before", type_=Whole())))
_last = tuple_(bindparam("at", type_=_M.timestamp.type), bindparam("last", type_=Whole()))
_EARLIER = Hot(_NEWEST.statement.where(tuple_(_M.timestamp, _M.id) < _last))  # type: ignore[attr-defined]  # it is the select above


class MessagingMessages(Repository):
    """`tx.messaging.messages`."""

    @writes
    def add(self, session_id: str, *, role: str, content: str, platform_message_id: str | None = None) -> MessagingMessage:
        """A message at the end of the session, which it leaves as it is (see `sessions.touch`); NotFound without the session.

        `content` is any text, up to `Settings.max_text_bytes` (PayloadTooLarge).
        """
        work = self._work
        fields = {
            "role": check_word("role", role, MessagingRole),
            "content": work.body("content", content),
            "timestamp": work.now(),
            "platform_message_id": optional_label("platform_message_id", platform_message_id),
        }
        named = {f"new_{name}": value for name, value in fields.items()}
        row = work.returned(_ADD, row_id=work.label("session_id", session_id), **named)
        if row is None:
            raise NotFound("messaging session", session_id)
        return build(MessagingMessage, {"id": row[0], "session_id": session_id, **fields})

    @reads
    def history(self, session_id: str, *, limit: int = 50, before: int | None = None) -> list[MessagingMessage]:
        """The newest `limit` messages (1 to 1000), oldest first; `before`: those before the message with that id.

        NotFound without the session, or where it has no such message.
        """
        work = self._work
        id, most = work.label("session_id", session_id), check_limit(limit)
        last = optional_count("before", before)
        if last is None:
            rows = work.rows(_NEWEST, row_id=id, most=most)
        else:
            place = work.row(_PLACE, row_id=id, before=last)
            if place is None and work.row(_EXISTS, row_id=id) is not None:
                raise NotFound("messaging message", str(last))
            rows = [] if place is None else work.rows(_EARLIER, row_id=id, most=most, at=place[0], last=place[1])
        if not rows and work.row(_EXISTS, row_id=id) is None:
            raise NotFound("messaging session", id)
        return [build(MessagingMessage, dict(zip(_FIELDS, row, strict=True))) for row in reversed(rows)]
