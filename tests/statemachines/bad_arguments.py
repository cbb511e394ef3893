"""Values that callers should not give, and did, each made anew for every call; and the places inside a value for them."""

import dataclasses
import enum
import uuid
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any

from hypothesis import strategies as st

from tests.unit.json_values import values as json_values

MEGABYTE = 2**20


class Word(enum.StrEnum):
    RUNNING = "running"


class Plain(enum.Enum):
    ONE = 1


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


class Table(dict[Any, Any]):
    pass


class Items(list[Any]):
    pass


class Later(datetime):
    pass


@dataclasses.dataclass
class Pair:
    left: int = 1


def _deep(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def _deep_table(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = {"a": found}
    return found


def _cycle() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


def _table_cycle() -> Any:
    found: dict[str, Any] = {}
    found["a"] = found
    return found


def _broken() -> Iterator[Any]:
    yield "asked"
    raise RuntimeError("the caller's own")


VALUES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "empty text": lambda: "",
    "a space": lambda: " ",
    "nul": lambda: "a\x00b",
    "half": lambda: "a\ud83d",
    "other half": lambda: "\ude00a",
    "joined halves": lambda: "\ud83d\ude00",
    "astral": lambda: "😀é\u2028",
    "lead": lambda: "\ufdd0\ufdd0d83d\ufdd00000",
    "noncharacter": lambda: "\uffff",
    "quote": lambda: "'; DROP TABLE x; --\"%_\\",
    "percent": lambda: "%s %(x)s :x ? {}",
    "digits": lambda: "5",
    "json text": lambda: '{"a":1}',
    "long text": lambda: "x" * 2_500,
    "long random text": lambda: "".join(chr(0x4E00 + n * 7919 % 20000) for n in range(800)),
    "text subclass": lambda: Text("text"),
    "word": lambda: Word.RUNNING,
    "enum": lambda: Plain.ONE,
    "int enum": lambda: Number.ONE,
    "zero": lambda: 0,
    "minus one": lambda: -1,
    "int 53": lambda: 2**53 + 1,
    "int 32": lambda: 2**31,
    "int max": lambda: 2**63 - 1,
    "int min": lambda: -(2**63),
    "uint": lambda: 2**63,
    "uint max": lambda: 2**64 - 1,
    "beyond": lambda: 2**64,
    "below": lambda: -(2**63) - 1,
    "googol": lambda: 10**100,
    "unprintable int": lambda: 10**5000,
    "int subclass": lambda: Whole(3),
    "true": lambda: True,
    "false": lambda: False,
    "float": lambda: 0.1,
    "float whole": lambda: 3.0,
    "minus zero": lambda: -0.0,
    "big float": lambda: 1e16,
    "biggest float": lambda: 1.7976931348623157e308,
    "least float": lambda: 5e-324,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "minus inf": lambda: float("-inf"),
    "float subclass": lambda: Real(0.5),
    "decimal": lambda: Decimal("1.5"),
    "decimal nan": lambda: Decimal("NaN"),
    "fraction": lambda: Fraction(1, 3),
    "complex": lambda: 1j,
    "uuid": lambda: uuid.UUID(int=1),
    "bytes": lambda: b"\x00\xff",
    "no bytes": lambda: b"",
    "bytearray": lambda: bytearray(b"ab"),
    "memoryview": lambda: memoryview(b"ab"),
    "path": lambda: PurePosixPath("../x"),
    "list": lambda: [],
    "list of one": lambda: ["a"],
    "list of halves": lambda: ["\ud83d", "\ude00"],
    "list of none": lambda: [None],
    "list of lists": lambda: [[]],
    "list of bytes": lambda: [b"a"],
    "list of big": lambda: [2**64],
    "list of nan": lambda: [float("nan")],
    "list subclass": lambda: Items(["a"]),
    "deep list": lambda: _deep(199),
    "deeper list": lambda: _deep(201),
    "deepest list": lambda: _deep(20_000),
    "deepest object": lambda: _deep_table(20_000),
    "cyclic list": _cycle,
    "cyclic object": _table_cycle,
    "object": lambda: {},
    "object of one": lambda: {"a": 1},
    "object nul key": lambda: {"\x00": "\x00"},
    "object half key": lambda: {"\ud83d": "\ud83d"},
    "object joined key": lambda: {"\ud83d\ude00": 1},
    "object of keys that become one": lambda: {"\ud83d\ude00": 1, "😀": 2},
    "object empty key": lambda: {"": ""},
    "object int key": lambda: {1: 1},
    "object none key": lambda: {None: 1},
    "object bytes key": lambda: {b"a": 1},
    "object mixed keys": lambda: {"a": 1, 2: 2},
    "object tuple value": lambda: {"a": (1, 2)},
    "object nan": lambda: {"a": float("nan")},
    "object big float": lambda: {"a": [1e16, -0.0, 1e308, 5e-324, 2**64 - 1, -(2**63)]},
    "object beyond": lambda: {"a": 2**64},
    "object bytes": lambda: {"a": b"a"},
    "object instant": lambda: {"a": datetime(2026, 1, 1, tzinfo=UTC)},
    "object enum": lambda: {"a": Word.RUNNING},
    "object deep": lambda: {"a": _deep(198)},
    "object deeper": lambda: {"a": _deep(300)},
    "object nulls": lambda: {"a": None, "b": {"c": None}},
    "object subclass": lambda: Table(a=1),
    "ordered": lambda: OrderedDict(b=1, a=2),
    "user dict": lambda: UserDict(a=1),
    "tuple": lambda: (),
    "pair": lambda: ("a", {"b": 1}),
    "odd pair": lambda: (1, object),
    "triple": lambda: ("a", "b", "c"),
    "set": lambda: {"a"},
    "frozenset": lambda: frozenset({"a"}),
    "generator": lambda: (word for word in ("a", "b")),
    "broken generator": _broken,
    "range": lambda: range(3),
    "function": lambda: lambda: None,
    "class": lambda: int,
    "thing": object,
    "ellipsis": lambda: ...,
    "dataclass": Pair,
    "naive": lambda: datetime(2026, 1, 1),  # that is the point
    "utc": lambda: datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
    "odd offset": lambda: datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=timezone(timedelta(hours=5, minutes=53, seconds=28))),
    "year 1": lambda: datetime(1, 1, 1, tzinfo=UTC),
    "before year 1": lambda: datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    "year 9999": lambda: datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "after year 9999": lambda: datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14))),
    "before 1970": lambda: datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "instant subclass": lambda: Later(2026, 1, 1, tzinfo=UTC),
    "date": lambda: date(2026, 1, 1),
    "no time": lambda: timedelta(0),
    "a microsecond": lambda: timedelta(microseconds=1),
    "longest": lambda: timedelta.max,
    "shortest": lambda: timedelta.min,
}
"""What is tried everywhere, by its name, so that a failing example reads well."""


