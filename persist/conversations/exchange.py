"""Exchange: messages that owners (branches, sessions, anything with an id) send each other, first in, first out.

Places in the order are given under one lock, so that whoever has read up to a place has missed nothing before it.
"""

from functools import cache
from typing import Any

from sqlalchemy import func, insert, or_, select, update

from persist.conversations import membership
from persist.conversations.intake import message_fields
from persist.conversations.message_rows import COLUMNS, WITH_TYPE, find_message, message_value, write_message
from persist.conversations.models import exchange_cursors, exchange_items, messages
from persist.conversations.schemas import ConvMessage
from persist.conversations.session_rows import get_session
from persist.db.checks import check_flag, optional_label
from persist.db.clock import epoch_us
from persist.db.cursor import check_limit
from persist.db.hot import LIMIT, Hot, param
from persist.db.insert import insert_missing
from persist.db.json import Json
from persist.db.repository import Repository, reads, writes

ROLE = "unset"
"""The role of a plain exchange message, as the runtime writes it."""

_I, _C, _M = exchange_items.c, exchange_cursors.c, messages.c
_HEAD = Hot(update(exchange_cursors).where(_C.owner == "", _C.channel == "").values(seq=_C.seq + 1).returning(_C.seq))
_ADD = Hot(insert(exchange_items))
_channel = func.coalesce(_I.channel, "")
_for_owner = or_(_I.recipient == param("owner"), _I.recipient.is_(None) & (_I.sender != param("owner")))
_with_cursor = exchange_items.outerjoin(exchange_cursors, (_C.owner == param("owner")) & (_C.channel == _channel))
_unread = _I.seq > func.coalesce(_C.seq, 0)
_of_channel = _I.channel == param("channel")
_ITEM = Hot(select(_I.seq, _channel).where(_I.message_id == param("message"), _for_owner))
_ADD_CURSOR = Hot(insert_missing(exchange_cursors, "owner", "channel"))
_MOVE = Hot(
    update(exchange_cursors)
    .where(_C.owner == param("owner"), _C.channel == param("in_channel"), _C.seq < param("upto"))
    .values(seq=param("upto"))
)


@cache
def _inbox(*, unread: bool, channel: bool) -> Hot:
    joined = _with_cursor.join(WITH_TYPE, _M.id == _I.message_id)
    query = select(*COLUMNS).select_from(joined).where(_for_owner)
    if unread:
        query = query.where(_unread)
    if channel:
        query = query.where(_of_channel)
    return Hot(query.order_by(_I.seq).limit(LIMIT))


@cache
def _outbox(*, channel: bool) -> Hot:
    query = select(*COLUMNS).select_from(exchange_items.join(WITH_TYPE, _M.id == _I.message_id))
    query = query.where(_I.sender == param("owner"))
    if channel:
        query = query.where(_of_channel)
    return Hot(query.order_by(_I.seq).limit(LIMIT))


@cache
def _count(*, channel: bool) -> Hot:
    query = select(func.count()).select_from(_with_cursor).where(_for_owner, _unread)
    return Hot(query.where(_of_channel) if channel else query)


class Exchange(Repository):
    """`tx.conversations.exchange`. What is read is per owner and channel; messages without a channel have one of their own."""

    @writes
    def send(
        self,
        *,
        sender: str,
        recipient: str | None,
        content: Json,
        channel: str | None = None,
        session_id: str | None = None,
    ) -> ConvMessage:
        """A message to one owner, or with None to every owner but the sender. With a session it joins its pool too."""
        work = self._work
        fields = message_fields(
            work,
            {
                "id": work.runtime.ids.mint("xch"),
                "created_at": epoch_us(work.now()) / 1_000_000,
                "content": content,
                "sender": work.label("sender", sender),
                "recipient": optional_label("recipient", recipient),
                "channel": optional_label("channel", channel),
                "role": ROLE,
            },
        )
        pool = None if session_id is None else get_session(work, session_id).progression_id
        write_message(work, fields)
        if pool is not None:
            membership.append(work, pool, fields["id"])
        head = work.returned(_HEAD)
        assert head is not None, "the row of the last place is there from the beginning"
        item = {name: fields[name] for name in ("sender", "recipient", "channel")}
        work.run(_ADD, seq=head[0], message_id=fields["id"], **item)
        message = find_message(work, fields["id"])
        assert message is not None
        return message

    @reads
    def inbox(self, owner: str, *, channel: str | None = None, unread_only: bool = True, limit: int = 100) -> list[ConvMessage]:
        """What was sent to the owner or to all, oldest first; unread ones alone unless told otherwise."""
        values = self._values(owner, channel) | {"limit": check_limit(limit)}
        statement = _inbox(unread=check_flag("unread_only", unread_only), channel=channel is not None)
        return [message_value(row) for row in self._work.rows(statement, **values)]

    @reads
    def outbox(self, owner: str, *, channel: str | None = None, limit: int = 100) -> list[ConvMessage]:
        """What the owner sent, oldest first."""
        values = self._values(owner, channel) | {"limit": check_limit(limit)}
        return [message_value(row) for row in self._work.rows(_outbox(channel=channel is not None), **values)]

    @reads
    def unread_count(self, owner: str, *, channel: str | None = None) -> int:
        """How many messages the inbox would show."""
        row = self._work.row(_count(channel=channel is not None), **self._values(owner, channel))
        assert row is not None
        return int(row[0])

    @writes
    def mark_read(self, owner: str, message_id: str) -> bool:
        """The owner has read up to this message of its channel. False if it is not in the inbox, or read already."""
        work = self._work
        reader = work.label("owner", owner)
        row = work.row(_ITEM, owner=reader, message=work.label("message_id", message_id))
        if row is None:
            return False
        seq, in_channel = row
        work.run(_ADD_CURSOR, owner=reader, channel=in_channel, seq=0)
        return bool(work.run(_MOVE, owner=reader, in_channel=in_channel, upto=seq))

    def _values(self, owner: str, channel: str | None) -> dict[str, Any]:
        values: dict[str, Any] = {"owner": self._work.label("owner", owner)}
        return values if channel is None else values | {"channel": self._work.label("channel", channel)}
