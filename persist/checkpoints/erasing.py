"""Erasing checkpoints: threads that have the id of a session, and the memories of a namespace and those below it."""

from sqlalchemy import Table, or_

from persist.checkpoints.models import BELOW, memories, threads, vectors
from persist.db.operations.erasing import NAMESPACE, SESSION, Dependent, Erasable, ErasableRows, Key, Values, equal
from persist.db.transactions.unit_of_work import UnitOfWork

_M = memories.c


class _Memories(ErasableRows):
    def find(self, work: UnitOfWork, selector: str, values: Values) -> list[Key]:
        if selector != NAMESPACE:
            return []
        # everything below a namespace sorts between its text plus "." and its text plus "/", the next character
        below = [(_M.namespace > f"{value}.") & (_M.namespace < f"{value}/") for value in values]
        return self.keys(work, or_(_M.namespace.in_(values), *below))


def _of_thread(table: Table) -> Dependent:
    return Dependent(table, lambda ids: table.c.thread_id.in_(ids))


ERASABLES: tuple[Erasable, ...] = (
    ErasableRows(threads, ("id",), {SESSION: equal(threads.c.id)}, [_of_thread(table) for table in BELOW]),
    _Memories(
        memories,
        ("namespace",),
        {NAMESPACE: equal(_M.namespace)},
        (Dependent(vectors, lambda ids: vectors.c.namespace.in_(ids)),),
        rooted=False,
    ),
)
