"""The triggers of row guards on Postgres: their WHEN finds what breaks a rule, so that no other row costs a function call."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Table, Text, bindparam, literal, literal_column, null, select, text

from persist.db.dialects.postgres.raw_writes import raw_write_ddl
from persist.db.schema.row_guards import GUARDS, PREFIX, BoundOnce, Guard, PlainName, said
from persist.db.statements.distribution import is_distributed
from persist.db.statements.prepared import Row, Statement

SETTING = "persist.carries_rows"
"""The transaction setting of those who carry rows that were there before."""
_FROM = (
    "pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid"
    " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
)
_REFUSED = "triggers are refused"
_there = (
    select(literal_column("t.tgname", Text()), literal_column("NULL", Text()))
    .select_from(text(_FROM))
    .where(
        literal_column("n.nspname", Text()) == bindparam("schema", type_=Text()),
        text(f"starts_with(t.tgname, '{PREFIX}_') AND t.tgenabled IN ('O', 'A')"),
    )
)
FOUND = Statement(_there.union_all(select(literal(_REFUSED, Text()), null()).where(is_distributed())))
"""The triggers of row guards that are there and switched on: name, and NULL; _REFUSED for a distributed server."""
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
    """The names of the triggers of these tables that are not among the rows of FOUND; none where the server refuses triggers."""
    found = {row[0] for row in rows}
    if _REFUSED in found:
        return []
    made = (statement.split() for table in tables for statement in row_guard_ddl(table))
    expected = [words[2] for words in made if words[1] == "TRIGGER"]
    return [name for name in expected if name not in found]


def lift_row_guards(driver: Any) -> Callable[[], None]:
    """Let the open transaction write any row until the returned function is called, or the transaction ends."""
    driver.execute(f"SET LOCAL {SETTING} = 'on'")

    def restore() -> None:
        driver.execute(f"SET LOCAL {SETTING} = ''")

    return restore
