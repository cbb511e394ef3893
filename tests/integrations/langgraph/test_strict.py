"""What is stored is never run: values that name functions, modules, pickles and secrets come back as data."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.errors import StoreCorrupt
from persist.integrations.langgraph import StrictSerializer
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
