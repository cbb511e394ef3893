"""Aggregates: a root table with the tables below it, whose foreign keys to the root's key say which rows belong to a row of it.

`persist.db.operations.upkeep` makes pruning, erasing and exporting from one.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from sqlalchemy import Column, Table, delete, exists, select

from persist.db.changes.event_streams import rows_below
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork

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
        """The tables below the root, with the column that holds the root's key, in the order in which their rows go."""

    def delete(self, work: UnitOfWork, id: str) -> bool:
        """Delete a row of the root with everything below it; False for an unknown id. Ends the batch of the transaction."""
        lock, *below, root = self._deletion
        key = {"row_id": work.label(str(self.key.key), id)}
        with work.batch(last=True) as batch:
            batch.lock(lock, **key)  # what others are writing below it is there or waits
            for statement in below:
                batch.run(statement, **key)
            deleted = batch.run(root, **key)
        return deleted.result == 1

    @cached_property
    def _deletion(self) -> Sequence[Statement]:
        """The statements that lock the row, delete what is below it from the last table to the first, and delete the row.

        A row that another transaction has made in this very moment stays: it comes after.
        """
        this = self.key == param("row_id")
        is_empty = [~exists().where(column == self.key) for column in self.below.values()]
        return (
            Statement(select(self.key).where(this).with_for_update()),
            *(Statement(delete(table).where(column == param("row_id"))) for table, column in reversed([*self.below.items()])),
            Statement(delete(self.root).where(this, *is_empty)),
        )
