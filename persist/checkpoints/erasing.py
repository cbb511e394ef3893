"""Erasing checkpoints: threads that have the id of a session, and the memories of a namespace and those below it."""

from sqlalchemy import ColumnElement, or_, select

from persist.checkpoints.models import BELOW, memories, threads, vectors
from persist.db.operations.bounded_deletion import Condition
from persist.db.operations.erasing import NAMESPACE, SESSION, Erasable, ErasableRows, Key, Values, equal, holding
from persist.db.transactions.unit_of_work import UnitOfWork

_M = memories.c


class _Memories(ErasableRows):
    def find(self, work: UnitOfWork, selector: str, values: Values) -> list[Key]:
        if selector != NAMESPACE:
            return []
        left = select(vectors.c.namespace).where(_within(vectors.c.namespace, values))
        return self.keys(work, _within(_M.namespace, values), left)


def _within(column: ColumnElement[str], values: Values) -> Condition:
    # everything below a namespace sorts between its text plus "." and its text plus "/", the next character
    return or_(column.in_(values), *((column > f"{value}.") & (column < f"{value}/") for value in values))


ERASABLES: tuple[Erasable, ...] = (
    ErasableRows(threads, ("id",), {SESSION: equal(threads.c.id)}, [holding(table, "thread_id") for table in BELOW]),
    _Memories(
        memories,
        ("namespace",),
        {NAMESPACE: equal(_M.namespace)},
        (holding(vectors, "namespace"),),
        rooted=False,
    ),
)
