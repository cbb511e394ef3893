"""One branch's row: reading and locking it."""

from sqlalchemy import select

from persist.conversations.models import branches
from persist.conversations.schemas import Branch
from persist.db.hot import Hot, Row, param
from persist.db.values import build
from persist.db.work import Work
from persist.errors import NotFound

_B = branches.c
FIELDS = tuple(Branch.model_fields)
COLUMNS = tuple(_B[name] for name in FIELDS)
_GET = Hot(select(*COLUMNS).where(_B.id == param("row_id")))
_LOCK = Hot(select(*COLUMNS).where(_B.id == param("row_id")).with_for_update())
_HOLD = Hot(select(_B.id).where(_B.id == param("row_id")).with_for_update(read=True, key_share=True))


def branch_value(row: Row) -> Branch:
    """A row of the columns above."""
    return build(Branch, dict(zip(FIELDS, row, strict=True)))


def find_branch(work: Work, id: str, *, lock: bool = False) -> Branch | None:
    """The branch, if there is one."""
    row = work.row(_LOCK if lock else _GET, row_id=id)
    return None if row is None else branch_value(row)


def get_branch(work: Work, id: str, *, lock: bool = False) -> Branch:
    """The branch; NotFound."""
    branch = find_branch(work, work.label("id", id), lock=lock)
    if branch is None:
        raise NotFound("branch", id)
    return branch


def hold_branch(work: Work, id: str) -> bool:
    """Whether it is there, and stays with its places until the transaction ends: what is read after this is how it is."""
    return work.row(_HOLD, row_id=id) is not None
