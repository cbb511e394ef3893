"""Embeddings of messages: float32 in the row, floats in Python."""

import math
import struct
from array import array
from typing import Any

import numpy
import pytest

from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import message, present, put, put_many, refused, stored
from tests.contract.faces import on_one_face

LARGEST = (2 - 2**-23) * 2.0**127
"""The largest float32; what rounds to more does not fit."""


def blob(raw: Raw) -> bytes:
    return bytes(raw.value("SELECT embedding FROM messages"))


def test_an_embedding_is_a_blob_of_little_endian_float32(store: Any, raw: Raw) -> None:
    """(c) 8"""
    given = [0.1, -0.2, 0.3, 0.0]
    made = put(store, "a", embedding=given)
    assert made.embedding == pytest.approx(given, rel=1e-6)
    assert blob(raw) == struct.pack("<4f", *given)
    assert present(store, "a") == made
    if raw.is_sqlite:
        assert raw.value("SELECT typeof(embedding) FROM messages") == "blob"


def test_what_was_read_can_be_put_again_unchanged(store: Any, raw: Raw) -> None:
    first = put(store, "a", embedding=[0.1, 1 / 3])
    before = blob(raw)
    again = put(store, "a", embedding=first.embedding)
    assert again == first
    assert blob(raw) == before


def test_packed_bytes_are_taken_as_they_are(store: Any, raw: Raw) -> None:
    for kind in (bytes, bytearray, memoryview):
        packed = struct.pack("<3f", 1.5, -0.0, 2**-149)
        made = put(store, "a", embedding=kind(packed))
        assert made.embedding == [1.5, 0.0, 2**-149]
        assert blob(raw) == packed


NUMBERS = [1.5, -0.25, 3.0]
ARRAYS: list[Any] = [
    numpy.array(NUMBERS, "f4"),
    numpy.array(NUMBERS, "f8"),
    numpy.array(NUMBERS, ">f8"),
    numpy.array([1.5, 0, -0.25, 0, 3.0, 0], "f4")[::2],
    list(numpy.array(NUMBERS, "f4")),
    array("f", NUMBERS),
    array("d", NUMBERS),
    memoryview(array("f", NUMBERS)),
    memoryview(array("d", NUMBERS)),
]


@on_one_face
@each("given", ARRAYS, ids=range(len(ARRAYS)))
def test_arrays_of_floats_are_read_by_their_format(store: Any, raw: Raw, given: Any) -> None:
    assert put(store, "a", embedding=given).embedding == NUMBERS
    assert blob(raw) == struct.pack("<3f", *NUMBERS)
    with store.read() as tx:
        ((nearest, distance),) = tx.conversations.vectors.search(given)
    assert (nearest.id, distance) == ("a", 0.0)


def test_arrays_of_anything_else_are_refused(store: Any) -> None:
    bad = [numpy.array([1, 2]), numpy.array([1], "f2"), numpy.zeros((2, 2), "f4"), numpy.array(1.0), numpy.array([True])]
    bad += [
        memoryview(array("i", [1])),
        numpy.array([1e39]),
        numpy.array([math.nan], "f4"),
        numpy.array(["a"]),
        numpy.array([1j]),
    ]
    with store.begin() as tx:
        for one in bad:
            assert refused(tx.conversations.messages.put, message("a", embedding=one)).startswith("message.embedding"), one
    assert stored(store, "a") is None


def test_an_empty_embedding_differs_from_none(store: Any, raw: Raw) -> None:
    assert put(store, "a", embedding=[]).embedding == []
    assert blob(raw) == b""
    assert put(store, "a", embedding=b"").embedding == []
    assert put(store, "a", embedding=None).embedding is None
    assert raw.value("SELECT embedding FROM messages") is None


def test_numbers_become_the_nearest_float32(store: Any) -> None:
    given = [LARGEST, -LARGEST, 1, 0, -7, 2**-149, 1e-300, 16_777_217, 0.1]
    found = put(store, "a", embedding=given).embedding
    assert found == [struct.unpack("<f", struct.pack("<f", number))[0] for number in given]
    assert {type(number) for number in found} == {float}


def test_what_is_no_vector_is_refused_and_nothing_is_written(store: Any) -> None:
    """(c) 7"""
    bad: list[Any] = [
        [math.nan],
        [0.0, math.inf],
        [-math.inf],
        [1e39],
        [-1e39],
        [LARGEST * (1 + 2**-24)],
        [10**400],
        ["1"],
        [None],
        [True],
        [[1.0]],
        b"abc",
        b"\x00" * 5,
        struct.pack("<f", math.nan),
        struct.pack("<2f", 0, math.inf),
        "abcd",
        {1.0: 2.0},
        {1.0},
        5,
    ]
    with store.begin() as tx:
        for one in bad:
            assert refused(tx.conversations.messages.put, message("a", embedding=one)).startswith("message.embedding"), one
        tx.conversations.messages.put(message("kept", embedding=[1.0]))
    assert stored(store, "a") is None
    assert present(store, "kept").embedding == [1.0]


def test_embeddings_of_any_length_stand_side_by_side(store: Any) -> None:
    lengths = [0, 1, 3, 1536, 4096]
    put_many(store, [message(f"m{n}", embedding=[float(i) for i in range(n)]) for n in lengths] + [message("none")])
    with store.read() as tx:
        found = tx.conversations.messages.get_many([*(f"m{n}" for n in lengths), "none"])
    assert [one.embedding for one in found.values()] == [*([float(i) for i in range(n)] for n in lengths), None]
