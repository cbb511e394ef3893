"""Reading and locking the row of a session, and the progressions that sessions and branches own."""

from sqlalchemy import select

from persist.conversations.models import progressions, sessions
from persist.conversations.schemas import ConvSession
from persist.conversations.storage.progression_members import add_row
from persist.db.changes.batch import Batch, Pending
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import Conflict, NotFound

_S = sessions.c
SESSION = Values(ConvSession, sessions)
_GET = Statement(select(*SESSION.columns).where(_S.id == param("row_id")))
_LOCK = Statement(select(*SESSION.columns).where(_S.id == param("row_id")).with_for_update())
_POOL = Statement(
    select(progressions.c.id)
    .where(progressions.c.id == select(_S.progression_id).where(_S.id == param("row_id")).scalar_subquery())
    .with_for_update()
)
_PROGRESSION = Statement(select(progressions.c.id).where(progressions.c.id == param("row_id")))


def find_session(work: UnitOfWork, id: str, *, lock: bool = False) -> ConvSession | None:
    """The session, if there is one."""
    return SESSION.optional(work.row(_LOCK if lock else _GET, row_id=id))


def get_session(work: UnitOfWork, id: str, *, lock: bool = False) -> ConvSession:
    """The session. Raises NotFound if there is none."""
    session = find_session(work, work.label("id", id), lock=lock)
    if session is None:
        raise NotFound("session", id)
    return session


def lock_with_pool(batch: Batch, id: str) -> Pending[Row | None]:
    """Lock the session after its progression, the order in which recording locks them; `found_session` is its value."""
    batch.lock(_POOL, row_id=id)
    return batch.row(_LOCK, row_id=id)


def ask_session(batch: Batch, id: str, *, lock: bool = False) -> Pending[Row | None]:
    """Read the session with a batch; `found_session` is its value."""
    return batch.row(_LOCK if lock else _GET, row_id=id)


def found_session(found: Pending[Row | None], id: str) -> ConvSession:
    """The session that a batch read. Raises NotFound."""
    return SESSION.found(found.result, "session", id)


def ask_progression(batch: Batch, wanted: str | None) -> Pending[Row | None] | None:
    """Look for a progression with a batch; None for None."""
    return None if wanted is None else batch.row(_PROGRESSION, row_id=wanted)


def check_progression(found: Pending[Row | None] | None, wanted: str | None) -> None:
    """Raises Conflict if `ask_progression` did not find it."""
    if found is not None and found.result is None:
        raise Conflict(f"There is no progression {wanted!r}.", constraint="fk_sessions_progression_id")


def owned_progression(work: UnitOfWork, batch: Batch, wanted: str | None) -> str:
    """The id of the wanted progression, or for None of a new one, which is inserted with a batch."""
    if wanted is not None:
        return wanted
    minted = work.runtime.ids.mint_uuid()
    add_row(work, batch, minted)
    return minted
