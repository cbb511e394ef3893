"""Who owns work: which context uses a transaction, which process does it, and whether that process is known to have ended."""

import asyncio
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Collection
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from persist.db.concurrency.fork_count import PROCESS, in_each_child
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.concurrency import windows_processes
else:
    windows_processes = lazy_module("persist.db.concurrency.windows_processes")


# A pid is unique only within one pid namespace (each container has its own) and one boot of one machine, and only until it is
# reused. So another owner's pid is checked only if its host, boot and namespaces are known and equal to this process's.

PROC = Path("/proc")
_UNKNOWN = "-"
_ENDED_STATES = (b"Z", b"X")
"""States of an ended process that keeps its pid until its parent waits, which some parents never do."""

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
    owner = f"{_pid_scope(process)}/{os.getpid()}/{start}/{os.urandom(6).hex()}"
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
    """(state, start time) of a process. The process's name comes first and may contain anything, such as parentheses."""
    facts = (proc / number / "stat").read_bytes().rpartition(b")")[2].split()
    return facts[0], facts[19].decode("ascii")


def _namespace(proc: Path, kind: str) -> str:
    """The number of this process's namespace, such as 4026531836 in `pid:[4026531836]`."""
    return os.readlink(proc / "self/ns" / kind).partition("[")[2].rstrip("]") or _UNKNOWN


# A web framework may begin a transaction in one thread of its pool, use it in a second one and end it in a third. Each of these
# calls has its own context, as an asyncio task has. Therefore the context, not the thread, tells which transaction the caller is
# inside of. A thread that runs all its jobs in one context counts as one owner.


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    return asyncio._get_running_loop()  # the public function raises an error where none runs, which costs more than BEGIN


_RLock = type(threading.RLock())


class Owner:
    """The owner of one transaction. `is_snapshot`: a snapshot of the event log, which ends by itself and blocks no caller."""

    __slots__ = ("frame", "holder", "is_snapshot", "loop", "open", "using")

    def __init__(self, *, is_snapshot: bool = False) -> None:
        self.is_snapshot = is_snapshot
        self.open = True
        self.using = _RLock()
        """Held by the thread that is executing a verb."""
        self.holder: Mark | None = None
        """The mark of the context that used the transaction last."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop that must keep running for the transaction to end."""
        self.frame: FrameType | None = None
        """The stack frame that entered the transaction's `with` block."""

    @property
    def is_with_caller(self) -> bool:
        """Whether the caller's context, or the context it was started from, used the transaction last."""
        return any(mark is self.holder for mark in _marks.get())

    def set_holder(self, frame: FrameType | None = None) -> None:
        """Make the caller's context the holder. A context that was started inside of the transaction shares its parent's mark."""
        marks = _marks.get()
        if marks and marks[-1] is self.holder:
            return
        for mark in marks:
            if mark.owner is self:
                self.holder = mark
                return
        self.holder = Mark(self)
        self.loop = running_loop() or self.loop
        self.frame = frame or self.frame
        _marks.set((*_of_open(marks), self.holder) if marks else (self.holder,))

    def end(self) -> None:
        """The transaction has ended. Contexts may still have marks of it, which no longer count."""
        self.open = False
        self.holder = self.loop = self.frame = None


class Mark:
    """A context's record of a transaction that was begun, or used, in it."""

    __slots__ = ("owner", "thread")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.thread = threading.get_ident()

    @property
    def on_stack(self) -> bool:
        """Whether the frame that entered the block is on this thread's stack: the transaction then outlives the current call."""
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame is not self.owner.frame:
            frame = frame.f_back
        return frame is not None

    @property
    def may_be_on_its_way(self) -> bool:
        """Whether another thread may have got the transaction and not used it yet. Where jobs share a context, it cannot tell."""
        return self.thread == threading.get_ident() and running_loop() is None and not self.on_stack


def inside(open_: Collection[Owner]) -> Mark | None:
    """The caller's mark on the open transaction around the caller; None if another context has taken the transaction over."""
    for mark in _marks.get():
        if mark.owner in open_ and (mark.owner.holder is mark or mark.on_stack):
            return mark
    return None


def forget_ended() -> None:
    """Remove the marks of ended transactions from the caller's context."""
    marks = _marks.get()
    if marks:
        _marks.set(() if len(marks) == 1 and not marks[0].owner.open else _of_open(marks))


def _of_open(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    return tuple([mark for mark in marks if mark.owner.open])


_marks: ContextVar[tuple[Mark, ...]] = ContextVar("persist_entered", default=())
