"""How far packed vectors are from a query: exact distances, and the sieve that spares computing most of them.

A product of two float32 numbers is exact in a float, and fsum rounds once, so an exact distance does not depend on the order
of anything. Whoever measures many vectors quickly gives each a range that holds its exact distance; the sieve keeps what may
be among the nearest, and only that is measured exactly and ranked.
"""

from collections.abc import Iterable, Sequence
from heapq import heappush, heappushpop, nsmallest
from math import dist, fsum, hypot, inf, isfinite, nan, sqrt
from operator import mul
from typing import Any, Generic, TypeVar

from persist.conversations.embeddings import pack, unpack
from persist.conversations.schemas import Metric

T = TypeVar("T")
Item = tuple[str, bytes]
"""A message's id and its packed embedding."""


class Query:
    """The vector that all others are measured from: packed, and as float32 numbers widened."""

    __slots__ = ("_squared", "metric", "norm", "numbers", "packed")

    def __init__(self, packed: bytes, metric: Metric) -> None:
        self.packed, self.metric = packed, metric
        self.numbers = unpack(packed)
        self._squared = _squared(self.numbers)
        self.norm = sqrt(self._squared)

    def distance(self, packed: bytes) -> float:
        """The exact distance of a vector of the same dimension; NaN if it holds what is no finite number.

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
        # one root of the product: of a vector and itself it is exactly their dot product
        cosine = fsum(map(mul, self.numbers, numbers)) / sqrt(self._squared * squared)
        return 1.0 - max(-1.0, min(1.0, cosine))

    def estimate(self, numbers: Sequence[float]) -> float:
        """The distance within `Margin.of_floats`; it is not finite if one of the numbers is not."""
        if self.metric is Metric.L2:
            return dist(self.numbers, numbers)
        scale = self.norm * hypot(*numbers)
        return 1.0 - sum(map(mul, self.numbers, numbers)) / scale if scale else 1.0

    def unit(self) -> bytes:
        """The query at length 1, packed; a zero vector stays what it is."""
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
        """Sums of a product per dimension in floats, in whatever order: half a unit of rounding each, doubled."""
        error = (len(query.numbers) + 8) * 2.0**-52
        return cls(error, 0.0) if query.metric is Metric.L2 else cls(0.0, error)

    @classmethod
    def of_float32(cls, query: Query) -> "Margin":
        """The same in float32, where a square can also vanish."""
        size = len(query.numbers)
        error = (size + 16) * 2.0**-22
        if error > 0.25:  # so long a sum says nothing
            return cls(0.0, inf)
        return cls(error, sqrt(size) * 2.0**-60) if query.metric is Metric.L2 else cls(0.0, error)

    def low(self, estimate: Any) -> Any:
        """The least that the exact distance can be: of a float, or of every one in an array."""
        return estimate * self._less - self._absolute

    def high(self, estimate: float) -> float:
        """The most it can be."""
        return estimate * self._more + self._absolute


class Sieve(Generic[T]):
    """Of things added one by one with the range of their distance, those that may be among the `k` nearest."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._kept: list[tuple[float, T]] = []
        self._highest: list[float] = []  # the k least, negated: the first is the greatest of them
        self._full = 2 * k + 1000
        self.bound = inf
        """Whatever is certainly farther than this is not among them."""

    def add(self, thing: T, low: float = -inf, high: float = inf) -> None:
        """Without a range nothing is known of it, and it is kept."""
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
        """What passed, as it was added."""
        return [thing for low, thing in self._kept if low <= self.bound]


def nearest(query: Query, k: int, items: Iterable[Item]) -> list[tuple[float, str]]:
    """The exact distances and ids of the `k` nearest, equal distances by id.

    Vectors of another dimension are skipped, and those that hold what is no finite number.
    """
    size = len(query.packed)
    measured = ((query.distance(packed), id) for id, packed in items if len(packed) == size)
    return nsmallest(k, (pair for pair in measured if isfinite(pair[0])))
