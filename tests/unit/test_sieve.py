"""The sieve: nothing that may be among the nearest is lost, and what is too far takes no room."""

from math import nan

from hypothesis import given
from hypothesis import strategies as st

from persist.conversations.vector_search import Sieve
from tests.cases import each


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 2), st.floats(0, 2), st.booleans()), max_size=60),
    st.integers(1, 10),
)
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


def test_all_that_are_equally_near_are_kept() -> None:
    sieve = Sieve[int](3)
    for number in range(5000):
        sieve.add(number, 1.0, 1.0)
    assert sieve.kept() == list(range(5000))


def test_a_range_that_is_no_number_is_too_far() -> None:
    sieve = Sieve[str](1)
    sieve.add("odd", nan, nan)
    assert sieve.kept() == []
