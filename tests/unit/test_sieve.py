"""The sieve: nothing that may be among the nearest is lost, and what is too far takes no room."""

import sqlite3
import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import inf, isclose, isfinite, isnan, nan, nextafter, sqrt
from typing import Any

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import LargeBinary, StaticPool, bindparam, create_engine, select

from persist.conversations.embeddings import unpack
from persist.conversations.models import messages
from persist.conversations.schemas import Metric
from persist.conversations.vector_search import (
    Candidates,
    InDatabase,
    InPython,
    Item,
    Margin,
    Query,
    Sieve,
    WithNumpy,
    measure,
    nearest,
)
from persist.db.dialects.sqlite.operations import SQLITE_VEC
from tests.cases import each
from tests.unit.float32 import with_functions


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 2), st.floats(0, 2), st.booleans()), max_size=60), st.integers(1, 10))
def test_nothing_that_may_be_among_the_nearest_is_lost(things: list[tuple[float, float, float, bool]], k: int) -> None:
    sieve = Sieve[int](k)
    for index, (distance, below, above, known) in enumerate(things):
        if known:
            sieve.add(index, distance - below, distance + above)
        else:
            sieve.add(index)
    kept = sieve.kept()
    assert kept == sorted(set(kept))
    order = sorted(range(len(things)), key=lambda index: things[index][0])
    farthest = things[order[:k][-1]][0] if order else 0.0
    assert set(kept) >= {index for index in order if things[index][0] <= farthest}


@each("falling", [False, True])
def test_a_sieve_forgets_what_is_too_far(falling: bool) -> None:
    sieve = Sieve[int](5)
    for number in reversed(range(20_000)) if falling else range(20_000):
        sieve.add(number, number - 0.5, number + 0.5)
        assert len(sieve._kept) <= 2100
    assert sorted(sieve.kept()) == [0, 1, 2, 3, 4, 5]


def test_a_range_that_is_no_number_is_too_far() -> None:
    sieve = Sieve[str](1)
    sieve.add("odd", nan, nan)
    assert sieve.kept() == []


# Distances and the ways to find the nearest: the ranges hold, nothing near is lost, and every way gives the same.


WAYS: list[Candidates] = [InPython(), WithNumpy(numpy), InDatabase(SQLITE_VEC)]
METRICS = list(Metric)

TINY, HUGE = 2.0**-149, 3.4028234663852886e38
"""The least and the greatest float32."""

plain = st.floats(-2.0, 2.0, width=32)
hard = st.sampled_from([0.0, -0.0, 1.0, -1.0, TINY, -TINY, 1e-30, 1e-20, 1e-15, 1e15, 1e20, HUGE, -HUGE])
anything = st.floats(width=32, allow_nan=False, allow_infinity=False)
numbers = st.one_of(plain, hard, anything)


def packed(vector: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(vector)}f", *vector)


def vectors(of: st.SearchStrategy[float], size: int) -> st.SearchStrategy[bytes]:
    return st.lists(of, min_size=size, max_size=size).map(packed)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[bytes, bytes]:
    size = draw(st.integers(1, 24))
    of = draw(st.sampled_from([plain, hard, anything, numbers]))
    return draw(vectors(of, size)), draw(vectors(of, size))


def exactly(metric: Metric, a: bytes, b: bytes) -> float:
    """By fractions, rounded where a root must be."""
    one = [Fraction(number) for (number,) in struct.iter_unpack("<f", a)]
    other = [Fraction(number) for (number,) in struct.iter_unpack("<f", b)]
    if metric is Metric.L2:
        return _root(sum((x - y) ** 2 for x, y in zip(one, other, strict=True)))
    lengths = sum(x * x for x in one) * sum(y * y for y in other)
    if not lengths:
        return 1.0
    dot = sum(x * y for x, y in zip(one, other, strict=True))
    return 1.0 - (-1 if dot < 0 else 1) * _root(Fraction(dot) ** 2 / lengths)


def _root(square: Fraction | int) -> float:
    return sqrt(Fraction(square) * 2**300) / 2.0**150  # in the middle of what floats can hold


@pytest.mark.parametrize("metric", METRICS)
@given(pairs())
def test_a_distance_is_what_the_numbers_say(metric: Metric, pair: tuple[bytes, bytes]) -> None:
    a, b = pair
    assert isclose(
        Query(a, metric).distance(b), exactly(metric, a, b), rel_tol=2**-50, abs_tol=2**-50 if metric == "cosine" else 0
    )


