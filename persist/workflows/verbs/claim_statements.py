"""The statements with which claims of the first runs of the queue end."""

from typing import Any

from sqlalchemy import update

from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.workflows.models import runs
from persist.workflows.schemas import RunStatus, WorkflowRun
from persist.workflows.storage import queue
from persist.workflows.storage.run_rows import NO_LEASE, RUN

_R = runs.c
_id = param("row_id")
_undo = (
    update(runs)
    .where(_R.id == _id)
    .values(
        status=RunStatus.QUEUED,
        **NO_LEASE,
        lease_token=_R.lease_token - 1,
        updated_at=param("at"),
    )
)
_UNDO_CLAIM = Statement(_undo, silent=True)
GIVE_BACK = Statement(_undo)
"""Undo the claim of a queued run, which the log of events has. Parameters: `row_id`, and `at`, when it was updated before."""
CLAIMED = {
    "status": RunStatus.RUNNING,
    "lease_owner": param("worker"),
    "lease_expires_at": param("until"),
    "lease_token": _R.lease_token + 1,
    "updated_at": param("at"),
}
"""What a claim writes to a queued run. Parameters: `worker`, `until`, `at`."""


def rounded(count: int) -> int:
    """The power of two from `count` on; 0 stays 0."""
    return 1 << (count - 1).bit_length() if count else 0


def claim_chosen(chosen: Any) -> Statement:
    """Claim the runs of a CTE with their `id` and `updated_at`: the runs, and when each was updated before."""
    return Statement(update(runs).where(_R.id == chosen.c.id).values(CLAIMED).returning(*RUN.columns, chosen.c.updated_at))


def readable_or_undone(work: UnitOfWork, found: list[Row], mark: Any) -> list[WorkflowRun] | None:
    """The claimed runs in their order; None, and the claim is undone, if one of them cannot be decoded."""
    rows = [row[: len(RUN.fields)] for row in found]
    if not work.carried or not any(is_unreadable(cell) for row in rows for cell in row):
        return sorted(map(RUN, rows), key=queue.place)
    work.go_on()
    for row in found:
        work.run(_UNDO_CLAIM, row_id=row[RUN.fields.index("id")], at=row[-1])
    if work.journal is not None and mark is not None:
        work.journal.rollback_to(mark)
    return None
