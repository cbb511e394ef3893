"""Embeddings: float32 bytes and back, whatever the numbers."""

import math
import sqlite3
import struct
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine

from persist.conversations.embeddings import pack, unpack
from persist.db.dialects.sqlite import operations
from persist.db.dialects.sqlite.operations import SQLITE_VEC, load_sqlite_vec, sqlite_vec_functions
from persist.errors import InvalidValue

singles = st.floats(width=32, allow_nan=False, allow_infinity=False)
doubles = st.floats(min_value=-3.4e38, max_value=3.4e38)


def bits(numbers: list[float]) -> list[str]:
    return [number.hex() for number in numbers]


def packed(value: object) -> bytes:
    found = pack("v", value)
    assert found is not None
    return found


@given(st.lists(singles))
def test_float32_numbers_come_back_bit_for_bit(numbers: list[float]) -> None:
    assert bits(unpack(packed(numbers))) == bits(numbers)


@given(st.lists(doubles, min_size=1))
def test_other_numbers_come_back_as_the_nearest_float32(numbers: list[float]) -> None:
    found = unpack(packed(numbers))
    assert bits(found) == bits([struct.unpack("<f", struct.pack("<f", number))[0] for number in numbers])
    for number, near in zip(numbers, found, strict=True):
        assert math.isclose(number, near, rel_tol=2**-24, abs_tol=2**-150)
    assert packed(found) == packed(numbers)


@given(st.floats(allow_nan=True).filter(lambda number: not abs(number) < 3.4028236e38), st.lists(singles, max_size=3))
def test_a_number_beyond_float32_is_refused_wherever_it_stands(bad: float, before: list[float]) -> None:
    with pytest.raises(InvalidValue) as refusal:
        pack("v", [*before, bad])
    assert refusal.value.path.startswith("v")


# Loading the extension into a connection: nothing it cannot do is an error, and loading is over afterwards.


class Driver:
    """A connection that may be told to load extensions, and writes down what it was told."""

    def __init__(self, refuses: bool = False) -> None:
        self.told: list[Any] = []
        self._refuses = refuses

    def enable_load_extension(self, enabled: bool) -> None:
        if self._refuses:
            raise sqlite3.NotSupportedError("not authorized")
        self.told.append(enabled)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A library that loads into such a connection."""
    module: Any = ModuleType("sqlite_vec")
    module.load = lambda driver: driver.told.append("load")
    monkeypatch.setitem(sys.modules, "sqlite_vec", module)
    return module


def load(driver: Any) -> bool:
    return load_sqlite_vec(driver)


def test_loading_is_switched_off_again(library: Any) -> None:
    driver = Driver()
    assert load(driver)
    assert driver.told == [True, "load", False]


def test_a_library_for_another_processor_is_none(library: Any) -> None:
    def refuse(driver: Any) -> None:
        raise sqlite3.OperationalError("wrong ELF class: ELFCLASS32")

    library.load = refuse
    driver = Driver()
    assert not load(driver)
    assert driver.told == [True, False]


def test_a_connection_that_loads_nothing_has_none(library: Any) -> None:
    assert not load(Driver(refuses=True))
    assert not load(object())  # as in a Python that was built without


def test_no_library_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlite_vec", None)
    driver = Driver()
    assert not load(driver)
    assert driver.told == []


@pytest.mark.parametrize("there", [True, False])
def test_a_connection_is_asked_once(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    asked = []

    def answer(driver: sqlite3.Connection) -> bool:
        asked.append(driver)
        return there

    monkeypatch.setattr(operations, "load_sqlite_vec", answer)
    engine = create_engine("sqlite://")
    for _ in range(3):
        with engine.connect() as connection:
            assert sqlite_vec_functions(connection) is (SQLITE_VEC if there else None)
    assert len(asked) == 1
    engine.dispose()
