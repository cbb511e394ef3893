"""Appending many messages to a progression: those that are no members yet, in two round trips."""

from collections.abc import Iterable, Sequence
from functools import cache

from sqlalchemy import bindparam, select

from persist.conversations.models import members
from persist.conversations.storage.progression_members import INSERT, LOCK, NEXT, fold_if_long, is_long, member_rows
from persist.db.changes.batch import Batch, Pending
from persist.db.schema.column_types import Label
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import NotFound

_M = members.c
_id = param("row_id")
_CHUNKS = (8, 64, 500)
_CHUNK = _CHUNKS[-1]


class Extension:
    """Appending ids to a progression that are not members yet, in order: first `ask`, then `add`, then `end`."""

    def __init__(self, work: UnitOfWork, id: str, ids: Iterable[str]) -> None:
        self._work, self._id = work, id
        self._ids = list(dict.fromkeys(ids))

    def ask(self, batch: Batch) -> None:
        """Lock the progression and look for members, with a batch."""
        self._locked, self._next = batch.row(LOCK, row_id=self._id), batch.row(NEXT, row_id=self._id)
        self._found = _ask_present(batch, self._id, self._ids)

    def plan(self) -> bool:
        """Decide what to append, after `ask`; whether the published array is to be rewritten then. NotFound."""
        if self._locked.result is None:
            raise NotFound("progression", self._id)
        assert self._next.result is not None
        there = {message_id for found in self._found for (message_id,) in found.result}
        new = [message_id for message_id in self._ids if message_id not in there]
        self._folded, first = self._locked.result[0], self._next.result[0]
        self._rows, self._places = member_rows(self._id, first, new), first + len(new)
        return bool(new) and is_long(self._folded, self._places)

    def add(self, batch: Batch) -> None:
        """Append them with a batch, after `plan`."""
        batch.run_many(INSERT, self._rows)

    def end(self) -> None:
        """Rewrite the published array if it is time to, after `add`."""
        if self._rows:
            fold_if_long(self._work, self._id, self._folded, self._places)


@cache
def _present(count: int) -> Statement:
    """The SELECT of those of `count` ids that are members."""
    some = _M.message_id.in_([bindparam(f"member_{number}", type_=Label()) for number in range(count)])
    return Statement(select(_M.message_id).where(_M.progression_id == _id, some))


def _ask_present(batch: Batch, id: str, ids: Sequence[str]) -> list[Pending[list[Row]]]:
    """The members among the ids; looked up by id, so a long progression costs no more."""
    found = []
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        count = next(size for size in _CHUNKS if size >= len(chunk))
        padded = [*chunk, *[chunk[-1]] * (count - len(chunk))]
        found.append(batch.rows(_present(count), row_id=id, **{f"member_{number}": one for number, one in enumerate(padded)}))
    return found
