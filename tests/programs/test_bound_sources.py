"""Files that cannot be bound: what is no regular file, databases that are open, and what others write to meanwhile."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue, NotFound, NotPermitted
from persist.programs import agents_file, audit
from persist.programs.storage.attachments import Folder
from tests.programs.bound import MB, attached, bind_file, read
from tests.programs.test_attachments import bind, resolve
from tests.programs.test_hostile_files import soon

# ---------------------------------------------------------------- what is no file


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
        with crew.begin() as tx:
            tx.programs.agents.remember("project", "captain", "m")
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


# ---------------------------------------------------------------- files that others write to


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


def test_a_transaction_goes_on_after_a_refusal(run_file: Store, run: str, file: Path, source: Path, tmp_path: Path) -> None:
    with run_file.begin() as tx:
        with pytest.raises(NotFound):
            tx.programs.bindings.bind_file(run, "x", tmp_path / "nowhere")
        tx.programs.bindings.bind_file(run, "x", source)
    assert len(attached(file)) == 1
    assert read(run_file, run, "x") == source.read_bytes()


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
