"""The triggers of row guards on Postgres: their WHEN finds rows that break a rule: only such rows cost a call."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Table, Text, bindparam, literal, literal_column, null, select, text

from persist.db.dialects.event_guards import PREFIX as EVENT_PREFIX
from persist.db.dialects.postgres.raw_writes import raw_write_ddl
from persist.db.schema.row_guards import GUARDS, PREFIX, BoundOnce, Guard, PlainName, said
from persist.db.statements.prepared import Row, Statement
from persist.db.statements.schema_version import is_distributed

SETTING = "persist.carries_rows"
"""The setting of a transaction that carries existing rows over."""
_FROM = (
    "pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid"
    " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid"
)
_REFUSED = "triggers are refused"
_there = (
    select(
        literal_column("t.tgname", Text()),
        literal_column("pg_catalog.pg_get_triggerdef(t.oid) || ' $$ ' || p.prosrc", Text()),
        literal_column("c.relname", Text()),
    )
    .select_from(text(_FROM))
    .where(
        literal_column("n.nspname", Text()) == bindparam("schema", type_=Text()),
        text("NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')"),
    )
)
FOUND = Statement(_there.union_all(select(literal(_REFUSED, Text()), null(), null()).where(is_distributed())))
"""The triggers that are there and switched on: name, definition and body, and table; _REFUSED for a distributed server."""
_SPELLING = frozenset({"row", "in", "any", "array", "and", "or", "="})
"""Words of conditions that the server adds or leaves out."""
_REFUSE = (
    f"BEGIN IF current_setting('{SETTING}', true) IS DISTINCT FROM 'on' THEN"
    " RAISE EXCEPTION USING ERRCODE = '23514', CONSTRAINT = TG_ARGV[0], MESSAGE = TG_ARGV[1]; END IF; RETURN NEW; END"
)


def row_guard_ddl(table: Table, schema: str | None = None) -> list[str]:
    """The statements that create the triggers of a table, also those that note raw writes. Types check JSON columns."""
    guards: tuple[Guard, ...] = table.info.get(GUARDS, ())
    within = "" if schema is None else f'"{schema}".'
    triggers = [trigger for guard in guards for trigger in _triggers(within, table.name, guard)]
    if not triggers:
        return raw_write_ddl(table, within)
    function = f"CREATE FUNCTION {within}{PREFIX}_{table.name}() RETURNS trigger LANGUAGE plpgsql AS $$ {_REFUSE} $$"
    return [function, *triggers, *raw_write_ddl(table, within)]


def _triggers(within: str, table: str, guard: Guard) -> list[str]:
    def trigger(suffix: str, event: str, condition: str) -> str:
        arguments = f"'{table}.{guard.column}', '{said(table, guard)}'"
        return (
            f"CREATE TRIGGER {PREFIX}_{table}_{guard.column}_{suffix} BEFORE {event} ON {within}{table} FOR EACH ROW"
            f" WHEN ({condition}) EXECUTE FUNCTION {within}{PREFIX}_{table}({arguments})"
        )

    if isinstance(guard, BoundOnce):
        columns = (*guard.key, guard.column, *guard.fixed)
        words = ", ".join(f"'{word}'" for word in guard.words)
        other = _differs(columns)
        return [trigger("update", f"UPDATE OF {', '.join(columns)}", f"OLD.{guard.column} IN ({words}) AND {other}")]
    if isinstance(guard, PlainName):
        bad = _no_plain_name(f"NEW.{guard.column}", guard.folder)
        return [
            trigger("insert", "INSERT", bad),
            trigger("update", f"UPDATE OF {guard.column}", f"{_differs([guard.column])} AND {bad}"),
        ]
    return []


def _differs(columns: Sequence[str]) -> str:
    old, new = (", ".join(f"{which}.{name}" for name in columns) for which in ("OLD", "NEW"))
    return f"ROW({old}) IS DISTINCT FROM ROW({new})"


def _no_plain_name(value: str, folder: str) -> str:
    name = f"substr({value}, {len(folder) + 2})"
    return (
        f"(NOT starts_with({value}, '{folder}/') OR strpos({name}, '/') > 0 OR strpos({value}, chr(92)) > 0"
        f" OR btrim({name}, '. ') = '')"
    )


def missing_row_guards(rows: Iterable[Row], tables: Sequence[Table]) -> list[str]:
    """The triggers of these tables that differ from the rows of FOUND; None where the server refuses triggers."""
    found = {row[0]: row[1] for row in rows}
    if _REFUSED in found:
        return []
    return [name for name, made in _expected(tables).items() if name not in found or not _alike(made, found[name])]


def unknown_triggers(rows: Iterable[Row], tables: Sequence[Table]) -> list[str]:
    """The names of the triggers of these tables, among the rows of FOUND, that persist did not make."""
    ours = {table.name for table in tables}
    known = {EVENT_PREFIX, f"{EVENT_PREFIX}_piece", f"{EVENT_PREFIX}_position", *_expected(tables)}
    return [name for name, _, table in rows if table in ours and name not in known]


def _expected(tables: Sequence[Table]) -> dict[str, str]:
    """The triggers by name: the statement, and the body of the function."""
    found: dict[str, str] = {}
    for table in tables:
        bodies: dict[str, str] = {}
        for statement in row_guard_ddl(table):
            words = statement.split()
            if words[1] == "FUNCTION":
                bodies[words[2]] = statement.split("$$")[1]
            elif words[1] == "TRIGGER":
                function = statement.rpartition(" FUNCTION ")[2].partition("(")[0]
                found[words[2]] = f"{statement} $$ {bodies[f'{function}()']}"
    return found


def _alike(made: str, found: str) -> bool:
    """Whether the server's definition says what was made, with the same body: it spells conditions its own way."""
    (one, body), (other, its_body) = (text.split(" $$ ", 1) for text in (made, found))
    return body == its_body and _words(one) == _words(other)


def _words(definition: str) -> frozenset[str]:
    without_types = re.sub(r'::\w+|(?<=ON )(?:"[^"]*"|\w+)\.|(?<=FUNCTION )(?:"[^"]*"|\w+)\.', "", definition)
    return frozenset(re.findall(r"'[^']*'|[\w$]+|[<>=]+", without_types.lower())) - _SPELLING


def lift_row_guards(driver: Any) -> Callable[[], None]:
    """Let the open transaction write any row until the returned function is called, or the transaction ends."""
    driver.execute(f"SET LOCAL {SETTING} = 'on'")

    def restore() -> None:
        driver.execute(f"SET LOCAL {SETTING} = ''")

    return restore
