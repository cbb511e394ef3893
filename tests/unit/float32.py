"""The functions of sqlite-vec in float32 arithmetic, for Pythons whose sqlite3 loads no extension."""

import sqlite3
from typing import Any

import numpy

from persist.db.dialects.sqlite.operations import SQLITE_VEC, load_sqlite_vec


def with_functions(driver: sqlite3.Connection) -> bool:
    """Load the extension, or stand in for it."""
    if not load_sqlite_vec(driver):
        driver.create_function(SQLITE_VEC.l2, 2, _l2, deterministic=True)
        driver.create_function(SQLITE_VEC.cosine, 2, _cosine, deterministic=True)
    return True


def _l2(one: bytes, other: bytes) -> float:
    a, b = _numbers(one, other)
    with numpy.errstate(all="ignore"):
        return float(numpy.sqrt(_sum((a - b) ** 2)))


def _cosine(one: bytes, other: bytes) -> float:
    a, b = _numbers(one, other)
    with numpy.errstate(all="ignore"):
        return float(numpy.float32(1) - _sum(a * b) / (numpy.sqrt(_sum(a * a)) * numpy.sqrt(_sum(b * b))))


def _numbers(one: bytes, other: bytes) -> tuple[Any, Any]:
    a, b = numpy.frombuffer(one, "<f4"), numpy.frombuffer(other, "<f4")
    if not len(a) or len(a) != len(b):
        raise ValueError("the extension refuses empty vectors and unequal dimensions")
    return a, b


def _sum(numbers: Any) -> Any:
    """One after the other, as the extension adds; numpy would add pairwise, with a smaller error."""
    return numpy.add.accumulate(numbers, dtype="f4")[-1]
