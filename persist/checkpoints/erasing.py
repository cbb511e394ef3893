"""Erasing checkpoints: threads that have the id of a session, and the memories of a namespace and those below it."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import or_

from persist.checkpoints.models import BELOW, memories, threads, vectors
from persist.db.operations.bounded_deletion import Condition
from persist.db.operations.erasing import NAMESPACE, SESSION, Erasable, ErasableRows, holding
from persist.db.operations.erasing_ways import Equal, Values, Way, equal

_M = memories.c


class _Within(Equal):
    """Selects what is of one of these namespaces, or of one below."""

    def __call__(self, values: Values) -> Condition:
        (column,) = self.columns
        # everything below a namespace sorts between its text plus "." and its text plus "/", the next character
        return or_(column.in_(values), *((column > f"{value}.") & (column < f"{value}/") for value in values))

    def matches(self, row: Mapping[str, Any], values: Collection[str]) -> bool:
        (column,) = self.columns
        name = row.get(str(column.key))
        return isinstance(name, str) and any(name == value or name.startswith(f"{value}.") for value in values)


ERASABLES: tuple[Erasable, ...] = (
    ErasableRows(threads, ("id",), {SESSION: equal(threads.c.id)}, [holding(table, "thread_id") for table in BELOW]),
    ErasableRows(
        memories,
        ("namespace",),
        {NAMESPACE: _Within((_M.namespace,))},
        (holding(vectors, "namespace"),),
        further=(Way(NAMESPACE, _Within((vectors.c.namespace,)), (vectors.c.namespace,)),),
        rooted=False,
    ),
)
