"""What one system says otherwise than the others, or only one of them says at all."""

import ctypes
import errno
import os
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from persist.chat.storage.statements import is_stale
from persist.db import files as folders
from persist.db.concurrency import ownership as owners
from persist.db.concurrency import windows_processes
from persist.db.dialects.untrusted_files import network_of
from persist.db.files import typed, uri_for_sqlite
from persist.db.values.escaping import command_word
from persist.errors import InvalidValue, NotPermitted, StoreInUse
from persist.sessionlog import slug_for_cwd

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")


def refusal(code: int, kind: type[OSError] = PermissionError, number: int = errno.EACCES) -> OSError:
    """As Windows has it, with its own number."""
    error: Any = kind(number, "The words of the system")
    error.winerror = code
    return error  # type: ignore[no-any-return]  # it has an attribute that its type knows on Windows only


@pytest.mark.parametrize(("opened_for", "tries"), [(0, 1), (3, 4)])
def test_a_file_that_a_scanner_looks_at_is_replaced_a_moment_later(
    opened_for: int, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def replace(source: str, target: str, **_: Any) -> None:
        asked.append((source, target))
        if len(asked) <= opened_for:
            raise refusal(5)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(folders, "_PAUSE", 0)
    folders.replace("new", "old")
    assert asked == [("new", "old")] * tries


def test_a_file_that_stays_open_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(*_: Any, **__: Any) -> None:
        raise refusal(32)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(folders, "_PAUSE", 0)
    with pytest.raises(StoreInUse, match=r"state\.db cannot be replaced: .* close it first\."):
        folders.replace("new", Path("state.db"))


def test_another_refusal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(PermissionError):
        folders.replace("new", "old")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refusal(32), StoreInUse),
        (refusal(33), StoreInUse),
        (refusal(5), NotPermitted),
        (refusal(123, OSError, errno.EINVAL), InvalidValue),
        (refusal(206, FileNotFoundError, errno.ENOENT), InvalidValue),
    ],
)
def test_what_windows_refuses_is_an_error_of_ours(error: OSError, kind: type[Exception]) -> None:
    found = typed(error, Path("state.db"))
    assert type(found) is kind
    assert "state.db" in str(found)


@pytest.mark.parametrize("supported", [True, False])
def test_a_mac_brings_files_to_the_disk_not_only_to_the_drive(
    supported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def control(handle: int, command: int) -> None:
        calls.append(f"fcntl {command}")
        if not supported:
            raise OSError(errno.ENOTSUP, "Not supported")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(folders, "fcntl", SimpleNamespace(fcntl=control, F_FULLFSYNC=51), raising=False)
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append("fsync"))
    with open(tmp_path / "file", "wb") as file:
        folders.sync_file(file.fileno())
    assert calls == (["fcntl 51"] if supported else ["fcntl 51", "fsync"])


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("file:///C:/Users/a%20b/state.db", "file:///C:/Users/a%20b/state.db?mode=ro"),
        ("file://server/share/state.db", "file:////server/share/state.db?mode=ro"),
        ("file:///home/state.db", "file:///home/state.db?mode=ro"),
    ],
)
def test_sqlite_is_asked_for_drives_and_for_other_machines(uri: str, expected: str) -> None:
    assert uri_for_sqlite(uri, "mode=ro") == expected


def test_a_folder_of_another_machine_is_a_network_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "realpath", lambda _: "\\\\server\\share\\state.db")
    monkeypatch.setattr(os.path, "dirname", lambda path: path.rpartition("\\")[0])
    assert network_of(Path("Z:/state.db")) == "smb"


@pytest.mark.usefixtures("on_windows")
def test_words_for_windows() -> None:
    assert command_word("sqlite:///C:\\My files\\state.db") == '"sqlite:///C:\\My files\\state.db"'
    assert slug_for_cwd("C:\\Users\\agent") == "C--Users-agent"


class Kernel:
    """What kernel32 says of processes: when each started, and how those ended that are still known."""

    def __init__(self, started: dict[int, int], ended: dict[int, int], hidden: set[int]) -> None:
        self.error, self.handles = 0, 0

        def OpenProcess(access: int, inherit: bool, pid: int) -> int:  # noqa: N802  # its name
            self.error = 5 if pid in hidden else 0 if pid in started else 87
            self.handles += not self.error
            return 0 if self.error else pid

        def GetExitCodeProcess(process: int, code: Any) -> bool:  # noqa: N802  # its name
            code._obj.value = ended.get(process, 259)
            return True

        def GetProcessTimes(process: int, created: Any, *rest: Any) -> bool:  # noqa: N802  # its name
            created._obj.dwHighDateTime, created._obj.dwLowDateTime = divmod(started[process], 1 << 32)
            return True

        def CloseHandle(process: int) -> bool:  # noqa: N802  # its name
            self.handles -= 1
            return True

        functions: list[Callable[..., Any]] = [OpenProcess, GetExitCodeProcess, GetProcessTimes, CloseHandle]
        self.library = SimpleNamespace(**{function.__name__: function for function in functions})


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, on_windows: None) -> Kernel:
    """This process and 7 run, 8 ended with 1, and nobody may look at 9."""
    began = 133_500_000_000_000_000
    kernel = Kernel({os.getpid(): began, 7: began + 7, 8: began + 8}, {8: 1}, {9})
    monkeypatch.setattr(ctypes, "WinDLL", lambda *_, **__: kernel.library, raising=False)
    monkeypatch.setattr(ctypes, "get_last_error", lambda: kernel.error, raising=False)
    monkeypatch.setattr(uuid, "getnode", lambda: 0x0250F2000001)
    monkeypatch.setattr(os, "kill", None)  # it would be Ctrl-C
    owners.this_process.cache_clear()
    return kernel


@pytest.mark.parametrize(
    ("pid", "start", "gone"),
    [
        (7, 133_500_000_000_000_007, False),
        (7, 133_400_000_000_000_000, True),  # the number was given again
        (8, 133_500_000_000_000_008, True),
        (9, 133_500_000_000_000_009, False),  # nobody knows
        (10, 133_500_000_000_000_010, True),
    ],
)
def test_a_process_of_windows_is_known_by_its_number_and_its_start(kernel: Kernel, pid: int, start: int, gone: bool) -> None:
    place = owners.new_owner().rsplit("/", 3)[0]
    assert is_stale(f"{place}/{pid}/{start}/nonce", NOW, NOW) is gone
    assert kernel.handles == 0
    owners.this_process.cache_clear()


def test_a_process_of_another_machine_is_nobodys_to_judge(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = owners.new_owner()
    owners.retire_owner(owner)
    place, pid, start, _ = owner.rsplit("/", 3)
    elsewhere = f"{place.replace('0250f2000001', '0250f2000002')}/10/{start}/nonce"
    assert (pid, is_stale(elsewhere, NOW, NOW)) == (str(os.getpid()), False)
    monkeypatch.setattr(uuid, "getnode", lambda: 0x0150F2000001)  # drawn: this machine has no address
    owners.this_process.cache_clear()
    assert windows_processes.machine() is None
    assert not is_stale(f"{place}/10/{start}/nonce", NOW, NOW)
    owners.this_process.cache_clear()
