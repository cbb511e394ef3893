"""Owners of work: which recorder or process does it, and whether that process is known to have ended.

A pid is unique only within one pid namespace (each container has its own) and one boot of one machine, and only until it is
reused. So another owner's pid is checked only if its host, boot and namespaces are known and equal to this process's.
"""

import os
import secrets
import socket
import sys
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from persist.db.concurrency.fork_count import PROCESS, in_each_child
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.concurrency import windows_processes
else:
    windows_processes = lazy_module("persist.db.concurrency.windows_processes")

PROC = Path("/proc")
_UNKNOWN = "-"
_ENDED_STATES = (b"Z", b"X")
"""States of a process that ended but keeps its pid until its parent waits for it, which some parents never do."""

_live: set[str] = set()
_ended: deque[str] = deque(maxlen=1000)
"""The latest owners that were closed or dropped in this process. One that falls out is stale once it was not seen for long."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The start time of this process, and the boot and namespaces within which its pid and start time are comparable."""

    boot: str
    """The boot id. On Windows the machine's: start times there are absolute, so they differ between boots."""
    pids: str
    """The pid namespace."""
    clock: str
    """The time namespace, which defines the origin of `start`."""
    start: str


def new_owner() -> str:
    """A new owner: `host/boot/pid namespace/time namespace/pid/start/nonce`, with `-` for what the system does not provide."""
    process = this_process(PROCESS.forks, PROC)
    start = _UNKNOWN if process is None else process.start
    owner = f"{_pid_scope(process)}/{os.getpid()}/{start}/{secrets.token_hex(6)}"
    _live.add(owner)
    return owner


def this_process_as_owner() -> str:
    """An owner that stands for the whole process, as long as it lives."""
    return _process_owner(PROCESS.forks)


@lru_cache(maxsize=1)
def _process_owner(forks: int) -> str:
    return new_owner()


def place_of(owner: str) -> tuple[str, int | None]:
    """The host of an owner and its pid, for people to read; (the whole text, None) if it is not as `new_owner` makes one."""
    host, *fields = owner.rsplit("/", 6)
    if len(fields) != 6 or not (fields[3].isascii() and fields[3].isdigit() and len(fields[3]) < 10):
        return owner, None
    return host, int(fields[3])


def retire_owner(owner: str) -> None:
    """Mark an owner's work as over: its recorder was closed or dropped."""
    if owner in _live:
        _live.discard(owner)
        _ended.append(owner)


def is_stale(owner: str, seen_at: datetime, now: datetime, stale_after: timedelta) -> bool:
    """Whether the owner is known to be gone or, where that cannot be known, was not seen for `stale_after`."""
    if owner in _live:
        return False
    return owner in _ended or _is_gone(owner) or now - seen_at > stale_after


def _in_child() -> None:
    """After a fork: the parent's recorders do not belong to the child."""
    _live.clear()
    _ended.clear()


in_each_child(_in_child)


@lru_cache(maxsize=1)
def this_process(forks: int, proc: Path) -> ProcessIdentity | None:
    """The identity of this process, read once after each fork. None if the system tells too little (macOS, a foreign /proc)."""
    if sys.platform == "win32":
        machine, start = windows_processes.machine(), windows_processes.started(os.getpid())
        return ProcessIdentity(machine, _UNKNOWN, _UNKNOWN, start) if machine and start else None
    try:
        numbers = [line.split()[1:] for line in (proc / "self/status").read_bytes().splitlines() if line.startswith(b"NSpid:")]
        if numbers != [[b"%d" % os.getpid()]]:
            return None  # /proc of another pid namespace, with other pids
        boot = (proc / "sys/kernel/random/boot_id").read_text("ascii").strip()
        start = _stat(proc, "self")[1]
        pids = _namespace(proc, "pid")
    except (OSError, ValueError, IndexError):
        return None
    try:
        clock = _namespace(proc, "time")
    except OSError:
        clock = _UNKNOWN  # a kernel without time namespaces
    return ProcessIdentity(boot, pids, clock, start) if boot else None


def _pid_scope(process: ProcessIdentity | None) -> str:
    """The part of an owner that must be equal for pids to be comparable."""
    boot, pids, clock = (_UNKNOWN,) * 3 if process is None else (process.boot, process.pids, process.clock)
    return f"{socket.gethostname()}/{boot}/{pids}/{clock}"


def _is_gone(owner: str) -> bool:
    """Whether the owner's process is known to have ended. False: it runs, or nothing is known."""
    process = this_process(PROCESS.forks, PROC)
    pid_scope, *process_fields = owner.rsplit("/", 3)
    if process is None or pid_scope != _pid_scope(process) or len(process_fields) != 3:
        return False
    number, start, _ = process_fields
    if not (number.isascii() and number.isdigit() and len(number) < 10 and int(number) > 0):
        return False
    if sys.platform == "win32":  # os.kill(pid, 0) would send Ctrl-C there
        return windows_processes.started(int(number)) not in (start, None)
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # a process of another user has the pid
    try:
        state, began = _stat(PROC, number)
    except (OSError, IndexError):
        return False  # hidden from this process
    return state in _ENDED_STATES or began != start


def _stat(proc: Path, number: str) -> tuple[bytes, str]:
    """(state, start time) of a process. Its name, which comes before both in the file, may contain anything, parentheses too."""
    facts = (proc / number / "stat").read_bytes().rpartition(b")")[2].split()
    return facts[0], facts[19].decode("ascii")


def _namespace(proc: Path, kind: str) -> str:
    """The number of a namespace of this process, such as 4026531836 in `pid:[4026531836]`."""
    return os.readlink(proc / "self/ns" / kind).partition("[")[2].rstrip("]") or _UNKNOWN
