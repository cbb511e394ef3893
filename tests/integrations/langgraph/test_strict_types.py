"""What a reader builds: the types of Python and of the frameworks, and of the host's own what it allows."""

import enum
import ipaddress
import logging
import re
import zoneinfo
from collections import deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import ormsgpack
import pytest
from langchain_core.agents import AgentFinish
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.serde import _msgpack, jsonplus
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel, SecretStr

from persist.integrations.langgraph import StrictSerializer
from persist.integrations.langgraph.strict import OWN
from tests.integrations.langgraph.scenes import EACH, METHOD, NAMED, as_json, lc, stored

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)

BUILT = [
    *(NOON, date(2026, 1, 2), time(1, 2), timedelta(1, 2, 3), timezone(timedelta(hours=2)), UUID(int=7), Decimal("1.50")),
    *({1, 2}, frozenset({1}), deque([1, 2]), Path("a") / "b", re.compile("a+", re.IGNORECASE), zoneinfo.ZoneInfo("UTC")),
    *(ipaddress.ip_address("::1"), ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_interface("10.0.0.1/8"), SecretStr("x")),
    *(HumanMessage("hi"), AIMessage("", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "1"}]), AIMessageChunk(content="a")),
    *(ToolMessage("x", tool_call_id="1"), RemoveMessage("1"), Document("x", metadata={"at": NOON}), AgentFinish({"x": 1}, "log")),
    *(
        Send("node", {"said": HumanMessage("x")}),
        Command(goto="x", update={"a": 1}),
        Interrupt({"q": [1]}, id="1"),
        Overwrite([1]),
    ),
    *(Send("node", 1, timeout=3.0), _DeltaSnapshot([HumanMessage("x")]), b"x", bytearray(b"x"), None, 2**63, float("inf")),
    Item(value={"a": 1}, key="k", namespace=("a",), created_at=NOON, updated_at=NOON),
]


@pytest.mark.parametrize("value", BUILT, ids=lambda value: type(value).__name__)
def test_types_of_python_and_of_the_frameworks_come_back(value: Any) -> None:
    read = StrictSerializer().loads_typed(StrictSerializer().dumps_typed(value))
    assert (type(read), read) == (type(value), value)


def test_arrays_come_back() -> None:
    for array in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3)), np.array([True])):
        read = StrictSerializer().loads_typed(StrictSerializer().dumps_typed(array))
        assert (read.dtype, read.tolist()) == (array.dtype, array.tolist())
    assert StrictSerializer().loads_typed(("msgpack", _array("O", [1], b"x" * 8))) == ["O", [1], "C", b"x" * 8]


def _array(*meta: Any) -> bytes:
    dtype, shape, data = meta
    return ormsgpack.packb(ormsgpack.Ext(6, ormsgpack.packb((dtype, shape, "C", data))))


def test_json_of_the_frameworks_own_types_is_built() -> None:
    serde = StrictSerializer()
    hi = {"content": "hi"}
    assert serde.loads_typed(as_json(lc(1, "langchain", "schema", "messages", "HumanMessage", kwargs=hi))) == HumanMessage("hi")
    assert serde.loads_typed(as_json(lc(2, "langchain_core", "messages", "human", "HumanMessage", kwargs=hi))) == HumanMessage(
        "hi"
    )
    assert serde.loads_typed(as_json([lc(2, "uuid", "UUID", args=[UUID(int=7).hex])])) == [UUID(int=7)]


def test_nothing_of_the_frameworks_list_and_no_form_of_it_is_missing() -> None:
    """Its private list, and the numbers that it writes: what a newer release adds shows here."""
    assert _msgpack.SAFE_MSGPACK_TYPES - OWN.keys() == set()
    forms = {name: number for name, number in vars(jsonplus).items() if name.startswith("EXT_")}
    assert sorted(forms.values()) == [*range(8)]
    assert (OWN["re", "compile"][0], OWN["datetime", "datetime"][0]) == (EACH, METHOD)


class Plan(BaseModel):
    """A model."""

    steps: list[str]


@dataclass
class Place:
    """Fields."""

    name: str
    at: datetime


class Pair(NamedTuple):
    """A tuple with names."""

    left: int
    right: int


class Color(enum.Enum):
    """A word."""

    RED = "red"


class Later(datetime):
    """A time of another class, as libraries have them."""


class Outer:
    """A class with a class in it."""

    @dataclass
    class Inner:
        """Its module does not have it."""

        x: int


HOSTS: list[tuple[Any, Any]] = [
    (Plan(steps=["a"]), {"steps": ["a"]}),
    (Place("here", NOON), {"name": "here", "at": NOON}),
    (Pair(1, 2), {"left": 1, "right": 2}),
    (Color.RED, "red"),
    (Later(2026, 1, 2), "2026-01-02T00:00:00"),
]


@pytest.mark.parametrize(("value", "plain"), HOSTS, ids=lambda value: type(value).__name__)
def test_a_class_of_the_host_is_data_until_it_is_allowed(value: Any, plain: Any) -> None:
    cls = type(value)
    data = StrictSerializer().dumps_typed([value])
    assert StrictSerializer().loads_typed(data) == [plain]
    for allow in (cls, f"{__name__}.{cls.__name__}", (__name__, cls.__name__)):
        for serde in (StrictSerializer([allow]), StrictSerializer().with_msgpack_allowlist([allow])):
            (read,) = serde.loads_typed(data)
            assert (type(read), read) == (cls, value)


def test_a_class_that_only_an_object_can_name_is_allowed_as_such() -> None:
    value = Outer.Inner(1)
    data = JsonPlusSerializer().dumps_typed(value)
    assert StrictSerializer([Outer.Inner]).loads_typed(data) == value
    assert StrictSerializer([f"{__name__}.Inner"]).loads_typed(data) == {"x": 1}


class Other:
    """Another one with such a class in it."""

    @dataclass
    class Inner:
        """Stored under the same name."""

        x: int


def test_two_classes_of_one_stored_name_are_refused() -> None:
    """Nobody could tell which of them a stored value was."""
    with pytest.raises(TypeError, match=r"test_strict_types\.Inner"):
        StrictSerializer([Outer.Inner, Other.Inner])
    value = Outer.Inner(1)
    same: list[list[Any]] = [[Outer.Inner, f"{__name__}.Inner"], [f"{__name__}.Inner", Outer.Inner], [Outer.Inner, Outer.Inner]]
    for allow in same:
        assert StrictSerializer(allow).loads_typed(JsonPlusSerializer().dumps_typed(value)) == value


def test_one_warning_names_each_class(caplog: pytest.LogCaptureFixture) -> None:
    serde = StrictSerializer([Pair])
    with caplog.at_level(logging.WARNING, "persist"):
        for _ in range(3):
            serde.loads_typed(serde.dumps_typed([Plan(steps=[]), Place("here", NOON), Pair(1, 2), HumanMessage("x")]))
    said = [record.getMessage() for record in caplog.records if record.name == "persist"]
    assert [next(name for name in ("Plan", "Place") if f"allow=['{__name__}.{name}']" in text) for text in said] == [
        "Plan",
        "Place",
    ]
    with caplog.at_level(logging.WARNING, "persist"):
        assert serde.loads_typed(stored(NAMED, __name__, "Pair", {"left": 1})) == {"left": 1}
    assert "its class fails (TypeError)" in caplog.records[-1].getMessage()
