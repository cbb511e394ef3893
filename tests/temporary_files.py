"""Where the files of a test session are: in memory, where the system has a folder there.

None of them outlives the session, and half of the time of a test on a disk is the waiting for it.
"""

import os
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 4 * 2**30


def use_memory(environment: MutableMapping[str, str]) -> None:
    """Make MEMORY the temporary folder, of processes that the tests start as well; one that is named already stays."""
    if "TMPDIR" not in environment and _fits(MEMORY):
        environment["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # it may have been asked for already


def _fits(folder: Path) -> bool:
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >= ENOUGH_BYTES and not found.f_flag & getattr(os, "ST_NOEXEC", 0)
