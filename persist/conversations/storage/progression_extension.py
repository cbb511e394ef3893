"""Appending many messages to a progression: those that are no members yet, in one statement."""

from collections.abc import Iterable

from sqlalchemy import exists, func, insert, select

from persist.conversations.models import members, progressions
from persist.conversations.storage.progression_folding import LOCK, ask_ends, fold_if_long
from persist.db.changes.batch import Batch, Pending
from persist.db.schema.arrays import label_rows
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import NotFound

_P, _M, _id = progressions.c, members.c, param("row_id")
_given = label_rows("ids")
_next = select(func.coalesce(func.max(_M.ord) + 1, 0)).where(_M.progression_id == _id).scalar_subquery()
_place = _next + func.row_number().over(order_by=_given.c.key) - 1
_is_there = exists().where(_M.message_id == _given.c.value, _M.progression_id == _id)
_EXTEND = Statement(
    insert(members).from_select(
        ["progression_id", "ord", "message_id"], select(_P.id, _place, _given.c.value).where(_P.id == _id, ~_is_there)
    )
)


class Extension:
    """Appending ids to a progression that are not members yet, in order: first `add`, then `end`."""

    def __init__(self, work: UnitOfWork, id: str, ids: Iterable[str]) -> None:
        self._work, self._id = work, id
        self._ids = list(dict.fromkeys(ids))

    def add(self, batch: Batch) -> None:
        """Lock the progression and append them, with a batch."""
        batch.lock(LOCK, row_id=self._id)
        self._added: Pending[int] = batch.run(_EXTEND, row_id=self._id, ids=self._ids)
        self._ends: Pending[Row | None] = ask_ends(self._work, batch, self._id)

    def end(self) -> None:
        """Rewrite the published array if it is time to, after `add`. Raises NotFound."""
        if self._ends.result is None:
            raise NotFound("progression", self._id)
        if self._added.result:
            with self._work.batch() as batch:
                fold_if_long(self._work, batch, self._id, *self._ends.result)
