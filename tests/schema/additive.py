"""Runs a revision without a database and says what it does that is not additive, or that would block writers of a large table.

Allowed: create a table, add a column that old code need not know, create an index, replace an index by another one, insert rows,
create a trigger that refuses a row or changes a table of the same revision, and other SQL that takes nothing away; on
Postgres also a CHECK or foreign key of columns that the revision adds, which is validated later. Everything else would break the
previous release, which may still run on the result, or rebuild a table.
An index is made by `op.create_index` alone, which the runner does while others write; SQL that makes one would block them.
"""

import io
import re
from collections.abc import Callable
from typing import Any
from unittest import mock

from alembic.operations import AbstractOperations, BatchOperations, Operations
from alembic.operations.ops import (
    AddColumnOp,
    BulkInsertOp,
    CreateCheckConstraintOp,
    CreateForeignKeyOp,
    CreateIndexOp,
    CreateTableOp,
    DropIndexOp,
    ExecuteSQLOp,
)
from alembic.runtime.migration import MigrationContext
from sqlalchemy.sql.elements import conv

DIALECTS = ("sqlite", "postgresql")

_ALLOWED = (CreateTableOp, AddColumnOp, CreateIndexOp, DropIndexOp, ExecuteSQLOp, BulkInsertOp)
_CONSTRAINTS = (CreateCheckConstraintOp, CreateForeignKeyOp)
_LITERALS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_TAKES_AWAY = re.compile(
    r"""\b(?: DROP | (?<!BEFORE\s)(?<!OR\s)TRUNCATE | RENAME | REPLACE\s+INTO | PRAGMA | VACUUM | ATTACH
        | (?<!ON\s)(?<!OR\s)DELETE
        | ALTER\s+COLUMN | ALTER\s+TABLE\s+\S+\s+ALTER | SET\s+NOT\s+NULL | SET\s+DATA\s+TYPE
        | ADD\s+(?:CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN|EXCLUDE) )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_RAW_INDEX = re.compile(
    r"\bCREATE\s+(?:UNIQUE\s+)?INDEX\s+(?:CONCURRENTLY\s+)?(?:IF\s+NOT\s+EXISTS\s+)?(\S+)\s+ON\s+(\S+)", re.IGNORECASE
)
_RAW_UPDATE = re.compile(r"\bUPDATE\s+(\w+)", re.IGNORECASE)
_CALLED = re.compile(r"\w\s*\(")
_RAW_UNIQUE = re.compile(r"\bCREATE\s+UNIQUE\s+INDEX\s+(?:IF\s+NOT\s+EXISTS\s+)?(\S+)\s+ON\s+(\S+?)\s*\(", re.IGNORECASE)
_RAW_COLUMN = re.compile(r"\bADD\s+(?:COLUMN\s+)?(.*?NOT\s+NULL.*)", re.IGNORECASE)

_TRIGGER = re.compile(r"\bCREATE\s+TRIGGER\b((?:(?!\bBEGIN\b)[^;])*)\bBEGIN\b(.*?;)\s*END\s*;", re.IGNORECASE | re.DOTALL)
"""A trigger of SQLite with its body."""
_FUNCTION = re.compile(r"\bCREATE\s+FUNCTION\b([^$]*)\$\$(.*?)\$\$", re.IGNORECASE | re.DOTALL)
_TRIGGER_TAKES_AWAY = re.compile(
    r"\b(?: UPDATE | DELETE | DROP | TRUNCATE | ALTER | RAISE\s*\(\s*IGNORE | RETURN\s+NULL | EXECUTE )\b | \bNEW\.\w+\s*:=",
    re.IGNORECASE | re.VERBOSE,
)
_CHANGED_ROWS = re.compile(r"\b(?:UPDATE|DELETE\s+FROM)\s+(\S+)", re.IGNORECASE)
_DYNAMIC = re.compile(r"\bEXECUTE\s+'([^']*)' \|\| home \|\| '\.([^']*)'", re.IGNORECASE)
"""A statement of a function on a table of the function's own schema, which is judged like any other."""
_WRITES = re.compile(r"\bINSERT\s+(OR\s+\w+\s+)?INTO\s+(\S+)", re.IGNORECASE)
_MADE_ANEW = re.compile(r"\bDROP TRIGGER IF EXISTS (persist_row_guard_\w+);\s*(?=CREATE TRIGGER \1 )")
"""A trigger of persist that a revision drops and makes anew at once, which touches no row."""
_NOTES = {"raw_writes"}
"""The table of notes, into which only persist and its triggers write."""


def offences(upgrade: Callable[[], object]) -> list[str]:
    """What a revision's upgrade() does that it must not, on either dialect; empty for a good one."""
    found = [f"{dialect}: {offence}" for dialect in DIALECTS for offence in _offences(upgrade, dialect)]
    return list(dict.fromkeys(found))


def _offences(upgrade: Callable[[], object], dialect: str) -> list[str]:
    output = io.StringIO()
    recorder = _Recorder()
    context = MigrationContext.configure(
        dialect_name=dialect, opts={"as_sql": True, "output_buffer": output, "literal_binds": True}
    )
    with Operations.context(context), recorder.watching():
        try:
            upgrade()
        except Exception as error:
            # Whoever asks for a connection wants to look at data or at a catalog: a revision must not depend on either.
            recorder.found.append(f"does not run without a database: {type(error).__name__}: {error}")
    return recorder.found + recorder.lost_indexes() + _in_sql(output.getvalue(), recorder)


class _Recorder:
    def __init__(self) -> None:
        self.found: list[str] = []
        self.created: set[str] = set()
        self.left_null: set[tuple[str, str]] = set()
        """(table, column) of columns that rows of old code leave NULL."""
        self.harmless: set[str] = set()
        """Unique indexes over such a column: NULL is like no other value."""
        self.indexes: dict[str, str] = {}
        """The table of each index that is made."""
        self.dropped: list[tuple[str, str]] = []
        """(table, index)"""

    def watching(self) -> Any:
        """Until the end of the block, every operation passes through here on its way."""
        invoke, see = AbstractOperations.invoke, self._see

        def seen(operations: AbstractOperations, operation: Any) -> Any:
            see(operations, operation)
            return invoke(operations, operation)

        return mock.patch.object(AbstractOperations, "invoke", seen)

    def _see(self, operations: AbstractOperations, operation: Any) -> None:
        name = type(operation).__name__
        if isinstance(operations, BatchOperations):
            self.found.append(f"{name} in batch mode, which rebuilds the table and loses what it does not know")
        if isinstance(operation, _CONSTRAINTS) and operations.migration_context.dialect.name == "postgresql":
            self._see_constraint(operation)
        elif not isinstance(operation, _ALLOWED):
            self.found.append(f"{name} is not additive")
        if getattr(operation, "schema", None):
            self.found.append(f"{name} names a schema; env.py sets it")
        if isinstance(operation, CreateIndexOp):
            self.indexes[str(operation.index_name)] = operation.table_name
        if isinstance(operation, CreateTableOp):
            self.created.add(operation.table_name)
        elif isinstance(operation, DropIndexOp):
            self.dropped.append((str(operation.table_name), str(operation.index_name)))
        elif isinstance(operation, AddColumnOp):
            self._see_column(operation)
        elif isinstance(operation, CreateIndexOp) and operation.unique and operation.table_name not in self.created:
            if any((operation.table_name, str(column)) in self.left_null for column in operation.columns):
                self.harmless.add(str(operation.index_name))
                return
            self.found.append(f"unique index {operation.index_name} on {operation.table_name}: rows of old code may break it")

    def _see_column(self, operation: AddColumnOp) -> None:
        column, where = operation.column, f"column {operation.table_name}.{operation.column.name}"
        if not column.nullable and column.server_default is None:
            self.found.append(f"{where} is NOT NULL without a server default")
        if column.nullable and column.server_default is None:
            self.left_null.add((operation.table_name, column.name))
        if column.unique or column.primary_key:
            self.found.append(f"{where} is unique: rows of old code may break it")
        default = getattr(column.server_default, "arg", None)
        if default is not None and (column.identity or column.computed or _CALLED.search(_LITERALS.sub("", str(default)))):
            self.found.append(f"{where} has a default that is computed for each row, which rewrites the table")

    def _see_constraint(self, operation: Any) -> None:
        table = operation.source_table if isinstance(operation, CreateForeignKeyOp) else operation.table_name
        where = f"constraint {operation.constraint_name} on {table}"
        if not operation.kw.get("postgresql_not_valid"):
            self.found.append(f"{where} reads all rows while writers wait: give it postgresql_not_valid=True")
        if not isinstance(operation.constraint_name, conv):
            self.found.append(f"{where}: name it by op.f(), by which the runner finds it to validate it")
        if isinstance(operation, CreateForeignKeyOp):
            free = all((table, column) in self.left_null for column in operation.local_cols)
        else:
            first, _, rest = str(operation.condition).partition(" ")
            free = (table, first) in self.left_null and rest.upper().startswith("IS NULL OR ")
        if not free and table not in self.created:
            self.found.append(f"{where} is not only about columns that old code leaves NULL: rows of old code may break it")

    def lost_indexes(self) -> list[str]:
        """The indexes that are dropped without another one on the same table, which the same revision makes in their place."""
        tables = set(self.indexes.values())
        return [
            f"index {name} is dropped and {table} gets none in its place" for table, name in self.dropped if table not in tables
        ]


def _in_sql(text: str, recorder: _Recorder) -> list[str]:
    """What the rendered statements say, those of op.execute() included; words inside of literals do not count."""
    found = []
    text = _LITERALS.sub("''", _DYNAMIC.sub(r"\1\2", text))
    text = _MADE_ANEW.sub("", text)
    for pattern in (_FUNCTION, _TRIGGER):
        found += [offence for head, body in pattern.findall(text) for offence in _in_trigger(head, body, recorder)]
        text = pattern.sub("", text)
    for bare in text.split(";"):
        if re.search(r"\bCREATE\s+(?:OR\s+REPLACE\b|.*\bINSTEAD\s+OF\b)", bare, re.IGNORECASE | re.DOTALL):
            found.append("SQL replaces a function, a trigger or a statement")
        if (hit := _TAKES_AWAY.search(bare)) and not _is_paired(bare, recorder) and not bare.rstrip().endswith("NOT VALID"):
            found.append(f"SQL says {' '.join(hit[0].split())}")
        if (hit := _RAW_UNIQUE.search(bare)) and hit[2].strip('"') not in recorder.created and hit[1] not in recorder.harmless:
            found.append(f"SQL makes a unique index on {hit[2]}")
        if (hit := _RAW_INDEX.search(bare)) and hit[1].strip('"') not in recorder.indexes:
            found.append(f"SQL makes an index on {hit[2]}, and writers wait: use op.create_index")
        if (hit := _RAW_UPDATE.match(bare.strip())) and hit[1] not in {*recorder.created, "_meta", "persist_alembic_version"}:
            found.append(f"SQL updates rows of {hit[1]}, which others wait for")
        if (hit := _RAW_COLUMN.search(bare)) and "DEFAULT" not in hit[1].upper():
            found.append("SQL adds a column that is NOT NULL without a default")
    return found


def _is_paired(statement: str, recorder: _Recorder) -> bool:
    """Whether the statement is one that `op.drop_index` rendered, of which `lost_indexes` judges."""
    words = statement.split()
    return words[:2] == ["DROP", "INDEX"] and words[2] in {name for _, name in recorder.dropped}


def _in_trigger(head: str, body: str, recorder: _Recorder) -> list[str]:
    """What a trigger, or the function of one, does besides refusing a row or changing a table of its revision."""
    found = []
    if re.search(r"\bINSTEAD\s+OF\b", head, re.IGNORECASE):
        found.append("a trigger replaces a statement")
    own = _CHANGED_ROWS.sub(lambda hit: "" if hit[1].strip('"') in {*recorder.created, *_NOTES} else hit[0], body)
    if hit := _TRIGGER_TAKES_AWAY.search(own):
        found.append(f"a trigger says {' '.join(hit[0].split())}")
    written = {table.strip('"') for _, table in _WRITES.findall(body)}
    found += [f"a trigger writes into {table}" for table in sorted(written - recorder.created - _NOTES)]
    return found
