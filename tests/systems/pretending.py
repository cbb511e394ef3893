"""A process that takes itself for one on another system: what that lacks is removed, and what it refuses is refused.

The standard library and the libraries that persist stands on have to be loaded before, since they were written for the system
they run on. Whatever of persist is imported afterwards meets the other one.
"""

import ctypes
import errno
import os
import select
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

# Those of os that the documentation gives to Unix alone; each of them is in some version of Python on Linux or on a Mac.
_OS = """
    chflags chown chroot confstr confstr_names copy_file_range ctermid environb eventfd fchdir fchmod fchown fdatasync fork
    forkpty fpathconf fstatvfs fwalk getegid getenvb geteuid getgid getgrouplist getgroups getloadavg getpgid getpgrp
    getpriority getrandom getresgid getresuid getsid getuid getxattr initgroups killpg lchflags lchmod lchown listxattr
    lockf login_tty major makedev memfd_create minor mkfifo mknod nice openpty pathconf pidfd_open pipe2 plock posix_fadvise
    posix_fallocate posix_openpt posix_spawn posix_spawnp pread preadv pwrite pwritev readv register_at_fork removexattr
    sched_getaffinity sched_getparam sched_get_priority_max sched_setaffinity sched_setscheduler sched_yield sendfile
    setegid seteuid setgid setgroups setns setpgid setpriority setregid setresgid setresuid setreuid setsid setuid setxattr
    spawnlp spawnvp splice statvfs sync sysconf tcgetpgrp tcsetpgrp ttyname uname unshare wait wait3 wait4 waitid writev
    WNOHANG O_ACCMODE O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_NDELAY O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK
    O_PATH O_RSYNC O_SYNC O_TMPFILE
"""
_SIGNALS = "SIGALRM SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH"
_OTHERS: dict[ModuleType, str] = {
    signal: f"{_SIGNALS} alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigwait",
    select: "epoll poll devpoll kqueue",
    socket: "AF_UNIX CMSG_LEN SCM_RIGHTS recv_fds send_fds sethostname",
    time: "clock_gettime clock_gettime_ns clock_settime pthread_getcpuclockid tzset",
}
_MODULES = ["crypt", "fcntl", "grp", "nis", "posix", "pty", "pwd", "readline", "resource", "spwd", "syslog", "termios", "tty"]
_LIBRARIES = [
    *("asyncio", "concurrent.futures", "ctypes.wintypes", "fcntl", "subprocess", "tempfile"),
    *("alembic.command", "click.testing", "orjson", "pydantic", "pydantic_settings", "rich.console", "rich.progress"),
    *("sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.sqlite"),
]

_looking = threading.local()


def windows() -> None:
    """From now on."""
    _load()
    sockets, posix, fcntl = socket.AF_UNIX, dict(vars(os)), sys.modules["fcntl"]
    pairs = socket.socketpair
    for module, names in {os: _OS, **_OTHERS}.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    socket.socketpair = lambda family=sockets, *rest: pairs(family, *rest)
    vars(selectors).update(DefaultSelector=selectors.SelectSelector)
    os.supports_dir_fd.clear()
    os.supports_fd.clear()
    vars(shutil).update(_use_fd_functions=False, _USE_CP_SENDFILE=False)  # it looked for what has just gone
    _hide_proc()
    _refuse_like_windows(posix, fcntl)
    for name in _MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # importing it fails
    sys.modules["msvcrt"] = _msvcrt(fcntl)
    vars(ctypes).update(WinDLL=lambda *_, **__: _kernel(), get_last_error=lambda: _looking.error)
    sys.platform = "win32"


def mac() -> None:
    """From now on."""
    _load()
    for name in ("O_PATH", "O_TMPFILE", "memfd_create", "sched_getaffinity"):
        delattr(os, name)
    fcntl: Any = sys.modules["fcntl"]
    control = fcntl.fcntl

    def full_sync(handle: int, command: int, *rest: Any) -> Any:
        return os.fsync(handle) if command == fcntl.F_FULLFSYNC else control(handle, command, *rest)

    fcntl.F_FULLFSYNC, fcntl.fcntl = 51, full_sync
    _hide_proc()
    sys.platform = "darwin"