@pytest.mark.parametrize("metric", METRICS)
@given(pairs())
def test_a_distance_is_the_same_from_both_ends(metric: Metric, pair: tuple[bytes, bytes]) -> None:
    a, b = pair
    assert Query(a, metric).distance(b) == Query(b, metric).distance(a)


@given(st.integers(1, 24).flatmap(lambda size: vectors(numbers, size)))
def test_a_vector_is_at_no_distance_from_itself(vector: bytes) -> None:
    assert Query(vector, Metric.L2).distance(vector) == 0.0
    assert Query(vector, Metric.COSINE).distance(vector) == (0.0 if any(n for (n,) in struct.iter_unpack("<f", vector)) else 1.0)


@each("metric", METRICS)
@each("odd", [[nan, 1.0], [inf, 1.0], [-inf, inf], [inf, nan]])
def test_what_is_no_finite_number_has_no_distance(metric: Metric, odd: list[float]) -> None:
    assert isnan(Query(packed([1.0, 0.0]), metric).distance(packed(odd)))


@pytest.fixture(scope="module")
def database() -> Iterator[Any]:
    """A connection with the functions."""

    def connect() -> sqlite3.Connection:
        driver = sqlite3.connect(":memory:")
        assert with_functions(driver)
        return driver

    engine = create_engine("sqlite://", creator=connect, poolclass=StaticPool)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def measured(database: Any, query: Query, vector: bytes) -> float | None:
    """What the functions say of a vector."""
    asked = select(measure(SQLITE_VEC, query.metric, EMBEDDING))
    target = query.packed if query.metric is Metric.L2 else query.unit()
    found: float | None = database.execute(asked, {"query": target, "zero": bytes(len(target)), "vector": vector}).scalar()
    return found


EMBEDDING = bindparam("vector", type_=LargeBinary())


def holds(query: Query, margin: Margin, estimate: float, vector: bytes) -> bool:
    return bool(margin.low(estimate) <= query.distance(vector) <= margin.high(estimate))


@pytest.mark.parametrize("metric", METRICS)
@given(pairs())
def test_the_range_of_a_float_holds_the_distance(metric: Metric, pair: tuple[bytes, bytes]) -> None:
    query, vector = Query(pair[0], metric), pair[1]
    margin = Margin.of_floats(query)
    by_hand = query.estimate(unpack(vector))
    (by_numpy,) = WithNumpy(numpy).estimates(query, [vector])
    assert holds(query, margin, by_hand, vector)
    assert holds(query, margin, float(by_numpy), vector)


@pytest.mark.parametrize("metric", METRICS)
@given(pairs())
def test_the_range_of_a_float32_holds_the_distance(database: Any, metric: Metric, pair: tuple[bytes, bytes]) -> None:
    query, vector = Query(pair[0], metric), pair[1]
    estimate = measured(database, query, vector)
    if estimate is not None and isfinite(estimate):
        assert holds(query, Margin.of_float32(query), estimate, vector)


FAINT = [[5e-23, 3e-23], [2e-22, 1e-23], [1e-30, 0.0], [TINY, TINY], [1e-16, 3e-17], [0.0, 0.0]]
LOUD = [[1e16, 2e18], [3e19, 1e19], [HUGE, -HUGE], [1e15, 1e-15], [1.0, 2.0]]


@pytest.mark.parametrize("metric", METRICS)
@each("one", FAINT + LOUD)
@each("other", FAINT + LOUD)
def test_the_range_holds_where_squares_vanish_or_overflow(
    database: Any, metric: Metric, one: list[float], other: list[float]
) -> None:
    query, vector = Query(packed(one), metric), packed(other)
    estimate = measured(database, query, vector)
    assert estimate is None or not isfinite(estimate) or holds(query, Margin.of_float32(query), estimate, vector)
    assert holds(query, Margin.of_floats(query), query.estimate(unpack(vector)), vector)


@each("length", [1e-25, 1.0, 1e25])
def test_the_length_of_a_query_does_not_blur_a_cosine(database: Any, length: float) -> None:
    query = Query(packed([length, 2 * length]), Metric.COSINE)
    margin, estimate = Margin.of_float32(query), measured(database, query, packed([2.0, 1.0]))
    assert estimate is not None
    assert margin.low(estimate) <= 0.2 <= margin.high(estimate) <= 0.2001


