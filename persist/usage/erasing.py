"""Erasing usage: calls and sums of an owner or a session, and budgets on an owner or an instance. Sums of others stay."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from persist.db.operations.bounded_deletion import Condition
from persist.db.operations.erasing import OWNER, SESSION, Erasable, ErasableRows
from persist.db.operations.erasing_ways import Equal, Values, equal
from persist.usage.models import budgets, calls, rollups, spending
from persist.usage.schemas import Of, Source


@dataclass(frozen=True, slots=True)
class _Prefixed(Equal):
    """Selects rows in which a column holds one of the values behind one of the prefixes."""

    prefixes: tuple[str, ...]

    def __call__(self, values: Values) -> Condition:
        (column,) = self.columns
        return column.in_(self._with_prefixes(values))

    def matches(self, row: Mapping[str, Any], values: Collection[str]) -> bool:
        (column,) = self.columns
        return row.get(str(column.key)) in self._with_prefixes(values)

    def _with_prefixes(self, values: Collection[str]) -> list[str]:
        return [f"{prefix}:{value}" for prefix in self.prefixes for value in values]


_OF_THINGS = tuple(Source)

ERASABLES: tuple[Erasable, ...] = (
    *(
        ErasableRows(
            table,
            ("scope", "owner"),
            {OWNER: equal(table.c.owner), SESSION: _Prefixed((table.c.scope,), _OF_THINGS)},
            own_streams=False,
            rooted=False,
        )
        for table in (calls, rollups)
    ),
    # what is used of budgets before these, and by itself: the log has rows of both
    *(
        ErasableRows(
            table,
            ("key",),
            {OWNER: _Prefixed((table.c.key,), (Of.OWNER,)), SESSION: _Prefixed((table.c.key,), (Of.INSTANCE,))},
            own_streams=False,
            rooted=False,
        )
        for table in (spending, budgets)
    ),
)
