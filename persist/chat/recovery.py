"""The tails that a dead process left behind: a writable open of a SQLite file folds them first, elsewhere maintenance does."""

from datetime import datetime, timedelta

from sqlalchemy import BigInteger, bindparam, select

from persist.chat.leftovers import ANY_PIECES
from persist.chat.models import deltas
from persist.chat.tails import fold_each, part_ids, tell
from persist.db.held import HeldConnection
from persist.db.hot import Hot, Statements, param
from persist.db.jobs import Job
from persist.db.wire import stored_text
from persist.errors import UnreadableRow

OLD_AFTER = timedelta(seconds=5)
_BATCH = 100
_old = select(deltas.c.part_id).where(deltas.c.created_at < param("before")).distinct().order_by(deltas.c.part_id)
_found = _old.limit(_BATCH).offset(bindparam("left", type_=BigInteger())).subquery()
_OLD = Hot(select(stored_text(_found.c.part_id)))


def old_before(now: datetime) -> datetime:
    """What is older than that is nobody's work in progress."""
    return now - OLD_AFTER


class Sweep:
    """Folds the tails of parts with deltas older than `before`, some at a time. What cannot be read is left, and told once."""

    def __init__(self, before: datetime) -> None:
        self._before = before
        self._told: set[str] = set()

    def some(self, db: Statements) -> int:
        """Fold those of up to a hundred parts; how many, and 0 when nothing is left that can be folded."""
        left = folded = 0
        while not folded and (found := db.rows(_OLD, before=self._before, left=left)):
            folded = fold_each(db, part_ids(found, self._tell), self._tell)
            left += len(found)
        return folded

    def _tell(self, error: UnreadableRow) -> None:
        if str(error) not in self._told:
            self._told.add(str(error))
            tell(error)


def fold_old_tails(held: HeldConnection) -> int:
    """Fold tails older than 5 s, a hundred parts a transaction; the number of parts. An idle file costs one look."""
    sweep = Sweep(old_before(held.runtime.clock()))
    if not held.look(lambda db: db.row(ANY_PIECES)):
        return 0
    total = 0
    while folded := held.run(Job(sweep.some), what="open()"):
        total += folded
    return total
