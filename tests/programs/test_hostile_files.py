"""What others put into a run's attachments: no link is followed, nothing but a regular file is opened, the database never."""

import os
import socket
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue, NotFound, PersistError, Unavailable
from persist.programs import audit, open_run_file
from tests.command_line import Sqlite3
from tests.programs.raw_rows import codes, put
from tests.programs.test_attachments import bind, resolve

LARGE = 200_000


def soon(call: Callable[[], Any]) -> BaseException | None:
    """What it raised; a call that hangs fails the test and not the run."""
    raised: list[BaseException | None] = []

    def work() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert raised, "it hangs"
    return raised[0]


@pytest.fixture
def kinds(file: Path, folder: Path, outside: Path) -> Iterator[dict[str, Path]]:
    """Everything that a name may be but a regular file of its own."""
    (folder / "real.md").write_text("real")
    (folder / "folder.md").mkdir()
    os.mkfifo(folder / "pipe.md")
    listening = socket.socket(socket.AF_UNIX)
    before = Path.cwd()
    os.chdir(folder)  # such a name is short
    listening.bind("socket.md")
    os.chdir(before)
    targets = {"outside": outside, "database": file, "beside": file.with_name("program.prose"), "text": folder / "real.md"}
    targets |= {"device": Path("/dev/zero"), "pipe": folder / "pipe.md", "nothing": folder / "nothing"}
    for name, target in targets.items():
        (folder / f"link to {name}.md").symlink_to(target)
    (folder / "link to a folder").symlink_to(file.parent)
    for name, target in {"database": file, "log": file.with_name("state.db-wal"), "text": outside}.items():
        os.link(target, folder / f"hard {name}.md")
    yield {one.name: one for one in folder.iterdir() if one.name != "real.md"}
    listening.close()


def test_nothing_but_regular_files_is_opened(
    run_file: Store, run: str, raw: sqlite3.Connection, kinds: dict[str, Path], system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[int, int]] = []
    really = os.open

    def watched(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        handle = really(path, flags, *rest, **options)
        status = os.fstat(handle)
        if not stat.S_ISDIR(status.st_mode) and not flags & getattr(os, "O_PATH", 0):
            opened.append((status.st_dev, status.st_ino))
        return handle

    monkeypatch.setattr(os, "open", watched)
    assert len(kinds) == 14
    for name in [*kinds, "link to a folder/state.db", "link to a folder/program.prose", "real.md/x"]:
        put(raw, "x", f"attachments/{name}")
        refused = soon(lambda: resolve(run_file, run, "x"))
        assert isinstance(refused, InvalidValue), (name, refused)
        assert "attachment_escapes" in codes(run_file, run)
    assert opened == []
    put(raw, "x", "attachments/nowhere.md")
    with pytest.raises(NotFound):
        resolve(run_file, run, "x")
    put(raw, "x", "attachments/real.md")
    assert resolve(run_file, run, "x") == "real"
    assert len(opened) == 1


def test_binding_writes_through_nothing(
    run_file: Store, run: str, file: Path, raw: sqlite3.Connection, kinds: dict[str, Path], outside: Path, system: str
) -> None:
    """A link stands where a file would be expected: neither it nor its target changes."""
    before = {path: path.lstat() for path in kinds.values()}
    for number, name in enumerate(kinds):
        stem = name.removesuffix(".md")
        os.replace(kinds[name], path := kinds[name].with_name(f"b{number}.md"))
        before[path] = before.pop(kinds[name])
        for bound in (f"b{number}", stem):
            put(raw, bound, f"attachments/b{number}.md")
            assert soon(lambda bound=bound: bind(run_file, run, bound, "x" * LARGE)) is None  # type: ignore[misc]  # a default
            assert resolve(run_file, run, bound) == "x" * LARGE
    assert {path: (status.st_ino, status.st_mode) for path, status in before.items()} == {
        path: (path.lstat().st_ino, path.lstat().st_mode) for path in before
    }
    assert (outside.read_text(), file.with_name("program.prose").read_text()) == ("secret", "session 'hi'")
    assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("inner", [False, True])
def test_a_folder_that_is_a_link_is_not_entered(
    run_file: Store, run: str, file: Path, tmp_path: Path, raw: sqlite3.Connection, system: str, inner: bool
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.md").write_text("secret")
    bound = bind(run_file, run, "mine", "x" * LARGE)
    if inner:
        (file.parent / "attachments" / "sub").symlink_to(elsewhere)
        put(raw, "x", "attachments/sub/x.md")
    else:
        (file.parent / "attachments").rename(elsewhere / "moved")
        (file.parent / "attachments").symlink_to(elsewhere)
        put(raw, "x", "attachments/x.md")
        with pytest.raises(Unavailable):
            bind(run_file, run, "y", "x" * LARGE)
        bind(run_file, run, "mine", "small")
        os.replace(elsewhere / "moved" / str(bound.attachment_path).partition("/")[2], elsewhere / "kept.md")
    with pytest.raises(InvalidValue):
        resolve(run_file, run, "x")
    assert "attachment_escapes" in codes(run_file, run)
    assert {one.name for one in elsewhere.iterdir()} - {"moved", "kept.md"} == {"x.md"}


def test_audits_tell_of_what_cannot_be_read(run_file: Store, run: str, kinds: dict[str, Path], raw: sqlite3.Connection) -> None:
    assert {finding.code for finding in audit(run_file, run)} == {"attachment_unused"}
    put(raw, "x", "attachments/pipe.md")
    (finding,) = [one for one in audit(run_file, run) if one.code == "attachment_escapes"]
    assert finding.subject == "binding x"
    assert "no regular file" in finding.message


ALIASES = [
    "state.db",
    "state.db-wal",
    "state.db-shm",
    "attachments/link",
    "attachments/hard",
    "attachments/log",
    "attachments/index",
]


@pytest.mark.parametrize("path", ALIASES)
def test_resolving_drops_no_locks(
    run_file: Store, run: str, file: Path, folder: Path, sqlite3_shell: Sqlite3, path: str, system: str
) -> None:
    """A process that closes a database file, by any name, has no locks on it any more: who leaves next deletes its log."""
    bind(run_file, run, "first", "1")
    (folder / "link").symlink_to(file)
    for name, suffix in (("hard", ""), ("log", "-wal"), ("index", "-shm")):
        os.link(f"{file}{suffix}", folder / name)
    with closing(sqlite3.connect(file, isolation_level=None)) as raw:
        put(raw, "x", path)
    log = file.with_name("state.db-wal").stat().st_ino
    with run_file.read():  # a lock that is held
        for _ in range(3):
            with open_run_file(file) as other, pytest.raises(PersistError):
                resolve(other, run, "x")
            with pytest.raises(PersistError):
                resolve(run_file, run, "x")
            audit(run_file, run)
    assert sqlite3_shell.run(file, "SELECT count(*) FROM bindings").stdout == "2\n"
    assert file.with_name("state.db-wal").stat().st_ino == log
    for number in range(5):
        bind(run_file, run, f"later {number}", "1")
        assert sqlite3_shell.run(file, "SELECT count(*) FROM bindings").stdout == f"{3 + number}\n"
