"""Search by embedding: covered messages, candidates for the nearest, and exact distances."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from heapq import heappush, heappushpop, nsmallest
from math import dist, fsum, hypot, inf, isfinite, nan, sqrt
from operator import mul
from struct import Struct
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import ColumnElement, Integer, LargeBinary, Text, bindparam, case, func, literal, select, type_coerce

from persist.conversations.embeddings import pack, unpack
from persist.conversations.models import members, messages
from persist.conversations.schemas import Metric
from persist.conversations.storage.lineage import ITEMS
from persist.conversations.storage.records import BRANCHES, CHUNK, SESSIONS
from persist.db.dialects.backends import vector_functions_of
from persist.db.dialects.interface import VectorFunctions
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork, chunks
from persist.db.unreadable.cells import need
from persist.db.values.arguments import UNBOUNDED

# A product of two float32 is exact in a float and fsum rounds once: exact distances depend on no order of summation. A fast
# estimate with its error leaves only vectors that may be among the nearest to be measured exactly.

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
        """The margin of float sums of products, one per dimension, in any order: twice half a unit of rounding each."""
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
        return estimate * self._less - self._absolute

    def high(self, estimate: float) -> float:
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
        return [thing for low, thing in self._kept if low <= self.bound]


def nearest(query: Query, k: int, items: Iterable[Item]) -> list[tuple[float, str]]:
    """The exact distances and ids of the `k` nearest, ties by id. Vectors of other dimensions or with NaN or inf are skipped."""
    size = len(query.packed)
    measured = ((query.distance(packed), id) for id, packed in items if len(packed) == size)
    return nsmallest(k, (pair for pair in measured if isfinite(pair[0])))


# The messages that a search covers, read in chunks: memory does not grow with their number.

_M = messages.c
_CHUNK_BYTES = 2**20
_OF_SIZE = func.length(_M.embedding) == bindparam("size", type_=Integer())
_IN_POOL = _M.id.in_(select(members.c.message_id).where(members.c.progression_id == param("pool")))
_IN_HISTORY = _M.id.in_(select(members.c.message_id).select_from(ITEMS))


@cache
def scoped(column: ColumnElement[Any], in_pool: bool, in_history: bool) -> Statement:
    """The ids, and this column, of the messages whose embedding has `size` bytes."""
    query = select(_M.id, column).where(_OF_SIZE)
    query = query.where(_IN_POOL) if in_pool else query
    return Statement(query.where(_IN_HISTORY) if in_history else query)


class Scope:
    """Every message, or those in a session's pool, in a branch's effective history, or in both. Raises NotFound."""

    def __init__(self, work: UnitOfWork, *, session_id: str | None, branch_id: str | None) -> None:
        self._work = work
        self._filters = session_id is not None, branch_id is not None
        self._values: dict[str, Any] = {}
        if session_id is not None:
            self._values["pool"] = SESSIONS.get(work, work.label("session_id", session_id)).progression_id
        if branch_id is not None:
            branch = BRANCHES.get(work, work.label("branch_id", branch_id))
            need(branch.progression_id, branch.parent_branch_id, branch.forked_at_ord)
            self._values |= {"row_id": branch.id, "first": 0, "end": UNBOUNDED}

    def embeddings(self, size: int) -> Iterator[Sequence[Row]]:
        """Yield chunks of (message id, embedding) for embeddings of `size` bytes."""
        prepared = scoped(_M.embedding, *self._filters)
        return chunks(self._work, prepared, max(1, _CHUNK_BYTES // size), size=size, **self._values)

    def measured(self, size: int, measure: ColumnElement[Any], **values: Any) -> Iterator[Sequence[Row]]:
        """Yield chunks of (message id, value of the expression `measure`) for embeddings of `size` bytes."""
        return chunks(self._work, scoped(measure, *self._filters), CHUNK, size=size, **self._values, **values)

    def embeddings_of(self, ids: Sequence[str]) -> Iterator[Item]:
        """The embeddings of these messages; deleted messages are left out."""
        for start in range(0, len(ids), CHUNK):
            any_id = type_coerce(_M.id, Text())  # another program may have written one that is too long for statements
            query = select(_M.id, _M.embedding).where(any_id.in_(ids[start : start + CHUNK]), _M.embedding.is_not(None))
            rows: list[Any] = self._work.found(query)
            yield from rows


# At these lengths no sum of squares overflows in float32, and what underflows is too small to matter.
_SHORTEST, _LONGEST = 1e-15, 1e15


class Candidates(Protocol):
    """Narrows a scope down to the messages that are then ranked by exact distance; the extension point for indexes.

    The result contains the `k` nearest of the scope; further messages cost time and change nothing. The classes below read
    every row, so they always keep that promise. An approximate index would be one more class that reads few rows, keeps it as
    well as the index's recall, and needs a change only in `candidates`.
    """

    name: str

    def near(self, scope: Scope, query: Query, k: int) -> Iterable[Item]:
        """Every message of the scope that may be among the `k` nearest, once."""


class InPython:
    """Reads every row and measures it in Python."""

    name = "python"

    def near(self, scope: Scope, query: Query, k: int) -> Iterable[Item]:
        margin, sieve = Margin.of_floats(query), Sieve[Item](k)
        numbers = Struct(f"<{len(query.numbers)}f").unpack
        for rows in scope.embeddings(len(query.packed)):
            for id, packed in rows:
                estimate = query.estimate(numbers(packed))
                if margin.low(estimate) <= sieve.bound:
                    sieve.add((id, packed), margin.low(estimate), margin.high(estimate))
        return sieve.kept()


class WithNumpy:
    """Reads every row and measures a matrix of vectors at a time."""

    name = "numpy"

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy

    def near(self, scope: Scope, query: Query, k: int) -> Iterable[Item]:
        margin, sieve = Margin.of_floats(query), Sieve[Item](k)
        for rows in scope.embeddings(len(query.packed)):
            estimates = self.estimates(query, [packed for _, packed in rows])
            for index in self._numpy.flatnonzero(margin.low(estimates) <= sieve.bound):
                estimate = float(estimates[index])
                sieve.add((rows[index][0], rows[index][1]), margin.low(estimate), margin.high(estimate))
        return sieve.kept()

    def estimates(self, query: Query, vectors: list[bytes]) -> Any:
        numpy = self._numpy
        matrix = numpy.frombuffer(b"".join(vectors), "<f4").astype("f8").reshape(len(vectors), -1)
        target = numpy.array(query.numbers)
        with numpy.errstate(all="ignore"):  # bytes of other programs may hold NaN and infinity
            if query.metric is Metric.L2:
                matrix -= target
                return numpy.sqrt(numpy.einsum("ij,ij->i", matrix, matrix))
            scale = numpy.sqrt(numpy.einsum("ij,ij->i", matrix, matrix)) * query.norm
            return 1.0 - numpy.where(scale == 0.0, 0.0, matrix @ target / scale)


@cache
def measure(functions: VectorFunctions, metric: Metric, embedding: ColumnElement[bytes | None]) -> ColumnElement[Any]:
    """SQL for the distance of an embedding from `query`; NULL if float32 cannot tell."""
    l2, cosine = getattr(func, functions.l2), getattr(func, functions.cosine)
    query = bindparam("query", type_=LargeBinary())
    if metric is Metric.L2:
        distance: ColumnElement[Any] = l2(embedding, query)
        return distance
    length = l2(embedding, bindparam("zero", type_=LargeBinary()))
    return case((length.between(literal(_SHORTEST), literal(_LONGEST)), cosine(embedding, query)))


class InDatabase:
    """Measures in the database, in float32; reads only rows that may be among the nearest."""

    def __init__(self, functions: VectorFunctions) -> None:
        self._functions = functions
        self.name = functions.extension

    def near(self, scope: Scope, query: Query, k: int) -> Iterable[Item]:
        margin, sieve = Margin.of_float32(query), Sieve[str](k)
        size = len(query.packed)
        values = {"query": query.packed} if query.metric is Metric.L2 else {"query": query.unit(), "zero": bytes(size)}
        for rows in scope.measured(size, measure(self._functions, query.metric, messages.c.embedding), **values):
            for id, estimate in rows:
                if estimate is None or not isfinite(estimate):
                    sieve.add(id)
                elif margin.low(estimate) <= sieve.bound:
                    sieve.add(id, margin.low(estimate), margin.high(estimate))
        return scope.embeddings_of(sieve.kept())


def candidates(work: UnitOfWork) -> Candidates:
    """The fastest implementation available to this transaction's connection and this Python."""
    own = work.own_connection
    functions = None if own is None else vector_functions_of(work.runtime.dialect, own)
    if functions is not None:
        return InDatabase(functions)
    try:
        import numpy
    except ImportError:
        return InPython()
    return WithNumpy(numpy)
