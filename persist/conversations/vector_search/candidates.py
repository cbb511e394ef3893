"""Finds messages that may be among the nearest: with sqlite-vec, with numpy, or in Python, whichever is available."""

from collections.abc import Iterable
from functools import cache
from math import isfinite
from struct import Struct
from typing import Any, Protocol

from sqlalchemy import LargeBinary, bindparam, case, func, literal
from sqlalchemy.sql.elements import ColumnElement

from persist.conversations.models import messages
from persist.conversations.schemas import Metric
from persist.conversations.vector_search.scope import Scope
from persist.conversations.vector_search.similarity import Item, Margin, Query, Sieve
from persist.db.dialects.backends import vector_functions_of
from persist.db.dialects.vector_functions import VectorFunctions
from persist.db.transactions.unit_of_work import UnitOfWork

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
        """See Candidates."""
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
        """See Candidates."""
        margin, sieve = Margin.of_floats(query), Sieve[Item](k)
        for rows in scope.embeddings(len(query.packed)):
            estimates = self.estimates(query, [packed for _, packed in rows])
            for index in self._numpy.flatnonzero(margin.low(estimates) <= sieve.bound):
                estimate = float(estimates[index])
                sieve.add((rows[index][0], rows[index][1]), margin.low(estimate), margin.high(estimate))
        return sieve.kept()

    def estimates(self, query: Query, vectors: list[bytes]) -> Any:
        """`Query.estimate` for many vectors at once."""
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
        """See Candidates."""
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
