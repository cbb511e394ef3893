"""Small disks that a scenario may fill: a file system in memory where one can be mounted, else a limit on the size of files."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BLOCK = b"x" * 4096


class Disk:
    """A folder with little room, which `fill` takes away and `free` gives back."""

    exact = True
    """Whether a full one says that it is full. What is over a limit of size is an input or output error to SQLite."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Not a byte more."""
        with open(self.path / "ballast", "ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(_BLOCK)

    def free(self) -> None:
        """As it was."""
        (self.path / "ballast").unlink(missing_ok=True)

    def read_only(self, on: bool) -> None:
        """Nothing can be written, or it can again."""
        _mount("-o", f"remount,{'ro' if on else 'rw'}", str(self.path))


class LimitedDisk(Disk):
    """No file of this process grows beyond a few bytes while it is full."""

    exact = False

    def fill(self) -> None:
        sys.dont_write_bytecode = True  # Python would leave a module's bytecode cut off, for all processes after this one
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    def free(self) -> None:
        maximum = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (maximum, maximum))


@contextmanager
def small_disk(path: Path, size: str = "12m") -> Iterator[Disk]:
    """A new folder with so much room; it is gone at the end."""
    path.mkdir()
    mounted = os.geteuid() == 0 and _mount("-t", "tmpfs", "-o", f"size={size},mode=0700", "persist-torture", str(path))
    found = Disk(path) if mounted else LimitedDisk(path)
    try:
        yield found
    finally:
        found.free()
        if mounted:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
        shutil.rmtree(path, ignore_errors=True)


def _mount(*arguments: str) -> bool:
    return shutil.which("mount") is not None and subprocess.run(["mount", *arguments], capture_output=True).returncode == 0
