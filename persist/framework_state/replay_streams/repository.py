"""`tx.replay_streams`: sessions of clients, storing messages to a session, and reading messages that its client missed."""

from datetime import timedelta
from typing import Any

from sqlalchemy import and_, bindparam, delete, func, literal, select, true

from persist.db.expressions.upsert import FirstUse, insert_where
from persist.db.operations.keyset import Keyset
from persist.db.schema.column_types import LABEL_BYTES, Int64
from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import Domain, F, Repository, on_demand, reads, writes
from persist.db.values.arguments import check_count, check_timedelta
from persist.db.values.clock import epoch_ms, instant_before
from persist.db.values.escaping import utf8_size
from persist.db.values.pages import Page, check_limit
from persist.errors import InvalidValue, PayloadTooLarge
from persist.framework_state.replay_streams.models import SESSIONS, messages, sessions
from persist.framework_state.replay_streams.schemas import Missed, ReplayMessage, ReplaySession

_S = sessions.c
_SESSION = Values(ReplaySession, sessions)
_LATEST = Keyset("replay_streams.sessions", _SESSION, (_S.updated_at, _S.id))
_GET = Statement(select(*_SESSION.columns).where(_S.id == param("row_id")))


class ReplaySessions(Repository[F]):
    """`tx.replay_streams.sessions`. The first message creates a session."""

    @reads
    def list(self, *, limit: int = 20, after: str | None = None) -> Page[ReplaySession]:
        """Sessions, the one written to last first. Pass a page's `cursor` as `after` for the next page."""
        return _LATEST.page(self._work, limit, after)

    @reads
    def get(self, id: str) -> ReplaySession:
        """The session. Raises NotFound."""
        return _SESSION.found(self._work.row(_GET, row_id=self._work.label("id", id)), "replay session", id)

    @writes
    def delete(self, id: str) -> bool:
        """Delete a session with all its messages; False for an unknown id."""
        return SESSIONS.delete(self._work, id)


List = list
_SWEPT = 32
"""How many expired messages of the session one call deletes at most: more than one call adds, so none is left in the long run."""
_M = messages.c
_MESSAGE = Values(ReplayMessage, messages)
_session = _M.session_id == param("in_session")
_in_stream = (_session, _M.stream == param("in_stream"))
_OPEN = FirstUse(sessions, "replay session", updated_at="latest")
"""Makes the session or locks its row, so that the positions of a stream are given in the order of the commits."""
_last = select(func.coalesce(func.max(_M.position), 0)).where(*_in_stream).scalar_subquery()
_APPEND = Statement(insert_where(messages, true(), {"position": _last + 1}))
_OVER_COUNT = Statement(delete(messages).where(*_in_stream, _M.position <= _last - bindparam("keep", type_=Int64())))
_oldest = select(_M.id).where(_session, _M.id < param("expired")).order_by(_M.id).limit(literal(_SWEPT, Int64()))
_SWEEP = Statement(delete(messages).where(_session, _M.id.in_(_oldest)))
_anchor = messages.alias("anchor")
_behind = and_(
    _M.session_id == _anchor.c.session_id,
    _M.stream == _anchor.c.stream,
    _M.position > _anchor.c.position,
    _M.message.is_not(None),
)
_other = messages.alias("other")
_newest_position = (
    select(func.max(_other.c.position))
    .where(_other.c.session_id == _anchor.c.session_id, _other.c.stream == _anchor.c.stream, _other.c.message.is_not(None))
    .scalar_subquery()
)
_AFTER_ID = Statement(
    select(_anchor.c.stream, _anchor.c.position, _newest_position, *_MESSAGE.columns)
    .select_from(_anchor.outerjoin(messages, _behind))
    .where(_anchor.c.session_id == param("in_session"), _anchor.c.id == param("row_id"))
    .order_by(_M.position)
    .limit(LIMIT)
)
"""The place of a message, once for each later message of the stream, or once if it is the last."""
_AFTER = Statement(
    select(*_MESSAGE.columns)
    .where(*_in_stream, _M.position > param("position"), _M.message.is_not(None))
    .order_by(_M.position)
    .limit(LIMIT)
)
_NEWEST = Statement(select(*_MESSAGE.columns).where(_session).order_by(_M.id.desc()).limit(LIMIT))


