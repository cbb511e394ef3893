"""What is stored is never run: values that name functions, modules, pickles and secrets come back as data."""

import enum
import ipaddress
import json
import logging
import pickle
import re
import subprocess
import sys
import zoneinfo
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.agents import AgentFinish
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.serde import _msgpack, jsonplus
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel, SecretStr

from persist.errors import StoreCorrupt
from persist.integrations.langgraph import StrictSerializer
from persist.integrations.langgraph.strict import OWN
from tests.integrations.langgraph.scenes import EACH, METHOD, MODEL, NAMED, OLD_MODEL, ONE, as_json, lc, stored

Attack = Callable[[str], tuple[tuple[str, bytes], Any]]
"""Of the file that it would make: what is stored, and what is read."""

ATTACKS: dict[str, Attack] = {
    "one argument": lambda file: (stored(ONE, "os", "system", f"touch {file}"), f"touch {file}"),
    "many arguments": lambda file: (stored(EACH, "subprocess", "Popen", [["touch", file]]), [["touch", file]]),
    "named arguments": lambda file: (stored(NAMED, "subprocess", "run", {"args": ["touch", file]}), {"args": ["touch", file]}),
    "old model": lambda file: (stored(OLD_MODEL, "subprocess", "run", {"args": ["touch", file]}), {"args": ["touch", file]}),
    "model": lambda file: (stored(MODEL, "subprocess", "run", {"args": ["touch", file]}, "x"), {"args": ["touch", file]}),
    "method": lambda file: (stored(METHOD, "os", "system", f"touch {file}", "__call__"), f"touch {file}"),
    "method of an own type": lambda file: (stored(METHOD, "pathlib", "Path", file, "touch"), file),
    "method that own types have": lambda file: (stored(METHOD, "evil", "Class", file, "fromisoformat"), file),
    "builtin": lambda file: (stored(ONE, "builtins", "eval", f"open({file!r}, 'w')"), f"open({file!r}, 'w')"),
    "function of the framework": lambda file: (
        stored(ONE, "langchain_core.load.load", "loads", json.dumps(lc(1, "os", "system"))),
        json.dumps(lc(1, "os", "system")),
    ),
    "module inside a module of the framework": lambda file: (
        stored(ONE, "langgraph.checkpoint.serde.jsonplus.pickle", "loads", _pickle(file)),
        _pickle(file),
    ),
    "own name in another form": lambda file: (stored(NAMED, "builtins", "set", {"x": 1}), {"x": 1}),
    "import": lambda file: (stored(ONE, "evil", "Class", 1), 1),
    "inside data": lambda file: (
        ("msgpack", ormsgpack.packb({"a": [ormsgpack.Ext(ONE, ormsgpack.packb(("os", "system", f"touch {file}")))]})),
        {"a": [f"touch {file}"]},
    ),
    "inside an own type": lambda file: (
        (
            "msgpack",
            ormsgpack.packb(
                ormsgpack.Ext(
                    ONE,
                    ormsgpack.packb(
                        ("builtins", "frozenset", [ormsgpack.Ext(ONE, ormsgpack.packb(("os", "system", f"touch {file}")))])
                    ),
                )
            ),
        ),
        frozenset({f"touch {file}"}),
    ),
    "json": lambda file: _same(lc(2, "os", "system", args=[f"touch {file}"])),
    "json with a method": lambda file: _same(lc(2, "pathlib", "Path", method="touch", args=[[file]])),
    "json of LangChain": lambda file: _same(lc(1, "langchain_core", "runnables", "base", "RunnableLambda", kwargs={"func": "x"})),
    "json that imports": lambda file: _same(lc(2, "evil", "Class")),
    "json of a template": lambda file: _same(
        lc(1, "langchain", "prompts", "prompt", "PromptTemplate", kwargs={"template": "{{x}}", "template_format": "jinja2"})
    ),
    "json of a secret": lambda file: _same({"lc": 1, "type": "secret", "id": ["PERSIST_SECRET"]}),
}