@dataclasses.dataclass(frozen=True)
class Hostile:
    """A way to spoil a valid argument: a value in its place, or somewhere inside it."""

    name: str
    make: Callable[[], Any] = dataclasses.field(repr=False)
    inside: int | None = None
    """Which of the places inside it; None: the whole."""

    def __str__(self) -> str:
        return f"<{self.name}>" if self.inside is None else f"<{self.name} at {self.inside}>"

    def spoil(self, valid: Any) -> Any:
        """The spoilt argument; `valid` stays as it is."""
        if self.inside is None:
            return self.make()
        count = places(valid)
        return replaced(valid, self.inside % count, self.make()) if count else self.make()


def named(name: str, inside: int | None = None) -> Hostile:
    """One of `VALUES`."""
    return Hostile(name, VALUES[name], inside)


def _drawn(value: Any) -> Hostile:
    return Hostile(f"drawn {value!r}", lambda: value)


hostile = st.one_of(
    st.builds(named, st.sampled_from(sorted(VALUES))),
    st.builds(named, st.sampled_from(sorted(VALUES)), st.integers(0, 9)),
    (json_values | st.datetimes() | st.datetimes(timezones=st.just(UTC)) | st.timedeltas() | st.binary() | st.integers()).map(
        _drawn
    ),
)
"""What any parameter is given."""

huge = st.sampled_from([MEGABYTE, 16 * MEGABYTE, 17 * MEGABYTE, 50 * MEGABYTE]).map(
    lambda size: Hostile(f"{size} characters", lambda: "x" * size)
)
"""Rarely, since it takes long."""


# The places inside a value, counted, and another value in one of them.


def places(value: Any) -> int:
    """How many things are in it, keys included, at any depth."""
    if isinstance(value, Mapping):
        return sum(2 + places(item) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(1 + places(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sum(1 + places(getattr(value, field.name)) for field in dataclasses.fields(value))
    return 0


def replaced(value: Any, at: int, by: Any) -> Any:
    if isinstance(value, Mapping):
        made: dict[Any, Any] = {}
        for key, item in value.items():
            if at == 0:
                try:
                    made[by] = item
                except TypeError:  # not hashable, so never a key
                    made[key] = by
            elif 0 < at <= 1 + places(item):
                made[key] = by if at == 1 else replaced(item, at - 2, by)
            else:
                made[key] = item
            at -= 2 + places(item)
        return made
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        items = replaced([getattr(value, name) for name in names], at, by)
        return dataclasses.replace(value, **dict(zip(names, items, strict=True)))
    made_list = []
    for item in value:
        inside = places(item)
        if at == 0:
            made_list.append(by)
        elif 0 < at <= inside:
            made_list.append(replaced(item, at - 1, by))
        else:
            made_list.append(item)
        at -= 1 + inside
    return type(value)(made_list)