def test_what_float32_cannot_tell_is_measured_exactly() -> None:
    asked: list[str] = []

    class Told:
        def measured(self, *_: Any, **__: Any) -> Iterator[list[tuple[str, float | None]]]:
            yield [("near", 1.0), ("overflowed", inf), ("undefined", None), ("far", 2.0)]

        def embeddings_of(self, ids: Sequence[str]) -> list[Item]:
            asked.extend(ids)
            return []

    scope: Any = Told()
    assert list(InDatabase(SQLITE_VEC).near(scope, Query(packed([1.0]), Metric.L2), 1)) == []
    assert asked == ["near", "overflowed", "undefined"]


@pytest.mark.parametrize("metric", METRICS)
def test_ordinary_vectors_are_measured_closely_in_float32(database: Any, metric: Metric) -> None:
    """The ranges would hold just as well if they told nothing apart."""
    random = numpy.random.default_rng(1)
    for size in (3, 384, 1536):
        query = Query(packed(random.standard_normal(size)), metric)
        vector = packed(random.standard_normal(size))
        estimate = measured(database, query, vector)
        assert estimate is not None
        margin = Margin.of_float32(query)
        assert holds(query, margin, estimate, vector)
        assert margin.high(estimate) - margin.low(estimate) < 0.002 * estimate


@each("metric", METRICS)
def test_a_sum_too_long_for_float32_tells_nothing(metric: Metric) -> None:
    margin = Margin.of_float32(Query(bytes(4 * 2**20), metric))
    assert (margin.low(0.0), margin.high(0.0)) == (-inf, inf)


class Rows:
    """A scope over a list, a few rows at a time."""

    def __init__(self, items: list[Item], database: Any) -> None:
        self._items, self._database = items, database

    def embeddings(self, size: int) -> Iterator[list[Item]]:
        found = [item for item in self._items if len(item[1]) == size]
        return (found[start : start + 3] for start in range(0, len(found), 3))

    def measured(self, size: int, distance: Any, **values: bytes) -> Iterator[list[tuple[str, float | None]]]:
        metric = Metric.L2 if "zero" not in values else Metric.COSINE
        assert distance is measure(SQLITE_VEC, metric, messages.c.embedding)
        asked = select(measure(SQLITE_VEC, metric, EMBEDDING))
        for chunk in self.embeddings(size):
            yield [(id, self._database.execute(asked, {**values, "vector": vector}).scalar()) for id, vector in chunk]

    def embeddings_of(self, ids: Sequence[str]) -> Iterator[Item]:
        wanted = set(ids)
        return (item for item in self._items if item[0] in wanted)


@st.composite
def searches(draw: st.DrawFn) -> tuple[bytes, list[Item], int]:
    """A query, vectors of two dimensions, some of them alike or odd, and how many are wanted."""
    size = draw(st.integers(1, 6))
    of = draw(st.sampled_from([plain, hard, numbers, st.floats(width=32)]))
    few = draw(st.lists(vectors(of, size), min_size=1, max_size=12))
    found = draw(st.lists(st.one_of(st.sampled_from(few), vectors(of, size + 1)), max_size=30))
    query = draw(vectors(draw(st.sampled_from([plain, hard])), size))
    ids = draw(st.permutations([f"m{index:02}" for index in range(len(found))]))
    return query, list(zip(ids, found, strict=True)), draw(st.integers(1, 8))


ALIKE = [(f"m{index:02}", packed([1.0, nextafter(1.0, 2.0)])) for index in range(9)]


@pytest.mark.parametrize("metric", METRICS)
@given(searches())
@example((packed([0.0, 0.0]), ALIKE, 4))
@example((packed([1.0, 1.0]), ALIKE, 4))
def test_every_way_finds_the_same(database: Any, metric: Metric, search: tuple[bytes, list[Item], int]) -> None:
    vector, items, k = search
    query = Query(vector, metric)
    expected = nearest(query, k, items)
    scope: Any = Rows(items, database)
    assert {way.name: nearest(query, k, way.near(scope, query, k)) for way in WAYS} == {way.name: expected for way in WAYS}
    measurable = [item for item in items if len(item[1]) == len(vector) and isfinite(query.distance(item[1]))]
    assert expected == sorted((query.distance(found), id) for id, found in measurable)[:k]