def _pickle(file: str) -> bytes:
    return pickle.dumps(Runs(file))


def _same(value: Any) -> tuple[tuple[str, bytes], Any]:
    return as_json(value), value


class Runs:
    """A pickle of it makes a file."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __reduce__(self) -> Any:
        return subprocess.call, (["touch", self._file],)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is not there, and a module `evil` that makes it when it is imported."""
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'made')!r}, 'w')\nclass Class: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    monkeypatch.setenv("PERSIST_SECRET", "hidden")
    return tmp_path / "made"


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_read_as_data(name: str, file: Path) -> None:
    value, read = ATTACKS[name](str(file))
    assert StrictSerializer().loads_typed(value) == read
    assert not file.exists()


def test_what_is_allowed_is_a_class_of_the_module_that_is_named(file: Path) -> None:
    names: list[Any] = ["os.system", ("subprocess", "run"), f"{__name__}.Path", f"{__name__}.absent", "absent.Class"]
    serde = StrictSerializer(names)
    assert serde.loads_typed(stored(ONE, "os", "system", f"touch {file}")) == f"touch {file}"
    assert serde.loads_typed(stored(NAMED, "subprocess", "run", {"args": ["touch", str(file)]})) == {"args": ["touch", str(file)]}
    assert serde.loads_typed(stored(EACH, __name__, "Path", ["a"])) == ["a"]
    assert serde.loads_typed(stored(EACH, __name__, "absent", ["a"])) == ["a"]
    assert serde.loads_typed(stored(EACH, "absent", "Class", ["a"])) == ["a"]
    assert not file.exists()


@pytest.mark.parametrize("allow", ["os.system", Path, ["system"], [1], [("os",)], [("os", "")]], ids=repr)
def test_what_names_no_class_is_refused(allow: Any) -> None:
    with pytest.raises(TypeError, match="allow"):
        StrictSerializer(allow)


BROKEN: dict[str, tuple[str, bytes]] = {
    "pickle": ("pickle", pickle.dumps(1)),
    "encrypted": ("msgpack+aes", b"x"),
    "empty": ("msgpack", b""),
    "a long array": ("msgpack", b"\xdd\xff\xff\xff\xff"),
    "a long object": ("msgpack", b"\xdf\xff\xff\xff\xff"),
    "a long text": ("msgpack", b"\xdb\xff\xff\xff\xffab"),
    "deep": ("msgpack", b"\x91" * 50_000 + b"\xc0"),
    "deep objects": ("msgpack", b""),
    "an extension of nobody": ("msgpack", ormsgpack.packb(ormsgpack.Ext(99, b"x"))),
    "no name": stored(ONE, "os"),
    "no text": stored(ONE, ["os"], {"a": 1}, 1),
    "no array": ("msgpack", ormsgpack.packb(ormsgpack.Ext(ONE, ormsgpack.packb(1)))),
    "json": ("json", b"{"),
    "deep json": ("json", b"[" * 100_000),
    "a number of json": ("json", b"1" * 10_000),
}
for _ in range(3_000):
    BROKEN["deep objects"] = ("msgpack", ormsgpack.packb(ormsgpack.Ext(ONE, BROKEN["deep objects"][1])))


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_value_is_said(name: str) -> None:
    with pytest.raises(StoreCorrupt, match="a value of a checkpoint"):
        StrictSerializer().loads_typed(BROKEN[name])


@given(kind=st.sampled_from(["msgpack", "json"]), form=st.integers(0, 9), data=st.binary(max_size=40), nested=st.booleans())
def test_any_bytes_are_a_value_or_damage(kind: str, form: int, data: bytes, nested: bool) -> None:
    with suppress(StoreCorrupt):
        StrictSerializer().loads_typed((kind, ormsgpack.packb(ormsgpack.Ext(form, data)) if nested else data))


# What a reader builds: the types of Python and of the frameworks, and of the host's own what it allows.


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
    with pytest.raises(TypeError, match=r"test_strict\.Inner"):
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
