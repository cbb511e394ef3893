"""The files of subagents that are not trusted: below the run's folder, each in a separate folder beside its attachments.

.prose/runs/20260116-143052-a7b3c9/subagents/43__sub_…/state.db, attachments/
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from persist.db.dialects.untrusted_files import Odd, create_lent_file, identities_in_use, make_private_file, read_lent_file
from persist.db.files import files
from persist.db.values.escaping import utf8_size
from persist.errors import InvalidValue, NotFound, PersistError
from persist.programs import names
from persist.programs.schemas import Agent, Binding, BindingKind, Subagent
from persist.programs.storage import attachments

# What a row of a subagent's file may be. Pure: the file is hostile input, and a reason never repeats what it says.

_PLAIN = re.compile(r"\w[\w.-]*")
_LONGEST_NAME = 600
_SHOWN = 80


class LentBinding(NamedTuple):
    """A row of bindings that may be bound."""

    name: str
    kind: BindingKind
    value: str | None
    source_statement: str | None
    attachment_path: str | None


def digest(*cells: Any) -> str:
    """What tells whether cells of a row were changed: 64 hexadecimal digits."""
    return sha256(
        repr(tuple(None if cell is None else str(cell) for cell in cells)).encode("utf-8", "backslashreplace")
    ).hexdigest()


def shown_name(cell: Any) -> str | None:
    """What a report says of a name: short and printable, or nothing."""
    return cell if type(cell) is str and len(cell) <= _SHOWN and cell.isprintable() else None


def plain_name(cell: Any) -> bool:
    """Whether a cell names a value: letters, digits, `_`, and after the first also `.` and `-`; at most 600 bytes."""
    return type(cell) is str and _PLAIN.fullmatch(cell) is not None and utf8_size(cell) <= _LONGEST_NAME


def checked_binding(row: Sequence[Any], frame: int | None) -> LentBinding | str:
    """The binding in a row of the file, or the reason why it is none of the frame."""
    scope, name, execution_id, kind, value, source, path = row
    if scope != "":
        return "it is not a row of this run."
    if not plain_name(name):
        return "its name is not plain: letters, digits, _, . and -."
    if type(execution_id) is not type(frame) or execution_id != frame:
        return "it is in a frame that is not the subagent's."
    if type(kind) is not str or kind not in BindingKind._value2member_map_:
        return f"its kind is none of {', '.join(BindingKind)}."
    for column, cell in (("value", value), ("source_statement", source), ("attachment_path", path)):
        reason = no_text(cell)
        if reason is not None:
            return f"{column}: {reason}"
    return LentBinding(name, BindingKind(kind), value, source, path)


def no_text(cell: Any) -> str | None:
    """Why a cell is neither text nor NULL."""
    if cell is None or type(cell) is str:
        return None
    return cell.reason if isinstance(cell, Odd) else "it is a number, and not text."


FOLDER, FILE = "subagents", "state.db"
MAX_ROWS = 200
"""How many rows of a table are read from a file; a file with more is refused."""
_BESIDE = ("-journal", "-wal", "-shm")
_TIMES = "created_at TEXT DEFAULT (datetime('now')), updated_at TEXT DEFAULT (datetime('now'))"
_DDL = (
    f"CREATE TABLE bindings (run_id TEXT DEFAULT '' NOT NULL, name TEXT, execution_id INTEGER, kind TEXT, value TEXT,"
    f" source_statement TEXT, {_TIMES}, attachment_path TEXT)",
    "CREATE UNIQUE INDEX uq_bindings_frame_name ON bindings (run_id, name, coalesce(execution_id, -1))",
    f"CREATE TABLE agents (run_id TEXT DEFAULT '' NOT NULL, name TEXT NOT NULL, scope TEXT, memory TEXT, {_TIMES},"
    " PRIMARY KEY (run_id, name))",
    "CREATE TABLE agent_segments (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT DEFAULT '' NOT NULL, agent_name TEXT,"
    " segment_number INTEGER, timestamp TEXT DEFAULT (datetime('now')), prompt TEXT, summary TEXT,"
    " UNIQUE (run_id, agent_name, segment_number))",
)
COLUMNS = {
    "bindings": ("run_id", "name", "execution_id", "kind", "value", "source_statement", "attachment_path"),
    "agents": ("run_id", "name", "memory"),
    "agent_segments": ("run_id", "agent_name", "prompt", "summary"),
}
"""The tables and columns that are read again. Instants and numbers of segments are the store's own."""


