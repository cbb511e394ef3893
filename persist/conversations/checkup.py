"""Doctor's checks of conversations: stale running sessions, wrong fork pointers, arrays that lag behind their members."""

from collections.abc import Iterator, Sequence
from functools import partial

from sqlalchemy import func, select

from persist.conversations.models import members, progressions
from persist.conversations.repository import Conversations
from persist.conversations.staleness import stale_sessions
from persist.conversations.storage import fork_pointers as pointers
from persist.conversations.storage import progression_folding as folding
from persist.db.dialects.findings import Problem, Severity
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

_P, _M = progressions.c, members.c
_places = select(func.coalesce(func.max(_M.ord) + 1, 0)).where(_M.progression_id == _P.id).scalar_subquery()
_LAGGING = select(_P.id).where(_P.folded != _places).order_by(_P.id)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """Yield running sessions silent for more than a day, fork pointers that have no effect, and lagging arrays."""
    for session in stale_sessions(Conversations(work), now=work.now()):
        since = "nobody knows since when" if session.started_at is None else f"since {session.started_at:%Y-%m-%d %H:%M} UTC"
        message = f"it says running, {since}; persist conversations doctor ends it."
        yield Problem("session_stale", Severity.WARNING, f"conversation {session.id}", message)
    for branch, why, mends in pointers.astray(work):
        repair = partial(pointers.adopt, id=branch.id) if mends else None
        yield Problem("branch_pointers", Severity.WARNING, f"branch {branch.id}", why, repair)
    lagging = [id for (id,) in work.found(_LAGGING, unreadable=OnUnreadable.LEAVE_OUT) if not folding.folds_at_close(work, id)]
    if lagging:
        message = f"progressions whose published array lags behind the members, which are what counts: {len(lagging):,}."
        yield Problem("progressions_lagging", Severity.INFO, "table progressions", message, partial(_fold, ids=lagging))


def _fold(work: UnitOfWork, *, ids: Sequence[str]) -> None:
    for id in ids:
        folding.fold(work, id)
