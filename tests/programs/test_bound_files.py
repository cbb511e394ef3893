"""Values that are bound from files: whole and as they were, of any size, or not at all."""

import asyncio
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.errors import Conflict, InvalidValue, NotFound, NotPermitted, PayloadTooLarge, StoreFull
from persist.maintenance import export
from persist.programs import agents_file, audit, open_run_file, subagent
from persist.programs.storage.attachments import Folder
from persist.settings import Settings
from tests.cases import each
from tests.programs.bound import MB, attached, bind_file, read
from tests.programs.raw_rows import codes, put
from tests.programs.test_attachments import bind, resolve
from tests.programs.test_hostile_files import soon
from tests.subprocesses import Worker


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


def test_a_file_of_other_names_and_an_attachment_are_sources(run_file: Store, run: str, tmp_path: Path, source: Path) -> None:
    os.link(source, tmp_path / "other name")
    bound = bind_file(run_file, run, "x", tmp_path / "other name")
    assert run_file.path is not None
    copied = bind_file(run_file, run, "y", run_file.path.parent / str(bound.attachment_path))
    assert copied.attachment_path != bound.attachment_path
    assert read(run_file, run, "y") == source.read_bytes()


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


# Values as streams of bytes: what a row may lead to, and the async face.


@pytest.mark.parametrize("stored", ["../secret.md", "state.db", "attachments/link.md", "attachments/pipe.md"])
def test_a_stream_is_of_nothing_but_an_attachment(
    run_file: Store, run: str, file: Path, folder: Path, outside: Path, stored: str, system: str
) -> None:
    (folder / "link.md").symlink_to(outside)
    os.mkfifo(folder / "pipe.md")
    with sqlite3.connect(file) as raw:
        put(raw, "x", stored)
    raw.close()
    refused = soon(lambda: read(run_file, run, "x"))
    assert isinstance(refused, InvalidValue), refused


def test_a_stream_of_what_was_replaced_is_the_newer_one(run_file: Store, run: str, file: Path, source: Path) -> None:
    bind(run_file, run, "x", "one" * 50_000)
    with run_file.read() as tx, open_run_file(file) as other:
        assert len(tx.programs.bindings.list(run)) == 1
        bind_file(other, run, "x", source)
        with tx.programs.bindings.open_file(run, "x") as stream:
            assert stream.read() == source.read_bytes()
    (file.parent / "attachments" / attached(file)[0]).unlink()
    with pytest.raises(NotFound) as caught:
        read(run_file, run, "x")
    assert caught.value.kind == "attachment"


def test_a_value_that_fits_is_read_whole(file: Path, run: str, run_file: Store, source: Path) -> None:
    bind_file(run_file, run, "x", source)
    with open_run_file(file, settings=Settings(max_text_bytes=MB)) as store:
        with pytest.raises(PayloadTooLarge) as caught:
            resolve(store, run, "x")
        assert read(store, run, "x") == source.read_bytes()
    assert (caught.value.path, caught.value.size, caught.value.limit) == ("attachment_path", source.stat().st_size, MB)
    assert "open_file" in str(caught.value)


def test_a_cancelled_task_leaves_no_file(run_file: Store, run: str, file: Path, source: Path, meanwhile: Any) -> None:
    bind(run_file, run, "x", "as it was")

    async def cancelled() -> None:
        async with AsyncStore.open(f"sqlite:///{file}") as store:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            meanwhile(lambda: loop.call_soon_threadsafe(task.cancel))
            with pytest.raises(asyncio.CancelledError):
                await subagent(store, run).bindings.bind_file("x", source)
            task.uncancel()
            assert attached(file) == []
            stream = await subagent(store, run).bindings.open_file("x")
            assert stream.read() == b"as it was"

    asyncio.run(cancelled())
    assert (resolve(run_file, run, "x"), audit(run_file, run)) == ("as it was", [])


def test_a_handle_that_nobody_awaited_works_too(run_file: Store, run: str, file: Path) -> None:
    """Only its run and its frame were not looked for."""

    async def use() -> None:
        async with AsyncStore.open(f"sqlite:///{file}") as store:
            handle = subagent(store, run)
            await handle.bindings.bind("x", "1")
            assert (await handle.bindings.resolve("x")).value == "1"
            with pytest.raises(NotFound):
                await subagent(store, "nobody").bindings.bind("x", "1")
            with pytest.raises(NotFound):
                await subagent(store, "nobody")

    asyncio.run(use())


# Files that cannot be bound: what is no regular file, databases that are open, and what others write to meanwhile.