def _load() -> None:
    for name in _LIBRARIES:
        import_module(name)
    uuid.getnode()
    uuid._node = 0x0250F2000001  # type: ignore[attr-defined]  # as a machine with a network has it
    # Text files are read and written in the encoding of the machine's language where none is named.
    warnings.filterwarnings("error", category=EncodingWarning, module=r"persist\b")


def _hide_proc() -> None:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith("/proc/") and not getattr(_looking, "now", False):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])

    sys.addaudithook(hook)


@contextmanager
def _proc() -> Iterator[Path]:
    """The real system, for those who pretend."""
    _looking.now = True
    try:
        yield Path("/proc")
    finally:
        _looking.now = False


def _refuse_like_windows(posix: dict[str, Any], fcntl: Any) -> None:
    def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        _no_handle(dir_fd)
        if not isinstance(path, int) and os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return int(posix["open"](path, flags, mode))

    def fsync(handle: int) -> None:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & posix["O_ACCMODE"] == posix["O_RDONLY"]:
            raise OSError(errno.EBADF, "Bad file descriptor")
        posix["fsync"](handle)

    def unlink(path: Any, *, dir_fd: int | None = None) -> None:
        _no_handle(dir_fd)
        _closed(path, 32)
        posix["unlink"](path)

    def replace(source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        _no_handle(src_dir_fd, dst_dir_fd)
        _closed(source, 32)
        _closed(target, 5)
        posix["replace"](source, target)

    def rename(source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "Cannot create a file when that file already exists", target)
        replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        _no_handle(dir_fd)
        posix["mkdir"](path, mode)

    def kill(pid: int, number: int) -> None:
        raise AssertionError("it ends the process, or is Ctrl-C")

    fakes: list[Callable[..., Any]] = [fsync, unlink, replace, rename, mkdir, kill]
    for fake in fakes:
        setattr(os, fake.__name__, fake)
    os.open, os.remove = open_, unlink


def _no_handle(*handles: int | None) -> None:
    if handles.count(None) != len(handles):
        raise NotImplementedError("dir_fd unavailable on this platform")


def _closed(path: Any, code: int) -> None:
    """PermissionError if this process has it open, which is all that can be known here; the number is what Windows says."""
    try:
        file = os.stat(path, follow_symlinks=False)
    except OSError:
        return
    with _proc() as proc:
        for handle in os.listdir(proc / "self/fd"):
            try:
                found = os.stat(proc / "self/fd" / handle)
            except OSError:
                continue
            if os.path.samestat(file, found):
                error: Any = PermissionError(errno.EACCES, "It is being used by another process", os.fspath(path))
                error.winerror = code
                raise error


def _msvcrt(fcntl: Any) -> Any:
    """Locks of one byte, where the file stands."""

    def locking(handle: int, mode: int, size: int) -> None:
        place = os.lseek(handle, 0, os.SEEK_CUR)
        try:
            fcntl.lockf(handle, fcntl.LOCK_UN if mode == 0 else fcntl.LOCK_EX | fcntl.LOCK_NB, size, place)
        except OSError as error:
            raise PermissionError(errno.EACCES, "Permission denied") from error

    return SimpleNamespace(locking=locking, LK_UNLCK=0, LK_NBLCK=2)


def _kernel() -> Any:
    """kernel32, as far as it tells of processes: a handle is the number of its process."""

    def OpenProcess(access: int, inherit: bool, pid: int) -> int:  # noqa: N802  # its name
        assert access == 0x1000
        state = _stat(pid)
        _looking.error = 0 if state else 87
        return pid if state else 0

    def GetExitCodeProcess(process: int, code: Any) -> bool:  # noqa: N802  # its name
        state = _stat(process)
        code._obj.value = 259 if state and state[0] != "Z" else 1
        return True

    def GetProcessTimes(process: int, created: Any, *rest: Any) -> bool:  # noqa: N802  # its name
        ticks = int(_stat(process)[19]) + (1 << 40)
        created._obj.dwHighDateTime, created._obj.dwLowDateTime = ticks >> 32, ticks & 0xFFFFFFFF
        return True

    def CloseHandle(process: int) -> bool:  # noqa: N802  # its name
        return True

    functions: list[Callable[..., Any]] = [OpenProcess, GetExitCodeProcess, GetProcessTimes, CloseHandle]
    return SimpleNamespace(**{function.__name__: function for function in functions})


def _stat(pid: int) -> list[str]:
    """From its state on; nothing if there is no such process."""
    with _proc() as proc:
        try:
            return (proc / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return []
