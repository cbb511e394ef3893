"""The triggers that note raw writes on SQLite, and the mark of persist's connections, which they look for.

SQLite reads the text of every trigger when a connection is opened. So the triggers of the table of notes do what is the same for
all notes: they set a new note's instant, which is 1 until then, and delete notes beyond the limit. While a trigger notes, the
table of notes has a row 0, without which nobody but persist changes it.
"""

import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from sqlite3 import connect
from types import TracebackType
from typing import Any, Self

from sqlalchemy import ColumnElement, DefaultClause, Table, TextClause, and_, literal, literal_column, type_coerce
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import NullType

from persist.db.dialects.raw_rows import Cell, Cells, Columns, Place, RawRows
from persist.db.dialects.sqlite.foreign_files import leave_unchecked
from persist.db.schema import row_guards as rules
from persist.db.unreadable.cells import NotText
from persist.db.unreadable.conditions import BadText, text_or_bad
from persist.db.values.escaping import quoted


class SqliteRereader:
    """See `persist.db.unreadable.cells.Rereader`. The driver fails a whole result for one text that is not UTF-8."""

    typed = False

    def refused(self, error: BaseException) -> bool:
        """Whether the driver failed to decode text; such an error has no result code, so its message is checked."""
        return str(error).startswith("Could not decode to UTF-8")

    @contextmanager
    def lenient(self, driver: Any) -> Iterator[None]:
        connection = getattr(driver, "connection", driver)
        before = connection.text_factory
        connection.text_factory = _text
        try:
            yield
        finally:
            connection.text_factory = before


def _text(stored: bytes) -> object:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return NotText(stored)


REREADER = SqliteRereader()


class SqliteRawRows(RawRows):
    """Raw rows on SQLite; inside the `with` block text is decoded by `text_or_bad`."""

    word = "sqlite"

    def __init__(self, driver: sqlite3.Connection) -> None:
        super().__init__(driver)
        self._with_rowid: dict[str, bool] = {}

    def __enter__(self) -> Self:
        self._text_before = self._driver.text_factory
        self._driver.text_factory = text_or_bad
        self._driver.execute("PRAGMA ignore_check_constraints=ON")  # a row that is inserted again may violate a CHECK
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._driver.text_factory = self._text_before
        self._driver.execute("PRAGMA ignore_check_constraints=OFF")

    def scan(self, table: Table, key: Sequence[str], columns: Columns) -> Iterator[tuple[Any, ...]]:
        names = ", ".join(quoted(name) for name in [*key, *(column.name for column in columns)])
        yield from self._driver.execute(f"SELECT {names} FROM {self._named(table)}")

    def values(self, table: Table, place: Place, columns: Columns) -> tuple[Any, ...] | None:
        where, values = self._at(table, place)
        names = ", ".join(quoted(column.name) for column in columns)
        query = f"SELECT {names} FROM {self._named(table)} WHERE {where}"
        return self._driver.execute(query, values).fetchone()  # type: ignore[no-any-return]  # the driver's rows are tuples

    def cell(self, value: Any) -> Cell:
        if value is None:
            return None
        if isinstance(value, BadText):
            return {"text_base64": b64encode(value).decode()}
        if isinstance(value, bytes):
            return {"blob": b64encode(value).decode()}
        if isinstance(value, float):
            return {"real": repr(value)}
        return {"integer" if isinstance(value, int) else "text": value}

    def names(self, table: Table) -> list[str]:
        return [row[1] for row in self._driver.execute(f"PRAGMA table_info({quoted(table.name)})")]

    def find(self, table: Table, where: Cells) -> list[Place]:
        terms = [self._term(cell) for cell in where.values()]
        condition = " AND ".join(f"{quoted(name)} IS {term}" for name, (term, _) in zip(where, terms, strict=True))
        place = ", ".join(map(quoted, self._place(table)))
        sql = f"SELECT {place} FROM {self._named(table)} WHERE {condition}"
        return self._driver.execute(sql, [value for _, values in terms for value in values]).fetchall()  # type: ignore[no-any-return]  # rows are tuples

    def at(self, table: Table, place: Place) -> ColumnElement[bool]:
        names = self._place(table)
        columns = [literal_column(name) if name == "rowid" else type_coerce(table.c[name], NullType()) for name in names]
        return and_(*[column == literal(value) for column, value in zip(columns, place, strict=True)])

    def leave_unchecked(self) -> Callable[[], None]:
        return leave_unchecked(self._driver)

    def _named(self, table: Table) -> str:
        return quoted(table.name)

    def _at(self, table: Table, place: Place) -> tuple[str, list[Any]]:
        terms = [self._value(value) for value in place]
        where = " AND ".join(f"{quoted(name)} IS {term}" for name, (term, _) in zip(self._place(table), terms, strict=True))
        return where, [value for _, values in terms for value in values]

    def _place(self, table: Table) -> list[str]:
        """The columns that identify a row: rowid, or the primary key in the file for a WITHOUT ROWID table."""
        if table.name not in self._with_rowid:
            try:
                self._driver.execute(f"SELECT rowid FROM {self._named(table)} LIMIT 0")
                self._with_rowid[table.name] = True
            except sqlite3.OperationalError:
                self._with_rowid[table.name] = False
        if self._with_rowid[table.name]:
            return ["rowid"]
        rows = self._driver.execute(f"PRAGMA table_info({quoted(table.name)})").fetchall()
        return [row[1] for row in sorted(rows, key=lambda row: int(row[5])) if row[5]]

    def _term(self, cell: Cell) -> tuple[str, list[Any]]:
        if cell is None:
            return "NULL", []
        (form,) = cell
        if form == "text_base64":
            return "CAST(? AS TEXT)", [b64decode(cell[form])]
        if form == "blob":
            return "?", [b64decode(cell[form])]
        return "?", [float(cell[form]) if form == "real" else cell[form]]

    def _value(self, value: Any) -> tuple[str, list[Any]]:
        return ("CAST(? AS TEXT)" if isinstance(value, BadText) else "?"), [value]


