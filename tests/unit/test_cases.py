"""A test that runs many cases fails with every case that fails, by name, and with no other."""

import inspect

import pytest

from tests.cases import each


def test_every_case_runs_and_those_that_fail_are_named() -> None:
    seen = []

    @each("case", [1, 2, 3, 4])
    def check(case: int, extra: int) -> None:
        seen.append(case + extra)
        assert case % 2
        with pytest.raises(ValueError, match="3"):
            raise ValueError(case)

    assert list(inspect.signature(check).parameters) == ["extra"]
    with pytest.raises(BaseExceptionGroup, match="3 of 4 cases of check failed") as caught:
        check(extra=10)
    assert seen == [11, 12, 13, 14]
    assert [error.__notes__[0] for error in caught.value.exceptions] == ["case: 1", "case: 2", "case: 4"]


def test_cases_of_several_names_multiply() -> None:
    seen = set()

    @each(("a", "b"), [(1, 2), (3, 4)], ids=str)
    @each("c", "xy")
    def check(a: int, b: int, c: str) -> None:
        seen.add((a, b, c))

    check()
    assert seen == {(1, 2, "x"), (1, 2, "y"), (3, 4, "x"), (3, 4, "y")}