@pytest.fixture
def kinds(tmp_path: Path, source: Path) -> Iterator[dict[str, Path]]:
    """Everything that a path may lead to but a regular file."""
    folder = tmp_path / "kinds"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(source)
    (folder / "link to a pipe").symlink_to(folder / "pipe")
    (folder / "dangling").symlink_to(folder / "nowhere")
    (folder / "link to a folder").symlink_to(tmp_path)
    before = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(folder)  # such a name is short
        listening.bind("socket")
        os.chdir(before)
        yield {one.name: one for one in folder.iterdir()} | {"folder": folder, "device": Path("/dev/zero")}


def test_nothing_but_a_regular_file_is_bound(run_file: Store, run: str, file: Path, kinds: dict[str, Path], system: str) -> None:
    bind(run_file, run, "x", "as it was")
    for name, path in kinds.items():
        refused = soon(lambda path=path: bind_file(run_file, run, "x", path))  # type: ignore[misc]  # a default
        assert isinstance(refused, InvalidValue), (name, refused)
        assert refused.path == "path"
    assert (resolve(run_file, run, "x"), attached(file), audit(run_file, run)) == ("as it was", [], [])


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_a_database_of_this_process_is_not_opened(
    run_file: Store, run: str, file: Path, tmp_path: Path, suffix: str, system: str
) -> None:
    """Closing it would drop the locks that its store has."""
    with agents_file("project", tmp_path) as crew:
        crew.programs.agents.remember("project", "captain", "m")
        assert crew.path is not None
        for path in (file, crew.path):
            os.link(f"{path}{suffix}", alias := tmp_path / f"alias of {path.name}")
            for name in (Path(f"{path}{suffix}"), alias):
                with pytest.raises(InvalidValue, match="in use"):
                    bind_file(run_file, run, "x", name)
    assert attached(file) == []
    if not suffix:
        assert bind_file(run_file, run, "x", crew.path).attachment_path is not None  # nobody has it open any more


def test_a_file_that_may_not_be_read_is_not(
    run_file: Store, run: str, file: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Folder, "open", refuse)
    with pytest.raises(NotPermitted) as caught:
        bind_file(run_file, run, "x", source)
    assert str(source) in str(caught.value)
    assert attached(file) == []


def replaced(source: Path) -> None:
    other = source.with_name("other")
    other.write_bytes(source.read_bytes())
    os.utime(other, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    os.replace(other, source)


def linked(source: Path) -> None:
    os.rename(source, source.with_name("moved"))
    source.symlink_to("moved")


def one_byte(source: Path) -> None:
    with open(source, "r+b") as file:
        file.seek(5)
        file.write(b"y")


CHANGES: dict[str, Callable[[Path], object]] = {
    "grown": lambda path: os.truncate(path, path.stat().st_size + 4),
    "cut": lambda path: os.truncate(path, 2 * MB),
    "emptied": lambda path: os.truncate(path, 0),
    "written again": lambda path: path.write_bytes(path.read_bytes()),
    "a byte": one_byte,
    "another file": replaced,
    "a link": linked,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_is_refused(
    run_file: Store, run: str, file: Path, source: Path, meanwhile: Any, change: str, system: str
) -> None:
    bind(run_file, run, "x", "as it was")
    meanwhile(lambda: CHANGES[change](source))
    with pytest.raises(InvalidValue) as caught:
        bind_file(run_file, run, "x", source)
    assert caught.value.path == "path"
    assert (resolve(run_file, run, "x"), attached(file), audit(run_file, run)) == ("as it was", [], [])


def test_a_file_that_vanishes_is_not_found(run_file: Store, run: str, file: Path, source: Path, meanwhile: Any) -> None:
    meanwhile(source.unlink)
    with pytest.raises(NotFound) as caught:
        bind_file(run_file, run, "x", source)
    assert (caught.value.kind, caught.value.id) == ("file", str(source))
    assert attached(file) == []


def test_a_link_that_is_swapped_in_is_never_read(
    run_file: Store, run: str, file: Path, tmp_path: Path, outside: Path, system: str
) -> None:
    place, regular, link = tmp_path / "place", tmp_path / "regular", tmp_path / "link"
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            regular.write_text("mine")
            os.replace(regular, place)
            link.symlink_to(outside)
            os.replace(link, place)

    place.write_text("mine")
    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(60):
            try:
                bind_file(run_file, run, "x", place)
            except (InvalidValue, NotFound):
                continue
            assert read(run_file, run, "x") in (b"mine", b"")
    finally:
        over.set()
        swapping.join(60)
    assert len(attached(file)) <= 1