NOT_A_CONNECTION = f"substr(sqlite_source_id(), -{len(rules.SUFFIX)}) <> '{rules.SUFFIX}'"
"""The condition that the connection is not persist's, by a function of every SQLite build, so that a shell can run it."""
_IN_VERB = f"EXISTS (SELECT 1 FROM _meta WHERE key = '{rules.WRITER}')"
UNMARKED = f"{NOT_A_CONNECTION} AND NOT {_IN_VERB}"
"""The condition that the writer is not persist."""
MARK_JOINED = f"INSERT OR REPLACE INTO _meta (key, value) VALUES ('{rules.WRITER}', 'persist')"
UNMARK_JOINED = f"DELETE FROM _meta WHERE key = '{rules.WRITER}'"
_FUNCTION = "sqlite_source_id"
_MARKED: set[int] = set()
"""The ids of host connections that a transaction of persist uses now."""
_KNOWN = "persist_mark"
_NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
_NOTING = f"INSERT OR IGNORE INTO {rules.LOGGED} (id, at, table_name, operation) VALUES (0, 0, '', '')"
"""The first statement of a trigger that notes: while that row is there, notes are changed."""
_FORGET = f"DELETE FROM {rules.LOGGED} WHERE at = 0"
_COLUMNS = f"{rules.LOGGED} (run_id, at, table_name, operation, row_key_json, before_json)"
_KEY = "json_group_object(c, v) FILTER (WHERE k)"
_BEFORE = "json_group_object(c, v) FILTER (WHERE d)"
_NOT_NOTING = f"NOT EXISTS (SELECT 1 FROM {rules.LOGGED} WHERE id = 0)"
_FINISHED = "at NOT IN (0, 1, 2)"
"""The condition that a note is finished: it has its instant. A raw writer cannot change a finished note."""


_TOLD = (
    "CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*'"
    f" THEN quote(substr(CAST(x AS BLOB), 1, {rules.MAX_CHARACTERS // 2})) WHEN typeof(x) = 'real' THEN quote(x)"
    f" WHEN length(x) > {rules.MAX_CHARACTERS} THEN substr(x, 1, {rules.MAX_CHARACTERS})"
    " || ' ... (' || length(x) || ' characters)'"
    " ELSE x END"
)
"""A value as JSON can hold it, cut: bytes, and text that is none, as a literal of SQL."""


def mark_connection(driver: sqlite3.Connection) -> None:
    """Mark a connection of persist's own for as long as it is open."""
    driver.execute("PRAGMA trusted_schema=ON")  # or triggers would call no function of a connection, where a build says so
    marked = _source_id() + rules.SUFFIX
    driver.create_function(_FUNCTION, 0, lambda: marked, deterministic=True)


