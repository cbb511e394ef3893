"""Small databases that are lent to programs which are not trusted, and read again afterwards as hostile input.

They are read from a copy in memory, and their schema must equal the lent one: no view, trigger or generated column is evaluated.
"""

import logging
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from persist.db.concurrency.observers import WeakGroup
from persist.db.files import create_private, file_uri, files, typed, written_whole
from persist.errors import InvalidValue, NotPermitted, StoreInUse

log = logging.getLogger("persist")

_BESIDE = ("-wal", "-shm")
_OURS = ("", "-journal", *_BESIDE)
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse.sshfs", "glusterfs", "ceph", "lustre"})


def make_private_file(path: Path) -> None:
    """Create an empty file with mode 0600, where SQLite would use the umask. SQLite gives -wal and -shm the same mode."""
    with files(path), suppress(FileExistsError):  # another process was faster
        create_private(os.path.realpath(path))


def make_whole_file(path: Path, content: Callable[[], bytes]) -> None:
    """Make a file that has its content as soon as it has its name, where there is none, nor a journal, and links are possible."""
    target = os.path.realpath(path)
    if any(os.path.lexists(target + suffix) for suffix in _OURS):
        return
    part = Path(f"{target}.{secrets.token_hex(4)}.new")
    with suppress(OSError):
        with written_whole(part, partial(os.link, dst=target)) as file:  # unlike a rename, it never replaces a file
            file.write(content())
        part.unlink()


def identities(path: Path) -> frozenset[tuple[int, int]]:
    """Device and inode of a database file, -journal, -wal and -shm. Closing any drops all locks of the process."""
    found = set()
    for name in {os.fspath(path), os.path.realpath(path)}:
        for suffix in _OURS:
            with suppress(OSError):
                status = os.stat(name + suffix)
                found.add((status.st_dev, status.st_ino))
    return frozenset(found)


IN_USE: WeakGroup[Any] = WeakGroup()
"""The connections of this process's open stores, each with the `path` of its database file."""


def identities_in_use() -> frozenset[tuple[int, int]]:
    """The identities of every database file that this process has open."""
    return frozenset().union(*(identities(one.path) for one in IN_USE.members() if one.path is not None))


def remove_file(path: Path) -> None:
    """Delete a database file, -wal and -shm, if they exist. Raises StoreInUse while it is open here, or NotPermitted."""
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


PAGE = 4096
_MAGIC = b"SQLite format 3\x00"
_ROLLBACK_JOURNAL = b"\x01\x01"
_UTF8 = b"\x00\x00\x00\x01"
_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name LIMIT 100"
_STEPS = 10_000
_CALLS, _CALLS_PER_PAGE = 500, 2
"""How often the database may have done _STEPS steps before it is stopped: so often, and so much more for each page."""
_LIMITS = {
    "SQLITE_LIMIT_SQL_LENGTH": 10_000,
    "SQLITE_LIMIT_COLUMN": 100,
    "SQLITE_LIMIT_EXPR_DEPTH": 50,
    "SQLITE_LIMIT_COMPOUND_SELECT": 3,
    "SQLITE_LIMIT_VDBE_OP": 25_000,
    "SQLITE_LIMIT_FUNCTION_ARG": 10,
    "SQLITE_LIMIT_ATTACHED": 0,
    "SQLITE_LIMIT_TRIGGER_DEPTH": 1,
    "SQLITE_LIMIT_WORKER_THREADS": 0,
}
_SWITCHES = {  # from Python 3.12 on
    "SQLITE_DBCONFIG_DEFENSIVE": True,
    "SQLITE_DBCONFIG_TRUSTED_SCHEMA": False,
    "SQLITE_DBCONFIG_ENABLE_TRIGGER": False,
    "SQLITE_DBCONFIG_ENABLE_VIEW": False,
    "SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION": False,
}


