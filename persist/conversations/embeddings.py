"""Packs vectors of numbers as little-endian float32, the format of sqlite-vec, and unpacks them."""

import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Set
from numbers import Real

from persist.errors import InvalidValue

_SWAP = sys.byteorder == "big"
_ORDERS = ("", "@", "=", "<", ">", "!")
_FLOATS = frozenset(order + kind for order in _ORDERS for kind in "fd")
_BYTES = frozenset("Bbc")


def pack(path: str, value: object) -> bytes | None:
    """The stored bytes of a vector; None for None, empty bytes for [].

    A vector is a list of numbers, an array of float32 or float64 (numpy's, Python's, a memoryview of one), or packed bytes.
    Raises InvalidValue for numbers that are not finite or do not fit a float32, and for bytes that are no whole number of floats.
    """
    if value is None:
        return None
    packed = _packed(path, value)
    for index, number in enumerate(unpack(packed)):
        if number - number:  # neither infinity nor NaN minus itself is zero
            raise InvalidValue(f"{path}[{index}]", "expected a finite number.")
    return packed


def _packed(path: str, value: object) -> bytes:
    if isinstance(value, str | Mapping | Set | array):
        return _from_numbers(path, value)
    try:
        view = memoryview(value)  # type: ignore[arg-type]  # TypeError tells that it has no buffer
    except (TypeError, ValueError, BufferError):
        return _from_numbers(path, value)
    if view.ndim != 1:
        raise InvalidValue(path, f"expected one dimension, got {view.ndim}.")
    if view.format in _FLOATS:
        order, kind = view.format[:-1], view.format[-1]
        return _from_numbers(path, struct.unpack(f"{order}{len(view)}{kind}", view.tobytes()))
    if not isinstance(value, bytes | bytearray | memoryview) or view.format not in _BYTES:
        raise InvalidValue(path, f"expected float32 or float64 numbers, got an array of the format {view.format!r}.")
    packed = view.tobytes()
    if len(packed) % 4:
        raise InvalidValue(path, f"{len(packed)} bytes are no whole number of float32 values.")
    return packed


def _from_numbers(path: str, value: object) -> bytes:
    if isinstance(value, str | Mapping | Set) or not isinstance(value, Iterable):
        raise InvalidValue(path, f"expected a list of numbers or packed bytes, got {type(value).__name__}.")
    numbers = list(value)
    for index, number in enumerate(numbers):
        if isinstance(number, bool) or not isinstance(number, Real):
            raise InvalidValue(f"{path}[{index}]", f"expected a number, got {type(number).__name__}.")
    try:
        return struct.pack(f"<{len(numbers)}f", *numbers)
    except (OverflowError, struct.error):
        raise InvalidValue(path, "a number does not fit a float32.") from None


def unpack(packed: bytes) -> list[float]:
    """The numbers in stored bytes. Raises InvalidValue if they are no vector, as in a damaged file."""
    if not isinstance(packed, bytes | memoryview):
        raise InvalidValue("embedding", f"{packed!r:.40} is stored.")
    numbers = array("f")
    numbers.frombytes(packed[: len(packed) // 4 * 4])
    if _SWAP:
        numbers.byteswap()
    return numbers.tolist()
