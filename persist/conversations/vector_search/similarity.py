"""Distances of packed vectors from a query: exact ones, and a sieve that avoids computing most of them.

A product of two float32 numbers is exact in a float, and fsum rounds once, so an exact distance does not depend on the order
of summation. A fast estimate gives each vector a range that contains its exact distance; the sieve keeps vectors that may be
among the nearest, and only these are measured exactly and ranked.
"""

from collections.abc import Iterable, Sequence
from heapq import heappush, heappushpop, nsmallest
from math import dist, fsum, hypot, inf, isfinite, nan, sqrt
from operator import mul
from typing import Any, Generic, TypeVar

from persist.conversations.schemas import Metric
from persist.conversations.storage.embeddings import pack, unpack

T = TypeVar("T")
Item = tuple[str, bytes]
"""A message's id and its packed embedding."""


class Query:
    """The query vector: packed, and as floats of its float32 numbers."""

    __slots__ = ("_squared", "metric", "norm", "numbers", "packed")

    def __init__(self, packed: bytes, metric: Metric) -> None:
        self.packed, self.metric = packed, metric
        self.numbers = unpack(packed)
        self._squared = _squared(self.numbers)
        self.norm = sqrt(self._squared)

    def distance(self, packed: bytes) -> float:
        """The exact distance of a vector of the same dimension; NaN if one of its numbers is not finite.

        cosine: 1 - cos, from 0 to 2, and 1 where either vector is zero and has no direction. l2: Euclidean.
        """
        numbers = unpack(packed)
        if self.metric is Metric.L2:
            length = dist(self.numbers, numbers)
            return length if isfinite(length) else nan
        squared = _squared(numbers)
        if not isfinite(squared):
            return nan
        if not squared or not self._squared:
            return 1.0
        # the root of the product, not the product of roots: for a vector and itself it equals their dot product exactly
        cosine = fsum(map(mul, self.numbers, numbers)) / sqrt(self._squared * squared)
        return 1.0 - max(-1.0, min(1.0, cosine))

    def estimate(self, numbers: Sequence[float]) -> float:
        """The distance, accurate within `Margin.of_floats`; not finite if one of the numbers is not."""
        if self.metric is Metric.L2:
            return dist(self.numbers, numbers)
        scale = self.norm * hypot(*numbers)
        return 1.0 - sum(map(mul, self.numbers, numbers)) / scale if scale else 1.0

    def unit(self) -> bytes:
        """The query scaled to length 1, packed; a zero vector stays zero."""
        scale = self.norm or 1.0
        packed = pack("query", [number / scale for number in self.numbers])
        assert packed is not None
        return packed


def _squared(numbers: Sequence[float]) -> float:
    return fsum(map(mul, numbers, numbers))


class Margin:
    """How far an estimate may be from the exact distance: from `low` to `high` for one that is finite."""

    __slots__ = ("_absolute", "_less", "_more")

    def __init__(self, relative: float, absolute: float) -> None:
        self._less, self._more, self._absolute = 1.0 - relative, 1.0 + relative, absolute

    @classmethod
    def of_floats(cls, query: Query) -> "Margin":
        """The margin of sums of one product per dimension in floats, in any order: twice half a unit of rounding each."""
        error = (len(query.numbers) + 8) * 2.0**-52
        return cls(error, 0.0) if query.metric is Metric.L2 else cls(0.0, error)

    @classmethod
    def of_float32(cls, query: Query) -> "Margin":
        """The margin of such sums in float32, where a square can also underflow."""
        size = len(query.numbers)
        error = (size + 16) * 2.0**-22
        if error > 0.25:  # a sum of so many terms tells nothing
            return cls(0.0, inf)
        return cls(error, sqrt(size) * 2.0**-60) if query.metric is Metric.L2 else cls(0.0, error)

    def low(self, estimate: Any) -> Any:
        """A lower bound of the exact distance, for a float or for each element of an array."""
        return estimate * self._less - self._absolute

    def high(self, estimate: float) -> float:
        """An upper bound of the exact distance."""
        return estimate * self._more + self._absolute


class Sieve(Generic[T]):
    """Collects items, each added with a range of its distance, and keeps those that may be among the `k` nearest."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._kept: list[tuple[float, T]] = []
        self._highest: list[float] = []  # the k least upper bounds, negated: the first is the greatest of them
        self._full = 2 * k + 1000
        self.bound = inf
        """An item whose distance is certainly greater than this is not among the `k` nearest."""

    def add(self, thing: T, low: float = -inf, high: float = inf) -> None:
        """Add an item whose distance is from `low` to `high`; without a range it is always kept."""
        if not low <= self.bound:
            return
        self._kept.append((low, thing))
        if len(self._highest) < self._k:
            heappush(self._highest, -high)
        else:
            heappushpop(self._highest, -high)
        if len(self._highest) == self._k:
            self.bound = -self._highest[0]
        if len(self._kept) > self._full:
            self._kept = [pair for pair in self._kept if pair[0] <= self.bound]
            self._full = 2 * len(self._kept) + 1000

    def kept(self) -> list[T]:
        """The items that may be among the nearest, in the order they were added."""
        return [thing for low, thing in self._kept if low <= self.bound]


def nearest(query: Query, k: int, items: Iterable[Item]) -> list[tuple[float, str]]:
    """The exact distances and ids of the `k` nearest, equal distances by id.

    Vectors of another dimension, and those with a number that is not finite, are skipped.
    """
    size = len(query.packed)
    measured = ((query.distance(packed), id) for id, packed in items if len(packed) == size)
    return nsmallest(k, (pair for pair in measured if isfinite(pair[0])))
