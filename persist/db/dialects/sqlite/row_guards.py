"""The triggers of row guards on SQLite. The triggers call only built-in functions, so that a shell can run them."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Table, Text, literal_column, select, text

from persist.db.dialects.event_guards import CHANGES
from persist.db.dialects.event_guards import PREFIX as EVENT_PREFIX
from persist.db.dialects.sqlite.raw_writes import UNMARKED as NOT_OURS
from persist.db.dialects.sqlite.raw_writes import new_value, raw_write_ddl
from persist.db.schema import row_guards
from persist.db.statements.prepared import Row, Statement
from persist.db.statements.schema_version import STRICT

FOUND = Statement(
    select(literal_column("name", Text()), literal_column("sql", Text()), literal_column("tbl_name", Text()))
    .select_from(text("sqlite_master"))
    .where(text("type = 'trigger'"))
)
"""All triggers that are there: name, statement and table."""
_TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, ?) = ? ORDER BY name"


def row_guard_ddl(table: Table) -> list[str]:
    """The statements that create the triggers of a table: the guards of its rules, and the notes of raw writes."""
    guards: tuple[row_guards.Guard, ...] = table.info.get(row_guards.GUARDS, ())
    if not guards:
        return raw_write_ddl(table)
    changed = ", ".join(row_guards.guarded_columns(guards))
    said = [(guard, row_guards.said(table.name, guard)) for guard in guards]
    return [
        _trigger(table.name, "insert", "INSERT", [(_inserted(table, guard), why) for guard, why in said]),
        _trigger(table.name, "update", f"UPDATE OF {changed}", [(_changed(guard), why) for guard, why in said]),
        *kept_place_ddl(table),
        *raw_write_ddl(table),
    ]


def kept_place_ddl(table: Table) -> list[str]:
    """The triggers that refuse OR REPLACE of another row in the place, a rowid or a key, of one that is bound once."""
    found = []
    for guard in table.info.get(row_guards.GUARDS, ()):
        if isinstance(guard, row_guards.BoundOnce):
            key = _same_key(table, guard)
            other = " OR ".join(f"bound.{name} IS NOT NEW.{name}" for name in (*guard.key, guard.column, *guard.fixed))
            of = f"SELECT 1 FROM {table.name} AS bound WHERE bound.{guard.column} IN ({_words(guard)})"
            inserted = f"NEW.rowid <> -1 AND EXISTS ({of} AND bound.rowid = NEW.rowid AND ({other}))"
            same = "(" + ", ".join(f"OLD.{name}" for name in ("rowid", *guard.key)) + ")"
            changed = (
                f"{same} IS NOT {same.replace('OLD.', 'NEW.')}"
                f" AND EXISTS ({of} AND bound.rowid <> OLD.rowid AND (bound.rowid = NEW.rowid OR {key}))"
            )
            why, nowhere = row_guards.said(table.name, guard), [("NEW.rowid = -1", row_guards.no_place(table.name))]
            found += [
                _trigger(table.name, "place_insert", "INSERT", [(inserted, why)]),
                _trigger(table.name, "place_inserted", "INSERT", nowhere, when="AFTER"),
                _trigger(table.name, "place_update", "UPDATE", [(changed, why)]),
            ]
    return found


def strict_guard_ddl(tables: Sequence[Table], *, marked_rows: bool = False) -> list[str]:
    """The triggers of a strict file. `marked_rows`: the mark is a row of `_meta`, as in a file made at revision 0028."""
    unmarked = f"(SELECT value FROM _meta WHERE key = '{STRICT}') IS NOT '{row_guards.MARKED}'" if marked_rows else NOT_OURS
    found = []
    for table in tables:
        refuse = f"BEGIN SELECT RAISE(ABORT, {_text(f'{table.name}: {row_guards.STRICTLY}')}); END"
        for event in ("INSERT", "UPDATE", "DELETE"):
            name = f"{row_guards.PREFIX}_strict_{table.name}_{event.lower()}"
            found.append(f"CREATE TRIGGER {name} BEFORE {event} ON {table.name} WHEN {unmarked} {refuse}")
    stays = f"WHEN OLD.key = '{STRICT}' BEGIN SELECT RAISE(ABORT, {_text(f'_meta: {row_guards.STRICTLY}')}); END"
    for name, event in (("update", "UPDATE OF key"), ("delete", "DELETE")):
        found.append(f"CREATE TRIGGER {row_guards.PREFIX}_strict_meta_{name} BEFORE {event} ON _meta {stays}")
    return found


def _trigger(table: str, suffix: str, event: str, refused: Sequence[tuple[str, str]], *, when: str = "BEFORE") -> str:
    cases = " ".join(f"WHEN {condition} THEN RAISE(ABORT, {_text(message)})" for condition, message in refused)
    return f"CREATE TRIGGER {row_guards.PREFIX}_{table}_{suffix} {when} {event} ON {table} BEGIN SELECT CASE {cases} END; END"


def _inserted(table: Table, guard: row_guards.Guard) -> str:
    if not isinstance(guard, row_guards.BoundOnce):
        return _bad(guard)
    same = f"{_same_key(table, guard)} AND bound.{guard.column} IN ({_words(guard)})"
    other = " OR ".join(f"bound.{name} IS NOT NEW.{name}" for name in (guard.column, *guard.fixed))
    return f"EXISTS (SELECT 1 FROM {table.name} AS bound WHERE {same} AND ({other}))"


def _same_key(table: Table, guard: row_guards.BoundOnce) -> str:
    same = [f"bound.{name} = {new_value(table, name)}" for name in guard.key if name != guard.frame]
    return " AND ".join([*same, f"coalesce(bound.{guard.frame}, -1) = coalesce(NEW.{guard.frame}, -1)"])


def _changed(guard: row_guards.Guard) -> str:
    if not isinstance(guard, row_guards.BoundOnce):
        return f"NEW.{guard.column} IS NOT OLD.{guard.column} AND {_bad(guard)}"
    other = " OR ".join(f"OLD.{name} IS NOT NEW.{name}" for name in (*guard.key, guard.column, *guard.fixed))
    return f"OLD.{guard.column} IN ({_words(guard)}) AND ({other})"


def _bad(guard: row_guards.Guard) -> str:
    assert not isinstance(guard, row_guards.BoundOnce)
    new = f"NEW.{guard.column}"
    if not isinstance(guard, row_guards.PlainName):
        return f"{new} IS NOT NULL AND (typeof({new}) <> 'text' OR NOT json_valid({new}))"
    name = f"substr({new}, {len(guard.folder) + 2})"
    return (
        f"{new} IS NOT NULL AND (typeof({new}) <> 'text' OR substr({new}, 1, {len(guard.folder) + 1}) <> '{guard.folder}/'"
        f" OR instr({name}, '/') > 0 OR instr({new}, char(92)) > 0 OR instr({new}, char(0)) > 0 OR trim({name}, '. ') = '')"
    )


def _words(guard: row_guards.BoundOnce) -> str:
    return ", ".join(map(_text, guard.words))


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def missing_row_guards(
    rows: Iterable[Row], tables: Sequence[Table], strict: Sequence[Table], *, marked_rows: bool = False
) -> list[str]:
    """The names of triggers that differ from the rows of FOUND, or are missing there. Options as for `strict_guard_ddl`."""
    found = {row[0]: row[1] for row in rows}
    expected = _expected(tables, strict, marked_rows=marked_rows)
    return [name for name, statement in expected.items() if found.get(name) != statement]


def unknown_triggers(rows: Iterable[Row], tables: Sequence[Table], strict: Sequence[Table]) -> list[str]:
    """The names of the triggers of these tables, among the rows of FOUND, that persist did not make."""
    ours = {table.name.lower() for table in tables}
    known = set(_expected(tables, strict, marked_rows=False))
    known |= {f"{EVENT_PREFIX}_{table}_{change.lower()}" for table in ours for change in CHANGES}
    return [name for name, _, table in rows if table.lower() in ours and name not in known]


def _expected(tables: Sequence[Table], strict: Sequence[Table], *, marked_rows: bool) -> dict[str, str]:
    statements = [statement for table in tables for statement in row_guard_ddl(table)]
    statements += strict_guard_ddl(strict, marked_rows=marked_rows) if strict else []
    return {statement.split()[2]: statement for statement in statements}


def lift_row_guards(driver: Any) -> Callable[[], None]:
    """Drop the triggers in the open transaction; the returned function creates them again. A rollback brings them back, too."""
    assert isinstance(driver, sqlite3.Connection)
    found = driver.execute(_TRIGGERS, (len(row_guards.PREFIX), row_guards.PREFIX)).fetchall()
    for name, _ in found:
        driver.execute(f'DROP TRIGGER "{name}"')

    def restore() -> None:
        for _, statement in found:
            driver.execute(statement)

    return restore
