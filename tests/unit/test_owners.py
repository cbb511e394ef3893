"""Owners: whose process is gone can be told only where its number means the same. Names of tenants: which are none."""

import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from persist.chat.storage.statements import is_stale
from persist.db.concurrency import ownership as owners
from persist.db.concurrency.ownership import ProcessIdentity, new_owner, retire_owner, this_process
from persist.db.dialects.postgres.wakeups import channel
from persist.errors import InvalidValue
from persist.tenants.placing import check_tenant
from tests.cases import each
from tests.concurrency.forked import in_child

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BOOT = "5ce2e602-2d76-4dbf-a81c-d0898994d9a5"


def stat(pid: int, start: int, state: str = "S") -> str:
    """As a system writes it of a process whose name is meant to confuse."""
    return f"{pid} (a) Z 1) {state} {' '.join(['0'] * 18)} {start} 0 0\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """What a system tells of this process, which started at 100."""
    proc = tmp_path / "proc"
    for folder in ("self/ns", "sys/kernel/random"):
        (proc / folder).mkdir(parents=True)
    (proc / "self/status").write_text(f"Name:\tpython\nNSpid:\t{os.getpid()}\nThreads:\t1\n")
    (proc / "self/stat").write_text(stat(os.getpid(), 100))
    (proc / "self/ns/pid").symlink_to("pid:[7]")
    (proc / "self/ns/time").symlink_to("time:[8]")
    (proc / "sys/kernel/random/boot_id").write_text(f"{BOOT}\n")
    return proc


@pytest.fixture
def here(proc: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(owners, "PROC", proc)
    return proc


@pytest.fixture
def gone() -> int:
    """The number of a process that ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return process.pid


def owner(pid: int, *, boot: str = BOOT, pids: str = "7", clock: str = "8", start: str = "100", host: str = "") -> str:
    return f"{host or socket.gethostname()}/{boot}/{pids}/{clock}/{pid}/{start}/nonce"


def judged(owner: str) -> str:
    """ "gone" at once, or "waited for" up to 60 s."""
    assert is_stale(owner, NOW - timedelta(seconds=60.001), NOW)
    return "gone" if is_stale(owner, NOW, NOW) else "waited for"


def test_an_owner_says_where_its_number_means_something(here: Path) -> None:
    words = new_owner().split("/")
    assert words[:-1] == [socket.gethostname(), BOOT, "7", "8", str(os.getpid()), "100"]
    assert new_owner() != new_owner()


def test_a_process_of_the_same_place_is_gone_at_once(here: Path, gone: int) -> None:
    assert judged(owner(gone)) == "gone"


@pytest.mark.parametrize(
    "elsewhere", [{"host": "another"}, {"boot": BOOT[::-1]}, {"pids": "9"}, {"clock": "9"}], ids=lambda fact: next(iter(fact))
)
def test_a_process_of_another_place_is_waited_for(here: Path, gone: int, elsewhere: dict[str, str]) -> None:
    for pid in (gone, os.getpid()):  # as a container's first process is number 1 in all of them
        assert judged(owner(pid, **elsewhere)) == "waited for"


def test_a_number_that_was_given_again_is_nobody_alive(here: Path) -> None:
    pid = os.getpid()
    (here / str(pid)).mkdir()
    (here / str(pid) / "stat").write_text(stat(pid, 100))
    assert judged(owner(pid)) == "waited for"
    assert judged(owner(pid, start="99")) == "gone"
    (here / str(pid) / "stat").write_text(stat(pid, 100, "Z"))  # it ended, and nobody asked for it
    assert judged(owner(pid)) == "gone"


def test_a_process_that_is_hidden_is_waited_for(here: Path) -> None:
    assert judged(owner(os.getpid(), start="99")) == "waited for"


@each("pid", ["0", "-1", "²", "", "9" * 19, "9" * 5000, "1.5"])
def test_no_number_is_waited_for(here: Path, pid: str) -> None:
    assert judged(owner(1).replace("/1/", f"/{pid}/")) == "waited for"


@pytest.mark.parametrize("text", ["", "/", "//////", "host", "{host}/{gone}/nonce", "{host}/{pid}/nonce"])
def test_an_owner_of_another_form_is_waited_for(here: Path, gone: int, text: str) -> None:
    """As the release before wrote them, or anybody else."""
    assert judged(text.format(host=socket.gethostname(), gone=gone, pid=os.getpid())) == "waited for"


