"""Process facts from the Windows API. `os.kill(pid, 0)`, elsewhere a mere query, sends Ctrl-C on Windows."""

import ctypes
import sys
import uuid
from ctypes import wintypes

_QUERY_LIMITED = 0x1000
_INVALID_PARAMETER = 87
_STILL_ACTIVE = 259
ENDED = ""


def machine() -> str | None:
    """An id of this machine, from its network card's hardware address; None without a card."""
    node = uuid.getnode()
    return None if node >> 40 & 1 else f"{node:012x}"  # this bit marks a random number in place of an address


def started(pid: int) -> str | None:
    """The start time of the process with that pid, in units of 100 ns; ENDED if there is none; None if access is denied."""
    if sys.platform != "win32":
        return None
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel.OpenProcess.argtypes = (wintypes.DWORD, wintypes.BOOL, wintypes.DWORD)
    kernel.OpenProcess.restype = wintypes.HANDLE
    kernel.GetExitCodeProcess.argtypes = (wintypes.HANDLE, ctypes.c_void_p)
    kernel.GetProcessTimes.argtypes = (wintypes.HANDLE, *[ctypes.c_void_p] * 4)
    kernel.CloseHandle.argtypes = (wintypes.HANDLE,)
    process = kernel.OpenProcess(_QUERY_LIMITED, False, pid)
    if not process:
        return ENDED if ctypes.get_last_error() == _INVALID_PARAMETER else None
    try:
        code = wintypes.DWORD()
        times = [wintypes.FILETIME() for _ in range(4)]  # creation, exit, kernel, user
        if not kernel.GetExitCodeProcess(process, ctypes.byref(code)):
            return None
        if code.value != _STILL_ACTIVE:
            return ENDED  # it ended, but a handle to it is still open
        if not kernel.GetProcessTimes(process, *map(ctypes.byref, times)):
            return None
    finally:
        kernel.CloseHandle(process)
    return str(times[0].dwHighDateTime << 32 | times[0].dwLowDateTime)
