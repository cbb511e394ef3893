"""Upkeep: what pruning, erasing, exporting, the doctor and adoption have to know of one domain, said in its `upkeep.py`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from persist.db.dialects.findings import Problem
from persist.db.operations.adopting import Rules
from persist.db.operations.erasing import Erasable
from persist.db.operations.exporting import Exported
from persist.db.operations.pruning import Pruning
from persist.db.schema.shapes import Shapes
from persist.db.transactions.stand_ins import StandIns
from persist.db.transactions.unit_of_work import UnitOfWork

Checkup = Callable[[UnitOfWork], Iterator[Problem]]


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
    """

    prunings: Sequence[Pruning] = ()
    erasables: Sequence[Erasable] = ()
    exports: Sequence[Exported] = ()
    checkup: Checkup | None = None
    shapes: Shapes = field(default_factory=dict)
    stand_ins: StandIns = field(default_factory=dict)
    adoption: Rules | None = None
