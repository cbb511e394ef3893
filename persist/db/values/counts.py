"""Counts that say whether they are exact, and the number that stands for none."""

from typing import Literal, Self

UNBOUNDED = 2**62
"""More than there are rows or bytes: the limit of a statement without one, the end of a range without one.

No sequence gets there, and it has a successor, which the highest number of the databases has not.
"""

Basis = Literal["exact", "estimate", "at_least"]


class Count(int):
    """A number of rows: an int, with `basis`, which says how it was found.

    "exact"     every row was counted
    "estimate"  the planner of the database expects so many; the true number may be smaller or greater
    "at_least"  counting stopped there: there are so many, or more
    """

    basis: Basis

    def __new__(cls, number: int, basis: Basis = "exact") -> Self:
        count = super().__new__(cls, number)
        count.basis = basis
        return count

    @property
    def exact(self) -> bool:
        """Whether every row was counted."""
        return self.basis == "exact"
