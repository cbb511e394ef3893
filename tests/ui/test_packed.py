"""What a runner of graphs serialized, as pages show it."""

import json
import random
from typing import Any

import pytest

from persist.framework_state.checkpoints.schemas import Blob
from persist.ui.packed import shown, shown_blob

CASES: list[tuple[str, Any]] = [
    ("c0", None),
    ("c2", False),
    ("c3", True),
    ("7f", 127),
    ("e0", -32),
    ("cc ff", 255),
    ("cd 01 00", 256),
    ("ce 00 01 00 00", 65_536),
    ("cf 00 00 00 01 00 00 00 00", 2**32),
    ("d0 80", -128),
    ("d1 80 00", -32_768),
    ("d2 80 00 00 00", -(2**31)),
    ("d3 80 00 00 00 00 00 00 00", -(2**63)),
    ("ca 3f 80 00 00", 1.0),
    ("cb 3f f8 00 00 00 00 00 00", 1.5),
    ("a2 c3 a9", "é"),
    ("d9 01 61", "a"),
    ("da 00 01 61", "a"),
    ("db 00 00 00 01 61", "a"),
    ("c4 02 00 01", "2 bytes"),
    ("92 01 02", [1, 2]),
    ("dc 00 01 c0", [None]),
    ("dd 00 00 00 00", []),
    ("81 a1 61 01", {"a": 1}),
    ("de 00 01 01 02", {"1": 2}),
    ("df 00 00 00 00", {}),
    ("c7 09 05 94 a1 6d a2 41 49 81 a1 61", "9 bytes"),
    ("c7 0a 05 93 a1 6d a2 41 49 81 a1 61 01", {"AI": {"a": 1}}),
    ("d4 01 01", 1),
]


@pytest.mark.parametrize(("written", "value"), CASES)
def test_values_are_what_was_packed(written: str, value: Any) -> None:
    assert shown_blob(Blob("msgpack", bytes.fromhex(written))) == value


@pytest.mark.parametrize(
    "written", ["", "c1", "92 01", "01 01", "dd ff ff ff ff", "91" * 100 + "01", "a5 61", "93" + "dd ff ff ff ff"]
)
def test_what_is_no_value_is_a_number_of_bytes(written: str) -> None:
    data = bytes.fromhex(written)
    assert shown_blob(Blob("msgpack", data)) == f"{len(data)} bytes of msgpack"


def test_other_kinds() -> None:
    assert shown_blob(Blob("null", b"")) is None
    assert shown_blob(Blob("json", json.dumps({"a": 1}).encode())) == {"a": 1}
    assert shown_blob(Blob("json", b"[" * 9_999)) == "9,999 bytes of json"
    assert shown_blob(Blob("pickle", b"123")) == "3 bytes of pickle"
    assert shown_blob(Blob("", b"123")) == "3 bytes of no kind"
    assert shown_blob(Blob("msgpack", b"\xc0" * (1 << 21))) == "2,097,152 bytes of msgpack"


def test_of_a_long_list_the_last_elements_are_shown() -> None:
    found = shown([Blob("msgpack", bytes([number])) for number in range(25)])
    assert found == ["5 elements before", *range(5, 25)]
    assert shown(None) is None


def test_any_bytes_are_shown_as_something() -> None:
    chance = random.Random(7)
    for _ in range(2_000):
        shown_blob(Blob("msgpack", chance.randbytes(chance.randrange(60))))
