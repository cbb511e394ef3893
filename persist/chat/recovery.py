"""What a writable open of a SQLite file does first: fold the tails that a dead process left behind."""

from datetime import timedelta

from sqlalchemy import select

from persist.chat.models import deltas
from persist.chat.tails import fold
from persist.db.held import HeldConnection, Job
from persist.db.hot import Hot, Statements, param

_OLD_AFTER = timedelta(seconds=5)
_BATCH = 100
_ANY = Hot(select(deltas.c.part_id).limit(1))
_OLD = Hot(select(deltas.c.part_id).where(deltas.c.created_at < param("before")).distinct().limit(_BATCH))


def fold_old_tails(held: HeldConnection) -> int:
    """Fold tails older than 5 s, a hundred parts a transaction; the number of parts. An idle file costs one look."""
    before = held.runtime.clock() - _OLD_AFTER

    def step(db: Statements) -> int:
        found = db.rows(_OLD, before=before)
        for (part_id,) in found:
            fold(db, part_id)
        return len(found)

    if not held.look(lambda db: db.row(_ANY)):
        return 0
    total = 0
    while True:
        folded = held.run(Job(step), what="open()")
        total += folded
        if folded < _BATCH:
            return total