@cache
def _source_id() -> str:
    """What SQLite's own function says, on every connection of this process that has no mark."""
    with closing(connect(":memory:")) as unmarked:
        (found,) = unmarked.execute(f"SELECT {_FUNCTION}()").fetchone()
    return str(found)


def mark_lent(driver: Any, info: dict[Any, Any]) -> None:
    """Mark a host's connection until `unmark_lent`, unless its triggers may call no function: then persist is noted, too."""
    key = id(driver)
    if _KNOWN not in info and driver.execute("PRAGMA trusted_schema").fetchone() != (0,):
        unmarked = _source_id()
        driver.create_function(_FUNCTION, 0, lambda: unmarked + (rules.SUFFIX if key in _MARKED else ""))
        info[_KNOWN] = True
    _MARKED.add(key)


def unmark_lent(driver: Any) -> None:
    """Take the mark back: the host writes next."""
    _MARKED.discard(id(driver))


def raw_write_ddl(table: Table) -> list[str]:
    """The statements that create the triggers of a table; none unless its model declares them."""
    if rules.LOGGED not in table.info:
        return []
    rule: rules.LoggedWrites | None = table.info[rules.LOGGED]
    if rule is None:
        return _finishing()
    name, columns = table.name, [column.name for column in table.columns]

    def trigger(suffix: str, event: str, *statements: str, also: str = "") -> str:
        return _trigger(name, suffix, f"{event} ON {name} WHEN {NOT_A_CONNECTION}{also}", _NOTING, *statements)

    def scope(row: str) -> str:
        of = f"{row}.{rule.scope}"
        if rule.scope == "id":  # the row of the run itself; the others of its own file have the scope ''
            return f"CASE WHEN {of} IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE {of} END"
        return of

    def told(row: str, other: str | None = None) -> str:
        """Rows of a column each: its name `c`, what it said `v`, whether it is of the key `k` and to be told `d`."""
        against = "NULL" if other is None else f"{other}.{{}}"
        rows = ", ".join(f"('{one}', {row}.{one}, {int(one in rule.keys[0])}, {against.format(one)})" for one in columns)
        return (
            f"FROM (SELECT c, {_TOLD} AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL"
            f" VALUES {rows}) WHERE k OR x IS NOT y)"
        )

    def note(row: str, operation: str, before: str, rows: str) -> str:
        return f"INSERT INTO {_COLUMNS} SELECT {scope(row)}, 1, '{name}', '{operation}', {_KEY}, {before} {rows}"

    def inserted(condition: str) -> str:
        rows = ", ".join(f"('{one}', NEW.{one})" for one in rule.keys[0])
        found = (
            f"SELECT c, {_TOLD} AS v, 1 AS k FROM (SELECT 0 AS c, 0 AS x UNION ALL VALUES {rows}) WHERE c <> 0 AND {condition}"
        )
        return note("NEW", rules.INSERT, "NULL", f"FROM ({found}) GROUP BY k")

    same = " OR ".join(f"({_same(table, rule, key)})" for key in rule.keys)
    home = new_value(table, rule.scope)
    there = (
        f"CAST(writer_json AS INTEGER) <> NEW.rowid AND EXISTS (SELECT 1 FROM {name} AS is_now WHERE is_now.rowid = writer_json)"
    )
    moved = f"NEW.{rule.scope} IS NOT OLD.{rule.scope}"
    old, new = (", ".join(f"{row}.{one}" for one in columns) for row in ("OLD", "NEW"))
    return [
        # a note of a row that may be replaced: whether it has the key of the new one, its rowid, and [its key, what it said]
        trigger(
            "meets",
            "BEFORE INSERT",
            f"{_FORGET} AND id <> 0",
            f"INSERT INTO {_COLUMNS[:-1]}, writer_json) SELECT {scope('was')}, 0, '{name}', '{rules.REPLACE}',"
            f" ({same}) AND was.{rule.scope} IS {home}, (SELECT json_array({_KEY}, {_BEFORE}) {told('was')}), was.rowid"
            f" FROM {name} AS was WHERE was.rowid = NEW.rowid OR {same}",
            f"{_FORGET} AND id = 0",
        ),
        trigger(
            "inserted",
            "AFTER INSERT",
            f"{_FORGET} AND id <> 0 AND {there}",
            f"UPDATE {rules.LOGGED} SET at = 2 WHERE at = 0 AND id <> 0",
            inserted(f"NOT EXISTS (SELECT 1 FROM {rules.LOGGED} WHERE at = 2 AND row_key_json = '1')"),
            f"UPDATE {rules.LOGGED} SET at = {_NOW}, row_key_json = json_extract(before_json, '$[0]'),"
            " before_json = json_extract(before_json, '$[1]'), writer_json = NULL WHERE at = 2",
            _FORGET,
        ),
        trigger(
            "updated",
            "AFTER UPDATE",
            note("OLD", rules.UPDATE, _BEFORE, told("OLD", "NEW")),
            inserted(moved),
            _FORGET,
            also=f" AND ({old}) IS NOT ({new})",
        ),
        trigger("deleted", "AFTER DELETE", note("OLD", rules.DELETE, _BEFORE, told("OLD")), _FORGET),
    ]


