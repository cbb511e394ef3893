"""Upkeep: what pruning, erasing, exporting, the doctor and adoption have to know of one domain, said in its `upkeep.py`.

Of an aggregate, foreign keys say which rows go with a row of the root. A domain says the rest: which age counts and what may go,
what belongs to a person, and where the rows below go or stand in another order than that of their keys.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sqlalchemy import Column, ColumnElement, Table

from persist.db.dialects.findings import Problem
from persist.db.operations.adopting import Rules
from persist.db.operations.aggregates import Aggregate
from persist.db.operations.bounded_deletion import Below, Condition, Ids
from persist.db.operations.erasing import Erasable, ErasableRows, holding
from persist.db.operations.erasing_ways import By
from persist.db.operations.exporting import Exported, Rows, the_id
from persist.db.operations.pruning import AgedRows, Pruning
from persist.db.schema.shapes import Shapes
from persist.db.transactions.stand_ins import StandIns
from persist.db.transactions.unit_of_work import UnitOfWork

_NONE: Mapping[Table, Any] = MappingProxyType({})
Checkup = Callable[[UnitOfWork], Iterator[Problem]]
Hangs = Callable[[UnitOfWork, Mapping[str, Any], dict[Any, Any]], Iterator[tuple[Table, Mapping[str, Any], str | None]]]
"""Gives other rows by table and key, of a row's readable columns; of one that stays, the column that is emptied.

The dictionary keeps what it read, for the next row of the same repair.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The upkeep of one domain. What is left out, the domain has no need of.

    prunings   the rows that go by age, in the order in which they are pruned
    erasables  the things that belong to a person, in the order in which they are erased
    exports    the kinds of things that are exported one by one
    checkup    the doctor's check
    shapes     what stored values must be beyond their columns' types
    stand_ins  values in place of unreadable ones, where a row is better repaired than moved to the quarantine
    adoption   how tables of other programs are taken over
    hanging    by table, what is of no use without a row of it though no foreign key says so: it is set aside with that row
    """

    prunings: Sequence[Pruning] = ()
    erasables: Sequence[Erasable] = ()
    exports: Sequence[Exported] = ()
    checkup: Checkup | None = None
    shapes: Shapes = field(default_factory=dict)
    stand_ins: StandIns = field(default_factory=dict)
    adoption: Rules | None = None
    hanging: Mapping[Table, Hangs] = field(default_factory=dict)


def aged(
    aggregate: Aggregate,
    at: ColumnElement[Any],
    *,
    only: Mapping[Table, Condition] = _NONE,
    order: Mapping[Table, Sequence[ColumnElement[Any]]] = _NONE,
    **options: Any,
) -> AgedRows:
    """The pruning by the age `at`. `only`: of these tables only such rows go. `options`: as of AgedRows."""

    def belonging(table: Table, column: Column[Any]) -> Below:
        def of(ids: Ids) -> Condition:
            return column.in_(ids) & only[table] if table in only else column.in_(ids)

        return Below(table, of, order=order.get(table, ()))

    return AgedRows(aggregate.root, at, aggregate.key, below=[belonging(*one) for one in aggregate.below.items()], **options)


def erasable(aggregate: Aggregate, by: By, *, kind: type[ErasableRows] = ErasableRows, **options: Any) -> ErasableRows:
    """What is erased whole, found `by` columns of the root. `kind`, `options`: as of ErasableRows."""
    below = [holding(table, str(column.key)) for table, column in aggregate.below.items()]
    return kind(aggregate.root, (str(aggregate.key.key),), by, below, **options)


def exported(
    aggregate: Aggregate,
    kind: str,
    *,
    order: Mapping[Table, Sequence[Column[Any]]] = _NONE,
    before: Sequence[Rows] = (),
    after: Sequence[Rows] = (),
    also: Column[str] | None = None,
) -> Exported:
    """The export of one row of the root with all below it, and with rows that stand `before` or `after` these."""
    id = the_id()
    below = [
        Rows(table, column == id, tuple(order.get(table, table.primary_key.columns))) for table, column in aggregate.below.items()
    ]
    root = Rows(aggregate.root, aggregate.key == id, (aggregate.key,))
    return Exported(kind, aggregate.key, (*before, root, *below, *after), also)