def test_a_recorder_of_this_process_is_known(here: Path) -> None:
    mine = new_owner()
    assert not is_stale(mine, NOW - timedelta(hours=1), NOW)  # however long its tool runs
    retire_owner(mine)
    assert is_stale(mine, NOW, NOW)


def test_all_that_has_to_be_known(proc: Path) -> None:
    assert this_process(0, proc) == ProcessIdentity(BOOT, "7", "8", "100")


def test_an_older_system_without_time_namespaces(proc: Path) -> None:
    (proc / "self/ns/time").unlink()
    assert this_process(0, proc) == ProcessIdentity(BOOT, "7", "-", "100")


@pytest.mark.parametrize("numbers", ["", "NSpid:\n", "NSpid:\t{other}\n", "NSpid:\t{other}\t{pid}\n", "NSpid:\t{pid}\t1\n"])
def test_what_another_namespace_is_told_says_nothing(proc: Path, numbers: str) -> None:
    (proc / "self/status").write_text("Name:\tpython\n" + numbers.format(pid=os.getpid(), other=os.getpid() + 1))
    assert this_process(0, proc) is None


@pytest.mark.parametrize("missing", ["self/status", "self/stat", "self/ns/pid", "sys/kernel/random/boot_id"])
def test_a_system_that_tells_too_little(proc: Path, missing: str) -> None:
    (proc / missing).unlink()
    assert this_process(0, proc) is None


def test_a_system_that_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: int) -> None:
    def kill(*_: object) -> None:
        raise AssertionError("where there is no /proc, a signal 0 may be anything")

    monkeypatch.setattr(owners, "PROC", tmp_path / "none")
    monkeypatch.setattr(os, "kill", kill)
    mine = new_owner()
    assert mine.split("/")[:-1] == [socket.gethostname(), "-", "-", "-", str(os.getpid()), "-"]
    for pid in (gone, os.getpid()):  # two machines may have one name
        assert judged(mine.replace(f"/{os.getpid()}/-/", f"/{pid}/-/")[:-1]) == "waited for"
    retire_owner(mine)
    assert is_stale(mine, NOW, NOW)


def test_a_child_is_another_process() -> None:
    mine = new_owner()

    def child() -> list[str]:
        return [new_owner(), str(is_stale(mine, NOW - timedelta(hours=1), NOW)), str(os.getpid())]

    its, stale, pid = in_child(child)
    assert its.split("/")[4] == pid != mine.split("/")[4]
    assert stale == "True"  # no recorder of the child's own
    assert not is_stale(mine, NOW - timedelta(hours=1), NOW)


# Names of tenants: what is one, and what is refused, before any server is asked.


GOOD = ("a", "acme", "acme_2", "a" * 63, "con_1", "select", "user", "com10", "publicity")
BAD = (
    "",
    "a" * 64,
    "2acme",
    "_acme",
    "Acme",
    "ac-me",
    "acmé",
    "\uff41cme",
    "\u0430cme",
    "a b",
    "a.b",
    "../a",
    "a/b",
    "a\\b",
    "a\0",
    "a\n",
    'a"',
    "a'; --",
    "public",
    "information_schema",
    "pg_acme",
    "persist",
    "persist_tenants",
    "citus",
    "con",
    "nul",
    "com1",
    "lpt9",
)


def test_names_that_mean_one_tenant_everywhere() -> None:
    assert [check_tenant(name) for name in GOOD] == list(GOOD)


def test_other_names_are_refused_with_the_reason() -> None:
    for name in BAD:
        with pytest.raises(InvalidValue, match="tenant"):
            check_tenant(name)
    for value in (None, 7, b"acme", ["acme"]):
        with pytest.raises(InvalidValue, match="not text"):
            check_tenant(value)


def test_two_tenants_never_share_a_channel_of_notifications() -> None:
    names = ["a" * 63, "a" * 62 + "b", "a" * 62, "a" * 49, "a" * 48, "acme"]
    channels = {channel(name, topic) for name in names for topic in ("events", "turns", "runs")}
    assert len(channels) == 3 * len(names)
    assert all(len(found) <= 63 for found in channels)
    assert channel("acme") == "persist_events_acme"
