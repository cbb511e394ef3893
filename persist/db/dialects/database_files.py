"""SQLite files in the file system: their identities, network file systems, and deletion together with -wal and -shm."""

import logging
import os
import sqlite3
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from persist.db.concurrency.weak_group import WeakGroup
from persist.db.files.paths import file_uri, typed
from persist.db.files.private_files import create_private
from persist.errors import NotPermitted, StoreInUse

log = logging.getLogger("persist")

_BESIDE = ("-wal", "-shm")
_OURS = ("", "-journal", *_BESIDE)
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse.sshfs", "glusterfs", "ceph", "lustre"})


def make_private_file(path: Path) -> None:
    """Create an empty file that only its owner may read or write; SQLite would use the umask.

    SQLite later gives the -wal and -shm files the mode of this file.
    """
    try:
        create_private(os.path.realpath(path))
    except FileExistsError:
        return  # another process was faster
    except OSError as error:
        raise typed(error, path) from error


def identities(path: Path) -> frozenset[tuple[int, int]]:
    """Device and inode of a database file and of its -journal, -wal and -shm.

    A process that closes one of these files, under any name, drops every lock that it holds on the file.
    """
    found = set()
    for name in {os.fspath(path), os.path.realpath(path)}:
        for suffix in _OURS:
            with suppress(OSError):
                status = os.stat(name + suffix)
                found.add((status.st_dev, status.st_ino))
    return frozenset(found)


class HasPath(Protocol):
    """An object that may have a database file open."""

    path: Path | None


IN_USE: WeakGroup[HasPath] = WeakGroup()
"""The connections of every store of this process that is not closed."""


def identities_in_use() -> frozenset[tuple[int, int]]:
    """The identities of every database file that this process has open."""
    return frozenset().union(*(identities(one.path) for one in IN_USE.members() if one.path is not None))


def remove_file(path: Path) -> None:
    """Delete a database file, its -wal and its -shm, if they exist.

    Raises StoreInUse while a connection has the file open, NotPermitted if it cannot be deleted.
    """
    try:
        if path.exists():
            refuse_if_open(path)
        for name in (path.name, *(path.name + suffix for suffix in _BESIDE)):
            path.with_name(name).unlink(missing_ok=True)
    except OSError as error:
        raise typed(error, path) from error


def refuse_if_open(path: Path) -> None:
    """Raise StoreInUse while a connection has the file open: leaving WAL mode needs every lock. It also empties the -wal."""
    try:
        with closing(sqlite3.connect(file_uri(path, "mode=rw"), uri=True, isolation_level=None, timeout=0)) as raw:
            raw.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.OperationalError as error:
        if (getattr(error, "sqlite_errorname", "") or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StoreInUse(f"{path} is still open; close it first.") from error
        raise NotPermitted(f"{path}: {error}") from error
    except sqlite3.DatabaseError:
        return  # the file is no database any more, so no connection can have it open


def warn_of_network(path: Path) -> None:
    """Log a warning for a file on a network file system: WAL needs shared memory, which those do not have."""
    kind = network_of(path)
    if kind is not None:
        log.warning("%s is on a network file system (%s), where WAL can corrupt it; use a local disk or Postgres", path, kind)


def network_of(path: Path) -> str | None:
    """The kind of network file system that holds the file; None on a local disk or if unknown."""
    folder = os.path.dirname(os.path.realpath(path))
    if folder.startswith("\\\\"):
        return "smb"  # a UNC path: the folder of another machine on Windows
    try:
        return _network_of(folder, os.stat(folder).st_dev)
    except OSError:
        return None


@lru_cache
def _network_of(folder: str, device: int) -> str | None:
    """The network file system mounted at `folder`; `device` is only a cache key, since a new mount has another device."""
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 2 and len(fields[1]) > len(best) and (folder + "/").startswith(fields[1].rstrip("/") + "/"):
            best, kind = fields[1], fields[2]
    return kind if kind in _NETWORK else None
