"""Folding deltas that a dead process left behind: on opening a SQLite file for writing, elsewhere during maintenance."""

from datetime import datetime

from sqlalchemy import BigInteger, bindparam, select

from persist.chat.models import deltas
from persist.chat.storage.folding import fold_each, log_left_unfolded, part_ids
from persist.chat.storage.liveness import LEFT_AFTER
from persist.chat.storage.unfolded_probe import ANY_DELTA
from persist.db.changes.driver_statements import StatementRunner
from persist.db.expressions.json_text import stored_text
from persist.db.group_commit.pinned_connection import PinnedConnection
from persist.db.group_commit.tasks import FunctionTask
from persist.db.statements.prepared import Statement, param
from persist.errors import UnreadableRow

_BATCH = 100
_old = select(deltas.c.part_id).where(deltas.c.created_at < param("before")).distinct().order_by(deltas.c.part_id)
_found = _old.limit(_BATCH).offset(bindparam("left", type_=BigInteger())).subquery()
_OLD = Statement(select(stored_text(_found.c.part_id)))


def old_before(now: datetime) -> datetime:
    """Deltas older than this instant belong to no recording in progress: a recorder folds its own sooner."""
    return now - LEFT_AFTER


class Sweep:
    """Folds parts with deltas older than `before`, in batches. Unreadable ones are left alone, each logged once."""

    def __init__(self, before: datetime) -> None:
        self._before = before
        self._logged: set[str] = set()

    def fold_batch(self, db: StatementRunner) -> int:
        """Fold one batch of up to a hundred parts; the number folded, 0 when none is left that can be folded."""
        left = folded = 0
        while not folded and (found := db.rows(_OLD, before=self._before, left=left)):
            folded = fold_each(db, part_ids(found, self._log_once), self._log_once)
            left += len(found)
        return folded

    def _log_once(self, error: UnreadableRow) -> None:
        if str(error) not in self._logged:
            self._logged.add(str(error))
            log_left_unfolded(error)


def fold_left_deltas(connection: PinnedConnection) -> int:
    """Fold the deltas of dead recorders, 100 parts per transaction; the number of parts. One query if there are no deltas."""
    sweep = Sweep(old_before(connection.runtime.clock()))
    if not connection.look(lambda db: db.row(ANY_DELTA)):
        return 0
    total = 0
    while folded := connection.run(FunctionTask(sweep.fold_batch), what="open()"):
        total += folded
    return total
