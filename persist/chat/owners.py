"""The owner of a turn: which process records, and what can be told from here of whether it still does.

A number names a process only among those of one pid namespace, of which each container has its own, in one boot of one machine,
and only until it is given again. So a number is judged where all of this is known and the same, and nowhere else.
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

from persist.db.process import THIS, in_each_child
from persist.later import later

if TYPE_CHECKING:
    from persist.chat import windows_processes
else:
    windows_processes = later("persist.chat.windows_processes")

PROC = Path("/proc")
_UNSEEN = timedelta(seconds=60)
_UNKNOWN = "-"
_OVER = (b"Z", b"X")
"""It ended, and keeps its number until its parent asks for it, which some parents never do."""

_live: set[str] = set()
_ended: deque[str] = deque(maxlen=1000)
"""The latest that were closed or dropped here. One that is forgotten is stale after 60 s like any other."""


@dataclass(frozen=True, slots=True)
class Self:
    """This process, in words that mean the same to all whose numbers mean the same."""

    boot: str
    """The boot; on Windows the machine, where a process that started at that instant is no other's in any boot."""
    pids: str
    """Its pid namespace."""
    clock: str
    """Its time namespace, which says from when `start` counts."""
    start: str


def new_owner() -> str:
    """`host/boot/pid namespace/time namespace/pid/start/nonce`, with `-` for what this system does not tell."""
    here = this_process(THIS.forks, PROC)
    start = _UNKNOWN if here is None else here.start
    owner = f"{_place(here)}/{os.getpid()}/{start}/{secrets.token_hex(6)}"
    _live.add(owner)
    return owner


def retire_owner(owner: str) -> None:
    """Its recorder is closed."""
    if owner in _live:
        _live.discard(owner)
        _ended.append(owner)


def is_stale(owner: str, seen_at: datetime, now: datetime) -> bool:
    """Its recorder or its process is gone, where that can be known here; else nobody has seen it for 60 s."""
    if owner in _live:
        return False
    return owner in _ended or _is_gone(owner) or now - seen_at > _UNSEEN


def _in_child() -> None:
    """The recorders of a parent are not the child's."""
    _live.clear()
    _ended.clear()


in_each_child(_in_child)


@lru_cache(maxsize=1)
def this_process(forks: int, proc: Path) -> Self | None:
    """Looked up once after each fork. None where the system tells too little, as on a Mac, or tells it of others."""
    if sys.platform == "win32":
        machine, start = windows_processes.machine(), windows_processes.started(os.getpid())
        return Self(machine, _UNKNOWN, _UNKNOWN, start) if machine and start else None
    try:
        numbers = [line.split()[1:] for line in (proc / "self/status").read_bytes().splitlines() if line.startswith(b"NSpid:")]
        if numbers != [[b"%d" % os.getpid()]]:
            return None  # the /proc of another namespace, whose numbers are not ours
        boot = (proc / "sys/kernel/random/boot_id").read_text("ascii").strip()
        start = _stat(proc, "self")[1]
        pids = _namespace(proc, "pid")
    except (OSError, ValueError, IndexError):
        return None
    try:
        clock = _namespace(proc, "time")
    except OSError:
        clock = _UNKNOWN  # older than time namespaces
    return Self(boot, pids, clock, start) if boot else None


def _place(here: Self | None) -> str:
    """What has to be the same for a number to mean the same."""
    boot, pids, clock = (_UNKNOWN,) * 3 if here is None else (here.boot, here.pids, here.clock)
    return f"{socket.gethostname()}/{boot}/{pids}/{clock}"


def _is_gone(owner: str) -> bool:
    """Whether it is known that its process ended; False says nothing."""
    here = this_process(THIS.forks, PROC)
    place, *rest = owner.rsplit("/", 3)
    if here is None or place != _place(here) or len(rest) != 3:
        return False
    number, start, _ = rest
    if not (number.isascii() and number.isdigit() and len(number) < 10 and int(number) > 0):
        return False
    if sys.platform == "win32":  # where this os.kill is Ctrl-C
        return windows_processes.started(int(number)) not in (start, None)
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's process has the number
    try:
        state, began = _stat(PROC, number)
    except (OSError, IndexError):
        return False  # hidden from us
    return state in _OVER or began != start


def _stat(proc: Path, number: str) -> tuple[bytes, str]:
    """The state of a process, and when it started. The name, which comes before both, may hold anything."""
    facts = (proc / number / "stat").read_bytes().rpartition(b")")[2].split()
    return facts[0], facts[19].decode("ascii")


def _namespace(proc: Path, kind: str) -> str:
    """The number of a namespace of this process, such as the 4026531836 of `pid:[4026531836]`."""
    return os.readlink(proc / "self/ns" / kind).partition("[")[2].rstrip("]") or _UNKNOWN