def is_database_file(path: Path) -> bool:
    """Whether a file begins as every SQLite database does; not where it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC
    return False


class Odd(NamedTuple):
    """What stands for a cell that holds no text in UTF-8, no number and no NULL."""

    reason: str


class _Text(bytes):
    """Text as it is stored, told from a blob."""


def create_lent_file(path: Path, ddl: Sequence[str], rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Fill an empty file with these tables and rows. Its journal is the one that leaves no file behind."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute(f"PRAGMA page_size = {PAGE}")
        raw.execute("BEGIN IMMEDIATE")
        for statement in ddl:
            raw.execute(statement)
        for table, values in rows.items():
            for row in values:
                columns = ", ".join(f'"{name}"' for name in row)
                raw.execute(f'INSERT INTO "{table}" ({columns}) VALUES ({", ".join("?" * len(row))})', [*row.values()])
        raw.execute("COMMIT")


def read_lent_file(
    content: bytes, ddl: Sequence[str], columns: Mapping[str, Sequence[str]], *, max_rows: int, max_value_bytes: int
) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each table, in the order of writing. Raises InvalidValue if more than rows changed, or too much."""
    _check_header(content)
    with _refusals(), closing(sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)) as raw:
        _restrict(raw, len(content), max_value_bytes)
        raw.deserialize(content)
        raw.text_factory = _Text
        if raw.execute(_SCHEMA).fetchall() != _schema_of(ddl):
            raise InvalidValue("file", "its schema is not the one that it was lent with: nothing but rows may be changed.")
        if raw.execute("PRAGMA integrity_check(1)").fetchall() != [(b"ok",)]:
            raise InvalidValue("file", "it is damaged.")
        raw.set_authorizer(_reading(frozenset(columns)))
        left, found = len(content), {}
        for table, names in columns.items():
            query = f"SELECT {', '.join(names)} FROM {table} ORDER BY rowid LIMIT {max_rows + 1}"  # constants of the caller
            found[table] = rows = [tuple(map(_cell, row)) for row in raw.execute(query)]
            if len(rows) > max_rows:
                raise InvalidValue("file", f"its table {table} has more than {max_rows} rows.")
            left -= sum(len(cell) for row in rows for cell in row if isinstance(cell, str))
            if left < 0:
                raise InvalidValue("file", "its values share their pages, as those of no real file do.")
        return found


def _check_header(content: bytes) -> None:
    if not content.startswith(_MAGIC) or len(content) < PAGE or len(content) % PAGE:
        raise InvalidValue("file", "it is no database, or not a whole one.")
    if int.from_bytes(content[16:18]) != PAGE or content[20]:
        raise InvalidValue("file", "its pages have another size than it was lent with.")
    if content[18:20] != _ROLLBACK_JOURNAL:
        raise InvalidValue("file", "its journal mode is another than it was lent with.")
    if content[56:60] != _UTF8:
        raise InvalidValue("file", "its text is not encoded as it was lent with.")


def _restrict(raw: sqlite3.Connection, size: int, max_value_bytes: int) -> None:
    """Bound what reading may do, before the connection has seen anything of the file."""
    raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(max_value_bytes, 10_000))
    for name, most in _LIMITS.items():
        raw.setlimit(getattr(sqlite3, name), most)
    for name, on in _SWITCHES.items():
        if hasattr(raw, "setconfig"):
            raw.setconfig(getattr(sqlite3, name), on)
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON", "temp_store = MEMORY"):
        raw.execute(f"PRAGMA {pragma}")
    calls = iter(range(_CALLS + _CALLS_PER_PAGE * (size // PAGE)))
    raw.set_progress_handler(lambda: next(calls, None) is None, _STEPS)


def _schema_of(ddl: Sequence[str]) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as raw:
        for statement in ddl:
            raw.execute(statement)
        raw.text_factory = _Text
        return raw.execute(_SCHEMA).fetchall()


def _reading(tables: frozenset[str]) -> Any:
    def may(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
        read = action == sqlite3.SQLITE_READ and first in tables and source is None
        return sqlite3.SQLITE_OK if read or action == sqlite3.SQLITE_SELECT else sqlite3.SQLITE_DENY

    return may


def _cell(value: Any) -> Any:
    if isinstance(value, _Text):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return Odd("it is no text in UTF-8.")
    return Odd("it is binary.") if isinstance(value, bytes) else value


@contextmanager
def _refusals() -> Iterator[None]:
    """Translate the database's errors, of which the code alone is repeated: their texts quote the file."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning, OverflowError, MemoryError) as error:
        code = getattr(error, "sqlite_errorname", None) or type(error).__name__
        what = {"SQLITE_INTERRUPT": "it takes too long to read.", "SQLITE_TOOBIG": "it has a value that is too large."}
        raise InvalidValue("file", what.get(code, f"it cannot be read ({code}).")) from None
