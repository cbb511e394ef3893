"""`tx.replay_streams.sessions`: listing and deleting the sessions of clients."""

from functools import cache

from sqlalchemy import bindparam, select, tuple_

from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.clock import epoch_ms
from persist.db.values.frozen import construct
from persist.db.values.pages import Page, check_limit, values_after
from persist.errors import NotFound
from persist.replay_streams.models import SESSIONS, sessions
from persist.replay_streams.schemas import ReplaySession

_S = sessions.c
_FIELDS = tuple(ReplaySession.model_fields)
_COLUMNS = tuple(_S[name] for name in _FIELDS)
_LIST = "replay_streams.sessions"

_GET = Statement(select(*_COLUMNS).where(_S.id == param("row_id")))


@cache
def _listing(after: bool) -> Statement:
    query = select(*_COLUMNS).order_by(_S.updated_at.desc(), _S.id.desc()).limit(LIMIT)
    if after:
        after_key = tuple_(bindparam("after_at", type_=_S.updated_at.type), bindparam("after_id", type_=_S.id.type))
        query = query.where(tuple_(_S.updated_at, _S.id) < after_key)
    return Statement(query)


class ReplaySessions(Repository[F]):
    """`tx.replay_streams.sessions`. The first message creates a session."""

    @reads
    def list(self, *, limit: int = 20, after: str | None = None) -> Page[ReplaySession]:
        """Sessions, the one written to last first. Pass a page's `cursor` as `after` for the next page."""
        work = self._work
        limit = check_limit(limit)
        after_key = values_after(after, _LIST, {})
        rows = work.rows(_listing(bool(after_key)), **after_key, limit=limit + 1)
        return Page.of(rows, limit, _value, name=_LIST, filters={}, key=lambda _, item: [epoch_ms(item.updated_at), item.id])

    @reads
    def get(self, id: str) -> ReplaySession:
        """The session. Raises NotFound."""
        row = self._work.row(_GET, row_id=self._work.label("id", id))
        if row is None:
            raise NotFound("replay session", id)
        return _value(row)

    @writes
    def delete(self, id: str) -> bool:
        """Delete a session with all its messages; False for an unknown id."""
        return SESSIONS.delete(self._work, id)


def _value(row: Row) -> ReplaySession:
    return construct(ReplaySession, dict(zip(_FIELDS, row, strict=True)))
