"""One session's row: reading and locking it, and the progressions that sessions and branches own."""

from sqlalchemy import select

from persist.conversations.membership import add_progression
from persist.conversations.models import progressions, sessions
from persist.conversations.schemas import ConvSession
from persist.db.hot import Hot, Row, param
from persist.db.values import build
from persist.db.work import Work
from persist.errors import Conflict, NotFound

_S = sessions.c
FIELDS = tuple(ConvSession.model_fields)
COLUMNS = tuple(_S[name] for name in FIELDS)
_GET = Hot(select(*COLUMNS).where(_S.id == param("row_id")))
_LOCK = Hot(select(*COLUMNS).where(_S.id == param("row_id")).with_for_update())
_POOL = Hot(
    select(progressions.c.id)
    .where(progressions.c.id == select(_S.progression_id).where(_S.id == param("row_id")).scalar_subquery())
    .with_for_update()
)
_PROGRESSION = Hot(select(progressions.c.id).where(progressions.c.id == param("row_id")))


def session_value(row: Row) -> ConvSession:
    """A row of the columns above."""
    return build(ConvSession, dict(zip(FIELDS, row, strict=True)))


def find_session(work: Work, id: str, *, lock: bool = False) -> ConvSession | None:
    """The session, if there is one."""
    row = work.row(_LOCK if lock else _GET, row_id=id)
    return None if row is None else session_value(row)


def get_session(work: Work, id: str, *, lock: bool = False) -> ConvSession:
    """The session; NotFound."""
    session = find_session(work, work.label("id", id), lock=lock)
    if session is None:
        raise NotFound("session", id)
    return session


def lock_with_pool(work: Work, id: str) -> ConvSession:
    """The session, locked after its progression, which is the order in which messages are recorded; NotFound."""
    work.row(_POOL, row_id=work.label("id", id))
    return get_session(work, id, lock=True)


def owned_progression(work: Work, wanted: str | None) -> str:
    """The progression that is named, or a new one; Conflict for one that does not exist."""
    if wanted is None:
        minted = work.runtime.ids.mint_uuid()
        add_progression(work, minted)
        return minted
    if work.row(_PROGRESSION, row_id=wanted) is None:
        raise Conflict(f"There is no progression {wanted!r}.", constraint="fk_sessions_progression_id")
    return wanted
