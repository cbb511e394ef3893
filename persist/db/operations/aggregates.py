"""Aggregates: a root table with the tables below it, from which its pruning, erasing and exporting are made.

The foreign keys to the root's key say which rows belong to a row of the root. A domain says the rest: which age counts and what
may go, what belongs to a person, and where the rows below go or stand in another order than that of their keys.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import Column, Table
from sqlalchemy.sql.elements import ColumnElement

from persist.db.changes.event_streams import rows_below
from persist.db.operations.bounded_deletion import Below, Condition, Ids
from persist.db.operations.erasing import ErasableRows, holding
from persist.db.operations.erasing_ways import By
from persist.db.operations.exporting import Exported, Rows, the_id
from persist.db.operations.pruning import AgedRows

Order = Mapping[Table, Sequence[ColumnElement[Any]]]
_NONE: Mapping[Table, Any] = MappingProxyType({})


class Aggregate:
    """Rows of a root table, each with what belongs to it in other tables.

    also   tables that name their row of the root in this column without a foreign key to it; they go first
    first  tables below that go before the others, in this order
    """

    def __init__(self, root: Table, *, also: Mapping[Table, str] = _NONE, first: Iterable[Table] = ()) -> None:
        (key,) = root.primary_key
        self.root, self.key = root, key
        below = {**{table: table.c[name] for table, name in also.items()}, **rows_below(root)}
        self.below: Mapping[Table, Column[Any]] = {table: below[table] for table in dict.fromkeys([*first, *below])}
        """The tables below the root, children first, with the column that holds the root's key."""

    def aged(
        self, at: ColumnElement[Any], *, only: Mapping[Table, Condition] = _NONE, order: Order = _NONE, **options: Any
    ) -> AgedRows:
        """The pruning by the age `at`. `only`: of these tables only such rows go. `options`: as of AgedRows."""

        def belonging(table: Table, column: Column[Any]) -> Below:
            def of(ids: Ids) -> Condition:
                return column.in_(ids) & only[table] if table in only else column.in_(ids)

            return Below(table, of, order=order.get(table, ()))

        return AgedRows(self.root, at, self.key, below=[belonging(*one) for one in self.below.items()], **options)

    def erasable(
        self, by: By, *, kind: type[ErasableRows] = ErasableRows, together: bool = False, **options: Any
    ) -> ErasableRows:
        """What is erased whole, found `by` columns of the root. `options`: as of ErasableRows."""
        below = [holding(table, str(column.key)) for table, column in self.below.items()]
        return kind(self.root, (str(self.key.key),), by, below, **options)

    def exported(
        self,
        kind: str,
        *,
        order: Mapping[Table, Sequence[Column[Any]]] = _NONE,
        before: Sequence[Rows] = (),
        after: Sequence[Rows] = (),
        also: Column[str] | None = None,
    ) -> Exported:
        """The export of one row of the root with all below it, and with rows that stand `before` or `after` these."""
        below = [
            Rows(table, column == the_id(), tuple(order.get(table, table.primary_key.columns)))
            for table, column in self.below.items()
        ]
        return Exported(kind, self.key, (*before, Rows(self.root, self.key == the_id(), (self.key,)), *below, *after), also)
