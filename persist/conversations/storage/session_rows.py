"""Reading and locking the row of a session, and the progressions that sessions and branches own."""

from sqlalchemy import select

from persist.conversations.models import progressions, sessions
from persist.conversations.schemas import ConvSession
from persist.conversations.storage.progression_members import add_progression
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.frozen import construct
from persist.errors import Conflict, NotFound

_S = sessions.c
FIELDS = tuple(ConvSession.model_fields)
COLUMNS = tuple(_S[name] for name in FIELDS)
_GET = Statement(select(*COLUMNS).where(_S.id == param("row_id")))
_LOCK = Statement(select(*COLUMNS).where(_S.id == param("row_id")).with_for_update())
_POOL = Statement(
    select(progressions.c.id)
    .where(progressions.c.id == select(_S.progression_id).where(_S.id == param("row_id")).scalar_subquery())
    .with_for_update()
)
_PROGRESSION = Statement(select(progressions.c.id).where(progressions.c.id == param("row_id")))


def session_value(row: Row) -> ConvSession:
    """The ConvSession in a row of COLUMNS."""
    return construct(ConvSession, dict(zip(FIELDS, row, strict=True)))


def find_session(work: UnitOfWork, id: str, *, lock: bool = False) -> ConvSession | None:
    """The session, if there is one."""
    row = work.row(_LOCK if lock else _GET, row_id=id)
    return None if row is None else session_value(row)


def get_session(work: UnitOfWork, id: str, *, lock: bool = False) -> ConvSession:
    """The session; NotFound if there is none."""
    session = find_session(work, work.label("id", id), lock=lock)
    if session is None:
        raise NotFound("session", id)
    return session


def lock_with_pool(work: UnitOfWork, id: str) -> ConvSession:
    """The session, locked after its progression, the order in which recording locks them; NotFound."""
    work.row(_POOL, row_id=work.label("id", id))
    return get_session(work, id, lock=True)


def owned_progression(work: UnitOfWork, wanted: str | None) -> str:
    """The id of the wanted progression, or of a new one for None; Conflict if it does not exist."""
    if wanted is None:
        minted = work.runtime.ids.mint_uuid()
        add_progression(work, minted)
        return minted
    if work.row(_PROGRESSION, row_id=wanted) is None:
        raise Conflict(f"There is no progression {wanted!r}.", constraint="fk_sessions_progression_id")
    return wanted
