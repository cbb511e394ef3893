"""The log of raw writes: triggers note what changes rows without the mark of persist's own transactions, such as a shell.

A model declares it: `table.info[LOGGED] = LoggedWrites(…)` for a table whose raw writes are noted, `table.info[LOGGED] = None`
for the table that holds the notes. The mark costs no statement: on Postgres it is a setting of the transaction, on SQLite what
`sqlite_source_id()` says on persist's connections. Both databases answer a program that knows nothing of the mark without an
error. In a host's own transaction (`join`) a row of `_meta` is the mark on SQLite.
"""

from dataclasses import dataclass

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