class ReplayMessages(Repository[F]):
    """`tx.replay_streams.messages`. A session has any number of streams; the first message makes a session and a stream."""

    @writes
    def append(
        self, session_id: str, stream: str, message: str | None, *, keep: int | None = None, keep_for: timedelta | None = None
    ) -> str:
        """Store a message for the client of a session, or with None a marker; its id, greater than those of earlier calls.

        `keep`: the stream's newest so many stay. `keep_for`: older messages of the session are deleted, some with each call.
        """
        work = self._work
        where = _place(self, session_id, stream)
        text = None if message is None else work.body("message", message)
        if keep is not None and not check_count("keep", keep):
            raise InvalidValue("keep", "expected 1 or more.")
        now = work.now()
        expired = _expired(self, keep_for)
        session, id = where["in_session"], work.runtime.ids.mint("rpl")
        with work.batch(last=True) as batch:
            _OPEN.run(batch, id=session, created_at=now, updated_at=now)
            row = {"session_id": session, "id": id, "stream": where["in_stream"], "created_at": now, "message": text}
            batch.run(_APPEND, **where, **row)
            if keep is not None:
                batch.run(_OVER_COUNT, **where, keep=keep)
            if expired is not None:
                batch.run(_SWEEP, in_session=session, expired=expired)
        return id

    @reads
    def after(self, session_id: str, id: str, *, limit: int = 100, keep_for: timedelta | None = None) -> Missed | None:
        """The first messages after this one in its stream; `list` reads on from the position it gives.

        None for an id that is not this session's, was deleted, or is older than `keep_for`.
        """
        work = self._work
        key = {"in_session": work.label("session_id", session_id), "row_id": work.label("id", id)}
        limit = check_limit(limit)
        expired = _expired(self, keep_for)
        if expired is not None and key["row_id"] < expired:
            return None
        rows = work.rows(_AFTER_ID, **key, limit=limit)
        if not rows:
            return None
        stream, position, newest = rows[0][:3]
        missed = [_MESSAGE(row[3:]) for row in rows if row[3] is not None]
        position = missed[-1].position if missed else position
        return Missed(stream, missed, position, more=position < (newest or 0))

    @reads
    def list(self, session_id: str, stream: str, *, position: int = 0, limit: int = 100) -> List[ReplayMessage]:
        """The messages of a stream behind a position, oldest first, without markers."""
        values = {"position": check_count("position", position), "limit": check_limit(limit)}
        return [_MESSAGE(row) for row in self._work.rows(_AFTER, **_place(self, session_id, stream), **values)]

    @reads
    def newest(self, session_id: str, *, limit: int = 100) -> List[ReplayMessage]:
        """The newest messages of all streams of a session, newest first, with markers."""
        session = self._work.label("session_id", session_id)
        return [_MESSAGE(row) for row in self._work.rows(_NEWEST, in_session=session, limit=check_limit(limit))]


def _place(repository: Repository[Any], session_id: str, stream: str) -> dict[str, str]:
    label = repository._work.label
    name = label("stream", stream, empty=True)
    if (size := utf8_size(name)) > LABEL_BYTES:  # before a session is made for it
        raise PayloadTooLarge("stream", size, LABEL_BYTES)
    return {"in_session": label("session_id", session_id), "in_stream": name}


def _expired(repository: Repository[Any], keep_for: timedelta | None) -> str | None:
    """The text below which ids were minted too long ago; None if nothing expires."""
    if keep_for is None:
        return None
    before = epoch_ms(instant_before(repository._work.now(), check_timedelta("keep_for", keep_for, zero=False)))
    return f"rpl_{max(before, 0) << 12:014x}"


class ReplayStreams(Domain[F]):
    """Sessions of a server's clients, and what was sent to them."""

    sessions = on_demand(ReplaySessions[F])
    messages = on_demand(ReplayMessages[F])
