"""SQLite files as files: what they lie on, and removing one together with what belongs to it."""

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
    """An empty file for its owner alone, which SQLite's own would not be; what lies beside it later gets its mode."""
    try:
        create_private(os.path.realpath(path))
    except FileExistsError:
        return  # somebody else was faster
    except OSError as error:
        raise typed(error, path) from error


def identities(path: Path) -> frozenset[tuple[int, int]]:
    """Device and inode of a database file and of the files beside it.

    A process that closes one of them by any name drops every lock that it has there.
    """
    found = set()
    for name in {os.fspath(path), os.path.realpath(path)}:
        for suffix in _OURS:
            with suppress(OSError):
                status = os.stat(name + suffix)
                found.add((status.st_dev, status.st_ino))
    return frozenset(found)


class HasPath(Protocol):
    """What has a database file open, or may have."""

    path: Path | None


IN_USE: WeakGroup[HasPath] = WeakGroup()
"""The dialects of this process that were not disposed of."""


def identities_in_use() -> frozenset[tuple[int, int]]:
    """The identities of every database file that this process has open."""
    return frozenset().union(*(identities(one.path) for one in IN_USE.members() if one.path is not None))


def remove_file(path: Path) -> None:
    """Delete it, its -wal and its -shm, if they are there. StoreInUse while anybody has it open, NotPermitted."""
    try:
        if path.exists():
            refuse_if_open(path)
        for name in (path.name, *(path.name + suffix for suffix in _BESIDE)):
            path.with_name(name).unlink(missing_ok=True)
    except OSError as error:
        raise typed(error, path) from error


def refuse_if_open(path: Path) -> None:
    """StoreInUse while anybody has it open: leaving WAL takes every lock there is. What its -wal held is in the file then."""
    try:
        with closing(sqlite3.connect(file_uri(path, "mode=rw"), uri=True, isolation_level=None, timeout=0)) as raw:
            raw.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.OperationalError as error:
        if (getattr(error, "sqlite_errorname", "") or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StoreInUse(f"{path} is still open; close it first.") from error
        raise NotPermitted(f"{path}: {error}") from error
    except sqlite3.DatabaseError:
        return  # no database any more: nobody can have it open


def warn_of_network(path: Path) -> None:
    """WAL needs shared memory, which network file systems do not have."""
    kind = network_of(path)
    if kind is not None:
        log.warning("%s is on a network file system (%s), where WAL can corrupt it; use a local disk or Postgres", path, kind)


def network_of(path: Path) -> str | None:
    """The kind of network file system the file is on; None on a local disk, and where nobody can tell."""
    folder = os.path.dirname(os.path.realpath(path))
    if folder.startswith("\\\\"):
        return "smb"  # what Windows writes of another machine's folder
    try:
        return _network_of(folder, os.stat(folder).st_dev)
    except OSError:
        return None


@lru_cache
def _network_of(folder: str, device: int) -> str | None:
    """What is mounted there; another device is another mount."""
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 2 and len(fields[1]) > len(best) and (folder + "/").startswith(fields[1].rstrip("/") + "/"):
            best, kind = fields[1], fields[2]
    return kind if kind in _NETWORK else None