def _finishing() -> list[str]:
    """The triggers of the table of notes: they date a note, delete a note beyond the limit, and refuse other writers."""
    notes = f"SELECT count(*) FROM {rules.LOGGED} WHERE id > 0 AND run_id"
    no_run = "NOT IN (SELECT '' UNION ALL SELECT id FROM run)"  # anybody invents such a run: all of them share one room
    full = f"({notes} = NEW.run_id) > {rules.MAX_NOTES} OR NEW.run_id {no_run} AND ({notes} {no_run}) > {rules.MAX_NOTES}"
    refuse = f"SELECT RAISE(ABORT, '{rules.KEPT}')"
    forged = f"NEW.id <> 0 AND {_NOT_NOTING} OR NEW.at NOT IN (0, 1)"
    replaced = f"EXISTS (SELECT 1 FROM {rules.LOGGED} WHERE id = NEW.id AND {_FINISHED})"
    return [
        _trigger(
            rules.LOGGED,
            "finished",
            f"AFTER INSERT ON {rules.LOGGED} WHEN NEW.id <> 0 AND NEW.at IN (0, 1) AND {NOT_A_CONNECTION}",
            f"DELETE FROM {rules.LOGGED} WHERE id = NEW.id AND ({_IN_VERB} OR {full})",
            f"UPDATE {rules.LOGGED} SET at = {_NOW} WHERE id = NEW.id AND at = 1",
        ),
        _trigger(rules.LOGGED, "made", f"BEFORE INSERT ON {rules.LOGGED} WHEN ({forged} OR {replaced}) AND {UNMARKED}", refuse),
        _trigger(
            rules.LOGGED,
            "kept_update",
            f"BEFORE UPDATE ON {rules.LOGGED} WHEN ({_NOT_NOTING} OR OLD.{_FINISHED} OR NEW.id IS NOT OLD.id) AND {UNMARKED}",
            refuse,
        ),
        _trigger(
            rules.LOGGED,
            "kept_delete",
            f"BEFORE DELETE ON {rules.LOGGED} WHEN (OLD.{_FINISHED} OR OLD.at <> 0 AND {_NOT_NOTING}) AND {UNMARKED}",
            refuse,
        ),
    ]


def _trigger(table: str, suffix: str, head: str, *statements: str) -> str:
    body = " ".join(f"{statement};" for statement in statements)
    return f"CREATE TRIGGER {rules.PREFIX}_log_{table}_{suffix} {head} BEGIN {body} END"


def _same(table: Table, rule: rules.LoggedWrites, key: Sequence[str]) -> str:
    return " AND ".join(
        f"coalesce(was.{name}, -1) = coalesce(NEW.{name}, -1)" if name == rule.frame else f"was.{name} = {new_value(table, name)}"
        for name in key
    )


def new_value(table: Table, name: str) -> str:
    """The future value of a new row's key column, in a BEFORE trigger: REPLACE puts the column's default for a NULL later."""
    column = table.c[name]
    default = column.server_default.arg if isinstance(column.server_default, DefaultClause) else None
    if column.nullable or not isinstance(default, TextClause):
        return f"NEW.{name}"
    return f"coalesce(NEW.{name}, {default.compile(dialect=sqlite.dialect())})"
