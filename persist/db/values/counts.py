"""Counts that say whether they are exact."""

from typing import Literal, Self

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
