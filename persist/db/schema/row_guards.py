"""Rules for rows that hold for every writer, as triggers check what is written anew: `table.info[GUARDS] = (BoundOnce(…), …)`."""

import re
from dataclasses import dataclass

# The log of raw writes: `table.info[LOGGED] = LoggedWrites(…)` of a noted table, None of that with the notes.
# The mark costs no statement: on Postgres it is a setting of the transaction, on SQLite what `sqlite_source_id()` says.
# In a host's own transaction (`join`) a row of `_meta` is the mark on SQLite.

LOGGED = "raw_writes"
"""The key of a table's `info` for its declaration, and the name of the table of notes."""
MAX_NOTES = 1000
"""Notes of one run; what follows is not noted, so that nobody fills a disk, or pushes the first notes out."""
MAX_EMPTIED = 100
"""Notes of emptied tables, which are of no run: of the schema, or of the rows of a SQLite file that name no run."""
MAX_CHARACTERS = 10_000
"""Characters that a note keeps of one value."""
WRITER = "writer"
"""The key of `_meta` that is there while a verb runs in a host's own transaction on SQLite. Nobody else ever sees it."""
SUFFIX = " persist"
"""What `sqlite_source_id()` ends with on persist's own connections."""
SETTING = "persist.writes"
"""The setting that is 'on' in persist's transactions on Postgres."""
INSERT, REPLACE, UPDATE, DELETE, TRUNCATE = "insert", "replace", "update", "delete", "truncate"
"""What a raw write did. `replace`: an INSERT OR REPLACE took this row away. A note whose instant is 0 is unfinished."""
KEPT = "raw_writes: notes of raw writes are only deleted by persist, with their run, and only made by its triggers"
"""What the database says to a raw writer that changes the notes, or forges one."""


@dataclass(frozen=True, slots=True)
class LoggedWrites:
    """How raw writes of a table are noted.

    scope   the column that names the run
    keys    the unique keys, by which INSERT OR REPLACE finds a row; the first one names the row in the note
    frame   a column of the keys whose NULL counts as -1
    """

    scope: str
    keys: tuple[tuple[str, ...], ...]
    frame: str | None = None


GUARDS = "row_guards"
"""The key of a table's `info` for its rules."""
STRICT_BY_CONNECTION = "connections"
"""The value of `strict` in `_meta` of a strict file whose triggers look for the mark of persist's connections."""
MARKED, UNMARKED = "persist writes", "yes"
"""The values of `strict` in a file made at revision 0028: inside of persist's own write transactions, and otherwise."""
PREFIX = "persist_row_guard"
"""The prefix of the names of row guards' triggers and functions."""


@dataclass(frozen=True, slots=True)
class BoundOnce:
    """A row whose `column` has one of the words never changes its key or `fixed`."""

    column: str
    words: tuple[str, ...]
    key: tuple[str, ...]
    """The columns of the key; `frame` may be NULL, which counts as a value."""
    frame: str
    fixed: tuple[str, ...]
    message: str = "a const or an input is bound once, and this one is bound to something else already: bind another name"


@dataclass(frozen=True, slots=True)
class PlainName:
    """A column that names a file directly in `folder`: no other folder, no `..`, no absolute path."""

    column: str
    folder: str

    @property
    def message(self) -> str:
        return f"{self.column} names a file directly in {self.folder}: {self.folder}/NAME, and no other folder"


@dataclass(frozen=True, slots=True)
class IsJson:
    """A column that holds JSON text where the database does not check that by the column's type."""

    column: str

    @property
    def message(self) -> str:
        return f"{self.column} is to hold JSON, and this is none"


Guard = BoundOnce | PlainName | IsJson


def guarded_columns(guards: tuple[Guard, ...]) -> list[str]:
    """The columns whose change may break a rule, each once."""
    found: list[str] = []
    for guard in guards:
        found += [*guard.key, *guard.fixed, guard.column] if isinstance(guard, BoundOnce) else [guard.column]
    return list(dict.fromkeys(found))


def said(table: str, guard: Guard) -> str:
    """What the database says when it refuses a row: the column, and the rule."""
    return f"{table}.{guard.column}: {guard.message}"


def no_place(table: str) -> str:
    """What SQLite says of a row at the rowid -1, where a trigger cannot tell whether it takes the place of another."""
    return f"{table}.rowid: a row is not inserted at the rowid -1"


STRICTLY = "this run is strict, and nobody but persist writes to run, execution and imports"
"""What the database says of a table that only persist may write."""


def guarded_column(text: str) -> str | None:
    """The `table.column` in what a trigger said; None if it is no row guard's."""
    found = _SAID.match(text)
    return found[1] if found else None


_SAID = re.compile(r"(\w+\.\w+): ", re.ASCII)
