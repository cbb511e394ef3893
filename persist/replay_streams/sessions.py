"""`tx.replay_streams.sessions`: listing and deleting the sessions of clients."""

from sqlalchemy import delete, exists, select

from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.pages import Page
from persist.replay_streams.models import messages, sessions
from persist.replay_streams.schemas import ReplaySession

_S = sessions.c
_SESSION = Values(ReplaySession, sessions)
_NEWEST = Keyset("replay_streams.sessions", _SESSION, (_S.updated_at, _S.id))
_GET = Statement(select(*_SESSION.columns).where(_S.id == param("row_id")))
_LOCK = Statement(select(_S.id).where(_S.id == param("row_id")).with_for_update())
_DELETE_MESSAGES = Statement(delete(messages).where(messages.c.session_id == param("row_id")))
_DELETE = Statement(delete(sessions).where(_S.id == param("row_id"), ~exists().where(messages.c.session_id == _S.id)))
"""A session that another transaction has made in this very moment stays: it comes after."""


class ReplaySessions(Repository[F]):
    """`tx.replay_streams.sessions`. The first message creates a session."""

    @reads
    def list(self, *, limit: int = 20, after: str | None = None) -> Page[ReplaySession]:
        """Sessions, the one written to last first. Pass a page's `cursor` as `after` for the next page."""
        return _NEWEST.page(self._work, limit, after)

    @reads
    def get(self, id: str) -> ReplaySession:
        """The session. Raises NotFound."""
        return _SESSION.found(self._work.row(_GET, row_id=self._work.label("id", id)), "replay session", id)

    @writes
    def delete(self, id: str) -> bool:
        """Delete a session with all its messages; False for an unknown id."""
        work = self._work
        key = {"row_id": work.label("id", id)}
        with work.batch(last=True) as batch:
            batch.lock(_LOCK, **key)  # what others are storing is there or waits
            batch.run(_DELETE_MESSAGES, **key)
            deleted = batch.run(_DELETE, **key)
        return deleted.result == 1
