"""Values that are bound from files: whole and as they were, of any size, or not at all."""

import os
import sqlite3
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict, InvalidValue, NotFound, PayloadTooLarge, StoreFull
from persist.maintenance import export
from persist.programs import audit, subagent
from tests.cases import each
from tests.programs.bound import MB, attached, bind_file, open_stream, read
from tests.programs.raw_rows import codes, put
from tests.programs.test_attachments import bind, resolve
from tests.subprocesses import Worker

# ---------------------------------------------------------------- what is bound


def test_a_file_is_bound_as_it_is(run_file: Store, run: str, file: Path, source: Path, system: str) -> None:
    content = source.read_bytes()
    bound = bind_file(run_file, run, "x", source, kind="output", summary="3 MB")
    assert (bound.value, bound.kind, bound.execution_id) == ("3 MB", "output", None)
    assert [str(bound.attachment_path)] == [f"attachments/{name}" for name in attached(file)]
    stored = file.parent / str(bound.attachment_path)
    assert stored.stat().st_mode & 0o777 == 0o600
    source.unlink()
    assert read(run_file, run, "x") == stored.read_bytes() == content
    with pytest.raises(InvalidValue, match="open_file"):
        resolve(run_file, run, "x")
    assert audit(run_file, run) == []


@each("content", [b"", b"x", "it's\r\n報告 \x00".encode()])
def test_a_small_file_is_an_attachment_too(run_file: Store, run: str, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "small"
    path.write_bytes(content)
    assert bind_file(run_file, run, "x", str(path)).attachment_path is not None
    assert (resolve(run_file, run, "x"), read(run_file, run, "x")) == (content.decode(), content)


def test_frames_see_the_nearest(run_file: Store, run: str, source: Path) -> None:
    with run_file.begin() as tx:
        frame = tx.programs.executions.begin(run, statement_index=1, statement_text="x").id
    bind(run_file, run, "x", "in the root")
    assert read(run_file, run, "x", frame) == b"in the root"
    assert subagent(run_file, run, frame).bindings.bind_file("x", source).execution_id == frame
    assert read(run_file, run, "x", frame) == source.read_bytes()
    assert read(run_file, run, "x") == b"in the root"


@pytest.mark.parametrize("name", ["a\r\nb", "../../x", ".x", "é 🦊", "a" * 300])
def test_any_name_may_be_bound(run_file: Store, run: str, file: Path, source: Path, name: str) -> None:
    assert bind_file(run_file, run, name, source).name == name
    assert len(attached(file)) == 1
    assert read(run_file, run, name) == source.read_bytes()


@pytest.mark.parametrize("name", ["a\x00b", "", 3, None])
def test_no_name_is_no_file(run_file: Store, run: str, file: Path, source: Path, name: Any) -> None:
    with pytest.raises(InvalidValue):
        bind_file(run_file, run, name, source)
    assert attached(file) == []


def test_a_file_of_other_names_and_an_attachment_are_sources(run_file: Store, run: str, tmp_path: Path, source: Path) -> None:
    os.link(source, tmp_path / "other name")
    bound = bind_file(run_file, run, "x", tmp_path / "other name")
    assert run_file.path is not None
    copied = bind_file(run_file, run, "y", run_file.path.parent / str(bound.attachment_path))
    assert copied.attachment_path != bound.attachment_path
    assert read(run_file, run, "y") == source.read_bytes()


# ---------------------------------------------------------------- memory


def test_a_large_file_is_never_in_memory(run_file: Store, run: str, file: Path, tmp_path: Path) -> None:
    path = tmp_path / "large"
    with open(path, "wb") as large:
        large.truncate(200 * MB)
        large.seek(123 * MB)
        large.write(b"needle")
    tracemalloc.start()
    try:
        bound = bind_file(run_file, run, "x", path)
        with run_file.read() as tx, tx.programs.bindings.open_file(run, "x") as stream:
            assert stream.seek(123 * MB) == 123 * MB
            assert stream.read(6) == b"needle"
            with pytest.raises(PayloadTooLarge) as caught:
                tx.programs.bindings.resolve(run, "x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * MB
    assert (caught.value.size, caught.value.limit) == (200 * MB, 64 * MB)
    assert (file.parent / str(bound.attachment_path)).stat().st_size == 200 * MB


# ---------------------------------------------------------------- all of it or nothing


def test_what_is_rolled_back_leaves_no_file(run_file: Store, run: str, file: Path, source: Path) -> None:
    bind_file(run_file, run, "x", source)
    before = attached(file)

    def fails() -> None:
        with run_file.begin() as tx:
            tx.programs.bindings.bind_file(run, "x", source)
            tx.programs.bindings.bind_file(run, "x", source)
            tx.programs.bindings.bind_file(run, "y", source)
            tx.programs.bindings.bind(run, "z", "z" * 200_000)
            assert len(attached(file)) == 5
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fails()
    assert (attached(file), audit(run_file, run)) == (before, [])
    assert read(run_file, run, "x") == source.read_bytes()


def test_a_file_goes_with_its_last_row(run_file: Store, run: str, file: Path, source: Path) -> None:
    path = str(bind_file(run_file, run, "x", source).attachment_path)
    with sqlite3.connect(file) as raw:
        put(raw, "copy", path)
    raw.close()
    stream = open_stream(run_file, run, "x")
    bind(run_file, run, "x", "small")
    assert read(run_file, run, "copy") == source.read_bytes()
    bind_file(run_file, run, "copy", source)
    assert not (file.parent / path).exists()
    with stream:
        assert stream.read() == source.read_bytes()  # what it was opened for stays
    assert audit(run_file, run) == []


def test_a_refused_name_costs_no_copy(run_file: Store, run: str, file: Path, source: Path) -> None:
    bind(run_file, run, "x", "1", kind="const")
    with pytest.raises(Conflict):
        bind_file(run_file, run, "x", source)
    assert not (file.parent / "attachments").exists()


def test_a_full_disk_leaves_nothing(run_file: Store, run: str, file: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFull):
        bind_file(run_file, run, "x", source)
    monkeypatch.undo()
    assert (attached(file), audit(run_file, run)) == ([], [])


def test_a_kill_before_the_commit_leaves_the_value_as_it_was(run_file: Store, run: str, file: Path, source: Path) -> None:
    bind_file(run_file, run, "x", source)
    other = source.with_name("other")
    other.write_bytes(b"other")
    code = """
import os, sys
from persist.programs import open_run_file
with open_run_file(sys.argv[1]) as store, store.begin() as tx:
    tx.programs.bindings.bind_file(store.run_id, "x", sys.argv[2])
    os._exit(7)
"""
    killed = subprocess.run([sys.executable, "-c", code, str(file), str(other)], check=False)
    assert killed.returncode == 7
    assert read(run_file, run, "x") == source.read_bytes()
    assert (len(attached(file)), codes(run_file, run)) == (2, ["attachment_unused"])


def test_two_processes_bind_one_name(run_file: Store, run: str, file: Path, tmp_path: Path) -> None:
    processes = []
    for letter in "ab":
        (tmp_path / letter).write_bytes(letter.encode() * 2 * MB)
        processes.append(Worker("tests.programs.binding_worker", file, tmp_path / letter))
    while any(process.poll() is None for process in processes):
        with suppress(NotFound):  # not yet
            assert read(run_file, run, "x") in (b"a" * 2 * MB, b"b" * 2 * MB)
    assert [process.wait() for process in processes] == [0, 0]
    for process in processes:
        process.close()
    assert (len(attached(file)), audit(run_file, run)) == (1, [])


@pytest.mark.parametrize("session", [False, True])
def test_an_export_names_what_it_does_not_hold(run_file: Store, run: str, source: Path, tmp_path: Path, session: bool) -> None:
    bind(run_file, run, "small", "1")
    paths = [str(bind_file(run_file, run, name, source).attachment_path) for name in ("y", "x")]
    report = export(run_file, tmp_path / "out.jsonl", session_id=run if session else None)
    assert report.files == tuple(sorted(paths))
    assert report.tables["bindings"] == 3
    assert source.read_bytes()[2:13] not in (tmp_path / "out.jsonl").read_bytes()
