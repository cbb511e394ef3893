"""The tails that a dead process left behind: a writable open of a SQLite file folds them first, elsewhere maintenance does."""

from datetime import datetime, timedelta

from sqlalchemy import select

from persist.chat.models import deltas
from persist.chat.tails import fold
from persist.db.held import HeldConnection
from persist.db.hot import Hot, Statements, param
from persist.db.jobs import Job

OLD_AFTER = timedelta(seconds=5)
_BATCH = 100
_ANY = Hot(select(deltas.c.part_id).limit(1))
_OLD = Hot(
    select(deltas.c.part_id).where(deltas.c.created_at < param("before")).distinct().order_by(deltas.c.part_id).limit(_BATCH)
)


def old_before(now: datetime) -> datetime:
    """What is older than that is nobody's work in progress."""
    return now - OLD_AFTER


def fold_some(db: Statements, before: datetime) -> int:
    """Fold the tails of up to a hundred parts with deltas older than that; how many."""
    return sum([fold(db, part_id) for (part_id,) in db.rows(_OLD, before=before)])


def fold_old_tails(held: HeldConnection) -> int:
    """Fold tails older than 5 s, a hundred parts a transaction; the number of parts. An idle file costs one look."""
    before = old_before(held.runtime.clock())

    def step(db: Statements) -> int:
        return fold_some(db, before)

    if not held.look(lambda db: db.row(_ANY)):
        return 0
    total = 0
    while folded := held.run(Job(step), what="open()"):
        total += folded
    return total
