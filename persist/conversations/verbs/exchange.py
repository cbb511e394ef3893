"""Exchange: messages that owners send each other. Numbers are assigned under one lock, so that no reader misses one."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import exists, func, or_, select, update

from persist.conversations.models import exchange_cursors, exchange_items, messages
from persist.conversations.schemas import ConvMessage, message_fields
from persist.conversations.storage import progressions as membership
from persist.conversations.storage import records
from persist.db.changes.batch import Pending
from persist.db.expressions.upsert import insert_missing, insert_where, merging
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import check_flag, optional_label
from persist.db.values.clock import epoch_us
from persist.db.values.json import Json
from persist.db.values.pages import Page, check_limit, decode_cursor, encode_cursor
from persist.errors import Conflict, InvalidValue, shown

ROLE = "unset"
"""The role of a plain exchange message, and the placeholder for a missing sender or recipient, as the runtime writes it."""
INBOX, OUTBOX = "inbox", "outbox"
_I, _C, _M = exchange_items.c, exchange_cursors.c, messages.c
_HEAD = Statement(update(exchange_cursors).where(_C.owner == "", _C.channel == "").values(seq=_C.seq + 1).returning(_C.seq))
_LAST = select(func.coalesce(func.max(_I.seq), 0) + 1).scalar_subquery()
_RECOUNT = Statement(update(exchange_cursors).where(_C.owner == "", _C.channel == "").values(seq=_LAST).returning(_C.seq))
_ADD = Statement(insert_missing(exchange_items, "seq"))
_was_added = exists().where(_I.message_id == param("message_id"))
_ADD_NEXT = Statement(
    merging(
        insert_where(exchange_items, (_C.owner == "") & (_C.channel == "") & ~_was_added, {"seq": _C.seq}, of=exchange_cursors),
        "seq",
    )
)
"""Adds an item with the seq that `_HEAD` gave, unless its message was sent before."""
_channel = func.coalesce(_I.channel, "")
_for_owner = or_(_I.recipient == param("owner"), _I.recipient.is_(None) & (_I.sender != param("owner")))
_with_cursor = exchange_items.outerjoin(exchange_cursors, (_C.owner == param("owner")) & (_C.channel == _channel))
_unread = _I.seq > func.coalesce(_C.seq, 0)
_of_channel = _I.channel == param("channel")
_SENT = Statement(select(_I.sender, _I.recipient, _I.channel).where(_I.message_id == param("message")))
_ITEM = Statement(select(_I.seq, _channel).where(_I.message_id == param("message"), _for_owner))
_ADD_CURSOR = Statement(insert_missing(exchange_cursors, "owner", "channel"))
_MOVE = Statement(
    update(exchange_cursors)
    .where(_C.owner == param("reader"), _C.channel == param("in_channel"), _C.seq < param("upto"))
    .values(seq=param("upto"))
)


@cache
def _box(which: str, *, unread: bool, channel: bool, after: bool) -> Statement:
    items = _with_cursor if which == INBOX else exchange_items
    query = select(_I.seq, *records.COLUMNS).select_from(items.join(records.WITH_TYPE, _M.id == _I.message_id))
    query = query.where(_for_owner if which == INBOX else _I.sender == param("owner"))
    if unread:
        query = query.where(_unread)
    if channel:
        query = query.where(_of_channel)
    if after:
        query = query.where(_I.seq > param("after"))
    return Statement(query.order_by(_I.seq).limit(LIMIT))


@cache
def _count(*, channel: bool) -> Statement:
    query = select(func.count()).select_from(_with_cursor).where(_for_owner, _unread)
    return Statement(query.where(_of_channel) if channel else query)


class Exchange(Repository[F]):
    """`tx.conversations.exchange`. Read positions are per owner and channel; messages without a channel count as a channel."""

    @writes
    def send(
        self,
        *,
        sender: str,
        recipient: str | None,
        content: Json,
        channel: str | None = None,
        session_id: str | None = None,
        id: str | None = None,
    ) -> ConvMessage:
        """Send a message to one owner, or with None to every owner but the sender. It joins the pool of `session_id`, if given.

        A message whose id was sent before is not sent again; see `post`.
        """
        work = self._work
        fields = message_fields(
            work,
            {
                "id": work.runtime.ids.mint_uuid() if id is None else work.label("id", id),
                "created_at": epoch_us(work.now()) / 1_000_000,
                "content": content,
                "sender": work.label("sender", sender),
                "recipient": optional_label("recipient", recipient),
                "channel": optional_label("channel", channel),
                "role": ROLE,
            },
        )
        return self._deliver(fields, session_id, minted=id is None)

    @writes
    def post(self, message: Mapping[str, Json], *, session_id: str | None = None) -> ConvMessage:
        """Send a whole message as its runtime dumps it, to its `recipient`, or if that is None to all but its sender.

        The message is stored as by `messages.put`. One whose id was sent before is returned unchanged and not sent again.
        Raises Conflict if it went from another sender, to another recipient or in another channel.
        """
        fields = message_fields(self._work, message)
        for name in ("sender", "recipient"):
            if fields[name] == ROLE or (name == "sender" and fields[name] is None):
                raise InvalidValue(f"message.{name}", f"expected the id of an owner, got {shown(fields[name])}.")
        return self._deliver(fields, session_id)

    @reads
    def inbox(
        self, owner: str, *, channel: str | None = None, unread_only: bool = True, limit: int = 100, after: str | None = None
    ) -> Page[ConvMessage]:
        """Messages sent to the owner or to all, oldest first; only unread ones, unless `unread_only` is False.

        Pass `cursor` as `after` for the next page; marking messages as read between pages skips none.
        """
        return self._page(INBOX, owner, channel, limit, after, unread=check_flag("unread_only", unread_only))

    @reads
    def outbox(self, owner: str, *, channel: str | None = None, limit: int = 100, after: str | None = None) -> Page[ConvMessage]:
        """Messages that the owner sent, oldest first. Pass `cursor` as `after` for the next page."""
        return self._page(OUTBOX, owner, channel, limit, after)

    @reads
    def unread_count(self, owner: str, *, channel: str | None = None) -> int:
        """How many unread messages the inbox has."""
        row = self._work.row(_count(channel=channel is not None), **self._values(owner, channel))
        assert row is not None
        return int(row[0])

    @writes
    def mark_read(self, owner: str, message_id: str) -> bool:
        """Mark the messages of the channel up to this one as read. False if it is not in the inbox, or read already."""
        work = self._work
        reader = work.label("owner", owner)
        row = work.row(_ITEM, owner=reader, message=work.label("message_id", message_id))
        if row is None:
            return False
        seq, in_channel = row
        with work.batch(last=True) as batch:
            batch.run(_ADD_CURSOR, owner=reader, channel=in_channel, seq=0)
            moved = batch.run(_MOVE, reader=reader, in_channel=in_channel, upto=seq)
        return bool(moved.result)

    def _deliver(self, fields: Mapping[str, Any], session_id: str | None, *, minted: bool = False) -> ConvMessage:
        work, message_id = self._work, fields["id"]
        way = {name: fields[name] for name in ("sender", "recipient", "channel")}
        pool, was_sent = None, False
        if session_id is not None or not minted:
            with work.batch() as batch:
                session = None if session_id is None else records.SESSIONS.ask(batch, work.label("id", session_id))
                sent = None if minted else batch.row(_SENT, message=message_id)
            pool = None if session is None or session_id is None else records.SESSIONS.found(session, session_id).progression_id
            was_sent = sent is not None and _was_sent(sent, message_id, way)
        number = 0 if was_sent else records.type_number(work, fields["lion_class"])
        item = {"message_id": message_id, "sent_at": work.now(), **way}
        with work.batch() as batch:
            stored = records.ask_message(batch, message_id) if was_sent else records.add_message(batch, fields, number)
            appended = None if pool is None else membership.add(batch, pool, message_id)
            if not was_sent:
                batch.returned(_HEAD)
            added = None if was_sent else batch.run(_ADD_NEXT, **item)
        if pool is not None and appended is not None:
            membership.note_added(work, pool, appended)
        # another sender of the same message, or another program that changed the row of the last seq
        if added is not None and not added.result and not self._is_sent(message_id, way):
            work.run(_ADD, seq=self._recounted(), **item)
        return records.stored_message(stored)

    def _is_sent(self, message_id: str, way: Mapping[str, str | None]) -> bool:
        with self._work.batch() as batch:
            sent = batch.row(_SENT, message=message_id)
        return _was_sent(sent, message_id, way)

    def _recounted(self) -> int:
        """The next seq, counted from existing items: another program deleted or changed the row that holds the last seq."""
        work = self._work
        work.run(_ADD_CURSOR, owner="", channel="", seq=0)
        head = work.returned(_RECOUNT)
        assert head is not None
        return int(head[0])

    def _page(
        self, which: str, owner: str, channel: str | None, limit: int, after: str | None, *, unread: bool = False
    ) -> Page[ConvMessage]:
        values = self._values(owner, channel)
        name, remembered = f"conversations.{which}", {**values, "unread": unread}
        if after is not None:
            (values["after"],) = decode_cursor(self._work.label("after", after), name, remembered, (int,))
        statement = _box(which, unread=unread, channel=channel is not None, after=after is not None)
        rows = self._work.rows(statement, limit=check_limit(limit) + 1, **values)
        items = [*records.message_values(row[1:] for row in rows[:limit])]
        return Page(items, None if len(rows) <= limit else encode_cursor(name, remembered, [rows[limit - 1][0]]))

    def _values(self, owner: str, channel: str | None) -> dict[str, Any]:
        values: dict[str, Any] = {"owner": self._work.label("owner", owner)}
        return values if channel is None else values | {"channel": self._work.label("channel", channel)}


def _was_sent(found: Pending[Row | None], message_id: str, way: Mapping[str, str | None]) -> bool:
    """Whether a batch found the message sent. Raises Conflict if it went another way."""
    if found.result is not None and found.result != tuple(way.values()):
        sender, recipient, channel = found.result
        raise Conflict(f"The message {message_id!r} was sent before, by {sender!r} to {recipient!r} in {channel!r}.")
    return found.result is not None