def folder_name(subagent: Subagent) -> str:
    """The name of a subagent's folder: `43__ID`, or `root__ID`."""
    frame = "root" if subagent.execution_id is None else str(subagent.execution_id)
    return f"{frame}__{subagent.id}"


def make_lent_file(home: Path, subagent: Subagent, bindings: Sequence[Binding], agent: Agent | None) -> Path:
    """Make the folder and the file of a new subagent below `home`; return the file's path. Raises NotFound without `home`."""
    if not home.is_dir():
        raise NotFound("folder", str(home))
    path = home / FOLDER / folder_name(subagent) / FILE
    with files(path), attachments.opened(home, [FOLDER, folder_name(subagent)], make=True):
        pass
    make_private_file(path)
    values = [
        {name: getattr(one, name) for name in ("name", "execution_id", "kind", "value", "source_statement")} for one in bindings
    ]
    memories = [] if agent is None else [{"name": agent.name, "scope": agent.scope, "memory": agent.memory}]
    create_lent_file(path, _DDL, {"bindings": values, "agents": memories})
    return path


class LentFolder:
    """The folder of a subagent, which may have changed its content at will. No method follows a link or opens what is no file."""

    def __init__(self, home: Path, subagent: Subagent, limit: int) -> None:
        self._home, self._limit, self._left = home, limit, limit
        self._name = folder_name(subagent)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of each table in COLUMNS, as `read_lent_file` returns them. Raises InvalidValue for any other file."""
        with self._opened() as folder:
            self._check_at_rest(folder)
            content = self._content(folder, FILE)
            self._check_at_rest(folder)
        return read_lent_file(content, _DDL, COLUMNS, max_rows=MAX_ROWS, max_value_bytes=self._limit)

    def attachment(self, path: str) -> bytes:
        """The content of an attachment. Raises InvalidValue unless it is a regular file there, and within the limit of all."""
        parts: Sequence[str] = ()
        with suppress(InvalidValue):  # which repeats the path
            parts = names.attachment_parts(path)
        if len(parts) != 2 or "\\" in path or path != f"{parts[0]}/{parts[1]}":
            raise InvalidValue("attachment_path", f"it names no file directly in {names.ATTACHMENTS}.")
        with self._opened(names.ATTACHMENTS) as folder:
            content = self._content(folder, parts[1], self._left)
        self._left -= len(content)
        return content

    def _content(self, folder: attachments.Folder, name: str, left: int | None = None) -> bytes:
        with folder.open(name, identities_in_use) as file:
            before = os.fstat(file.fileno())
            if left is not None and left < before.st_size <= self._limit:
                raise InvalidValue(
                    "attachment_path", f"the attachments that rows name are together larger than {self._limit} bytes."
                )
            content = file.read(self._limit + 1) if before.st_size <= self._limit else b""
            after = os.fstat(file.fileno())
        if max(before.st_size, len(content)) > self._limit:
            raise InvalidValue("file", f"it is larger than {self._limit} bytes.")
        if (before.st_size, before.st_mtime_ns, before.st_ctime_ns) != (len(content), after.st_mtime_ns, after.st_ctime_ns):
            raise InvalidValue("file", "it was changed while it was read.")
        return content

    def _check_at_rest(self, folder: attachments.Folder) -> None:
        beside = {FILE + suffix for suffix in _BESIDE} & set(folder.names())
        if beside:
            raise InvalidValue("file", "it has a journal: a writer is at work, or died; a command that reads it repairs it.")

    @contextmanager
    def _opened(self, *below: str) -> Iterator[attachments.Folder]:
        try:
            with attachments.opened(self._home, [FOLDER, self._name, *below]) as folder:
                yield folder
        except attachments.NotOpened as error:
            raise InvalidValue(error.path, f"the file {error.why}.") from None
        except PersistError as error:
            if isinstance(error, InvalidValue):
                raise
            raise InvalidValue("file", "it cannot be read.") from None
        except FileNotFoundError:
            raise InvalidValue("file", "it is not there.") from None
        except OSError as error:
            raise InvalidValue("file", f"it cannot be read ({type(error).__name__}).") from None
