"""Reading and locking the row of a branch."""

from sqlalchemy import select

from persist.conversations.models import branches
from persist.conversations.schemas import Branch
from persist.db.changes.batch import Batch, Pending
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import NotFound

_B = branches.c
BRANCH = Values(Branch, branches)
_GET = Statement(select(*BRANCH.columns).where(_B.id == param("row_id")))
_LOCK = Statement(select(*BRANCH.columns).where(_B.id == param("row_id")).with_for_update())
_HOLD = Statement(select(_B.id).where(_B.id == param("row_id")).with_for_update(read=True, key_share=True))


def find_branch(work: UnitOfWork, id: str, *, lock: bool = False) -> Branch | None:
    """The branch, if there is one."""
    return BRANCH.optional(work.row(_LOCK if lock else _GET, row_id=id))


def get_branch(work: UnitOfWork, id: str, *, lock: bool = False) -> Branch:
    """The branch. Raises NotFound if there is none."""
    branch = find_branch(work, work.label("id", id), lock=lock)
    if branch is None:
        raise NotFound("branch", id)
    return branch


def ask_branch(batch: Batch, id: str, *, lock: bool = False) -> Pending[Row | None]:
    """Read the branch with a batch; `found_branch` is its value."""
    return batch.row(_LOCK if lock else _GET, row_id=id)


def found_branch(found: Pending[Row | None], id: str) -> Branch:
    """The branch that a batch read. Raises NotFound."""
    return BRANCH.found(found.result, "branch", id)


def hold_with(batch: Batch, id: str) -> None:
    """Lock the branch FOR KEY SHARE with a batch: nobody deletes it until the transaction ends, and later reads are current."""
    batch.lock(_HOLD, row_id=id)
