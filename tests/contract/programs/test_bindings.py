"""Bindings: names in frames, which one a name means, names that are bound once, names that nobody gave."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound, PayloadTooLarge
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.programs.scenes import OTHER, RUN, ask, begin, bind, chain, do, make, resolve


@pytest.fixture(autouse=True)
def run(store: Any) -> str:
    return make(store)


def test_a_name_means_the_nearest_binding(store: Any) -> None:
    caller = begin(store)
    block, sibling = begin(store, parent=caller), begin(store, parent=caller)
    bind(store, "result", "root")
    assert [resolve(store, "result", frame) for frame in (None, caller, block)] == ["root"] * 3
    bind(store, "result", "caller", execution_id=caller)
    assert resolve(store, "result", block) == "caller"
    bind(store, "result", "block", execution_id=block)
    assert resolve(store, "result", block) == "block"
    assert resolve(store, "result", sibling) == "caller"
    assert resolve(store, "result") == "root"


def test_the_nearest_frame_wins_whatever_the_ids_are(store: Any, raw: Any) -> None:
    low, high = begin(store), begin(store)
    raw.rows("UPDATE execution SET parent_id = ? WHERE id = ?", high, low)
    bind(store, "x", "far", execution_id=high)
    bind(store, "x", "near", execution_id=low)
    assert resolve(store, "x", low) == "near"


def test_names_and_frames_that_are_not_there(store: Any) -> None:
    frame = begin(store)
    for name, at, kind in (("x", None, "binding"), ("x", frame, "binding"), ("x", 999, "execution")):
        with pytest.raises(NotFound) as caught:
            resolve(store, name, at)
        assert caught.value.kind == kind
    assert ask(store, "bindings", "get", RUN, "x") is None
    with pytest.raises(NotFound):
        bind(store, "x", "1", execution_id=999)
    with pytest.raises(NotFound):
        bind(store, "x", "1", run=OTHER)


@pytest.mark.parametrize("bound", [False, True])
def test_a_circle_of_parents_is_an_error(store: Any, raw: Any, bound: bool) -> None:
    first, second, below = chain(store, 3)
    raw.rows("UPDATE execution SET parent_id = ? WHERE id = ?", second, first)
    if bound:
        bind(store, "x", "root")
    with pytest.raises(Conflict):
        resolve(store, "x", below)


def test_binding_again_keeps_when_it_was_made(store: Any, clock: FrozenClock) -> None:
    first = bind(store, "x", "one", source_statement="let x = 1")
    clock.advance(seconds=9)
    second = bind(store, "x", "two")
    assert (second.value, second.created_at, second.source_statement) == ("two", first.created_at, None)
    assert [str(one.updated_at) for one in (first, second)] == ["2026-01-02 03:04:05+00:00", "2026-01-02 03:04:14+00:00"]
    assert ask(store, "bindings", "list", RUN) == [second]
    assert ask(store, "bindings", "get", RUN, "x") == second


@pytest.mark.parametrize("kind", ["const", "input"])
@pytest.mark.parametrize("again", ["let", "const", "input", "output"])
def test_some_names_are_bound_once(store: Any, kind: str, again: str) -> None:
    bind(store, "x", "one", kind=kind)
    with pytest.raises(Conflict):
        bind(store, "x", "two", kind=again)
    assert resolve(store, "x") == "one"
    frame = begin(store)
    assert bind(store, "x", "shadow", kind=again, execution_id=frame).value == "shadow"


@pytest.mark.parametrize("kind", ["let", "output"])
def test_other_names_may_be_bound_again(store: Any, kind: str) -> None:
    bind(store, "x", "one", kind=kind)
    assert bind(store, "x", None, kind="const").value is None


def test_runs_have_names_of_their_own(store: Any) -> None:
    make(store, OTHER)
    bind(store, "research", "mine")
    bind(store, "research", "theirs", run=OTHER)
    assert (resolve(store, "research"), resolve(store, "research", run=OTHER)) == ("mine", "theirs")
    assert [one.run_id for one in ask(store, "bindings", "list", OTHER)] == [OTHER]


def test_anonymous_names_count_up(store: Any, open_store: Callable[..., Any]) -> None:
    names = [do(store, "bindings", "next_anonymous", RUN) for _ in range(2)]
    bind(store, names[0], "x")
    assert names == ["anon_001", "anon_002"]
    reopened = open_store()
    assert ask(reopened, "bindings", "next_anonymous", RUN) == "anon_003"
    bind(reopened, "anon_999", "x", execution_id=begin(reopened))
    bind(reopened, "anon_of_another_kind", "x")
    assert [do(reopened, "bindings", "next_anonymous", RUN) for _ in range(2)] == ["anon_1000", "anon_1001"]
    with pytest.raises(NotFound):
        do(reopened, "bindings", "next_anonymous", OTHER)


def test_anonymous_names_follow_what_is_bound(store: Any) -> None:
    for expected in ("anon_001", "anon_002", "anon_003"):
        assert ask(store, "bindings", "next_anonymous", RUN) == expected
        bind(store, expected, "x")


def test_large_values_stay_inline_without_a_run_file(store: Any, open_store: Callable[..., Any]) -> None:
    value = "x" * 200_000
    bound = bind(store, "x", value, summary="many x")
    assert (bound.value, bound.attachment_path) == (value, None)
    with pytest.raises(PayloadTooLarge):
        bind(open_store(settings=Settings(max_json_bytes=1000)), "x", "y" * 1001)


def read(store: Any, name: str, frame: int | None = None) -> bytes:
    """The bytes that a name means in a frame."""
    with ask(store, "bindings", "open_file", RUN, name, execution_id=frame) as stream:
        return bytes(stream.read())


def test_a_text_file_is_bound_without_a_run_file(store: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    path.write_bytes("it's\r\n\x00 報告 🦊".encode())
    frame = begin(store)
    bound = do(
        store,
        "bindings",
        "bind_file",
        RUN,
        "report",
        path,
        kind="output",
        execution_id=frame,
        source_statement="output report",
        summary="unused",
    )
    assert (bound.value, bound.kind, bound.execution_id) == ("it's\r\n\x00 報告 🦊", "output", frame)
    assert (bound.source_statement, bound.attachment_path) == ("output report", None)
    assert resolve(store, "report", frame) == bound.value
    assert read(store, "report", frame) == path.read_bytes()
    with pytest.raises(NotFound):
        read(store, "report")
    path.write_bytes(b"")
    assert do(store, "bindings", "bind_file", RUN, "report", str(path)).value == ""


def test_a_stream_is_the_nearest_value(store: Any) -> None:
    frame = begin(store)
    bind(store, "x", "far \ud800")
    assert read(store, "x", frame) == "far \ud800".encode("utf-8", "surrogatepass")
    bind(store, "x", None, execution_id=frame)
    assert (read(store, "x", frame), read(store, "x")[:3]) == (b"", b"far")


def test_what_a_row_does_not_take_is_refused_without_a_run_file(
    store: Any, open_store: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\xff\x00")
    with pytest.raises(InvalidValue, match="UTF-8"):
        do(store, "bindings", "bind_file", RUN, "x", path)
    path.write_bytes(b"x" * 1001)
    with pytest.raises(PayloadTooLarge) as caught:
        do(open_store(settings=Settings(max_json_bytes=1000)), "bindings", "bind_file", RUN, "x", path)
    assert (caught.value.path, caught.value.size, caught.value.limit) == ("path", 1001, 1000)
    assert "run file" in str(caught.value)
    assert ask(store, "bindings", "list", RUN) == []


def test_a_file_is_bound_by_the_rules_of_names(store: Any, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("two")
    bind(store, "x", "one", kind="const")
    with pytest.raises(Conflict):
        do(store, "bindings", "bind_file", RUN, "x", path)
    with pytest.raises(NotFound):
        do(store, "bindings", "bind_file", OTHER, "y", path)
    with pytest.raises(NotFound):
        do(store, "bindings", "bind_file", RUN, "y", path, execution_id=999)
    with pytest.raises(InvalidValue):
        do(store, "bindings", "bind_file", RUN, "y", path, kind="var")
    assert resolve(store, "x") == "one"


@each("path", ["nowhere", "nowhere/x", "there/x"])
def test_there_must_be_a_file(store: Any, tmp_path: Path, path: str) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(NotFound) as caught:
        do(store, "bindings", "bind_file", RUN, "x", tmp_path / path)
    assert (caught.value.kind, caught.value.id) == ("file", str(tmp_path / path))
