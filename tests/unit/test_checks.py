"""The checks that verbs of every domain share: each gives the value back, or names what was wrong with it."""

import math
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest

from persist.db.values.arguments import (
    check_choice,
    check_count,
    check_flag,
    check_timedelta,
    optional_amount,
    optional_count,
    optional_label,
)
from persist.errors import InvalidValue


class Word(StrEnum):
    ONE = "one"
    TWO = "two"


def refused(check: Callable[..., Any], *values: Any, **options: Any) -> None:
    for value in values:
        with pytest.raises(InvalidValue) as error:
            check("the.path", value, **options)
        assert error.value.path == "the.path", value


def test_a_label_may_be_absent_but_not_empty() -> None:
    assert optional_label("p", None) is None
    assert optional_label("p", "é") == "é"
    refused(optional_label, "", 7, b"x", "a\x00b", "\ud83d", True)
    assert optional_label("p", "", empty=True) == ""
    refused(optional_label, 7, "a\x00b", empty=True)


def test_a_word_is_one_of_the_vocabulary() -> None:
    assert check_choice("p", "one", Word) is Word.ONE
    assert check_choice("p", Word.TWO, Word) is Word.TWO
    for bad in ("three", "", "ONE", "one ", None, 1, ["one"], {"one": 1}, b"one"):
        with pytest.raises(InvalidValue) as error:
            check_choice("the.path", bad, Word)
        assert error.value.path == "the.path"
        assert "one, two" in error.value.reason


def test_a_flag_is_true_or_false() -> None:
    assert check_flag("p", True) is True
    assert check_flag("p", False) is False
    refused(check_flag, 1, 0, None, "true", [])


def test_a_count_is_whole_from_0_and_fits_64_bits() -> None:
    assert [check_count("p", value) for value in (0, 7, 2**63 - 1)] == [0, 7, 2**63 - 1]
    refused(check_count, -1, 2**63, True, 1.0, "1", None, math.nan)
    assert optional_count("p", None) is None
    assert optional_count("p", 0) == 0
    refused(optional_count, -1, 2**63, False, 1.0, "1")


def test_an_amount_is_finite_from_0() -> None:
    assert optional_amount("p", None) is None
    for value in (0, 7, 0.25, 2**63, 5e-324, 1.7976931348623157e308):
        found = optional_amount("p", value)
        assert (found, type(found)) == (float(value), float)
    refused(optional_amount, -1, -0.5, True, "1", math.nan, math.inf, -math.inf, 10**400)


def test_a_span_is_a_length_of_time() -> None:
    for value in (timedelta(), timedelta(microseconds=1), timedelta.max):
        assert check_timedelta("p", value) is value
    refused(check_timedelta, -timedelta(microseconds=1), timedelta.min, 7, None, "1h")


def test_a_span_that_something_lasts_is_a_millisecond_at_least() -> None:
    assert check_timedelta("p", timedelta(milliseconds=1), zero=False) == timedelta(milliseconds=1)
    refused(check_timedelta, timedelta(), timedelta(microseconds=999), -timedelta(1), 7, zero=False)
