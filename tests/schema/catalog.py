"""What a database says of itself, as a set of facts: two schemas are the same when their sets are.

Alembic's own check misses the predicates of partial indexes, CHECKs and more. Here the database prints everything it knows.
"""

import re
import sqlite3

import psycopg
from psycopg import sql

Fact = tuple[str, ...]
Catalog = set[Fact]

_POSTGRES = {
    "table": """
        SELECT c.relname, c.relkind::text, c.relpersistence::text, coalesce(array_to_string(c.reloptions, ','), ''),
               c.relreplident::text
        FROM pg_class c WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind NOT IN ('i', 'c', 't')""",
    "column": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'NOT NULL' ELSE '' END,
               coalesce(pg_get_expr(d.adbin, d.adrelid), ''), coalesce(l.collname, ''),
               a.attidentity::text || a.attgenerated::text
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind NOT IN ('i', 'S')
          AND a.attnum > 0 AND NOT a.attisdropped""",
    "constraint": """
        SELECT c.relname, n.conname, pg_get_constraintdef(n.oid), n.convalidated::text
        FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid WHERE n.connamespace = %(schema)s::regnamespace""",
    "index": """
        SELECT c.relname, pg_get_indexdef(i.indexrelid), i.indisvalid::text
        FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relnamespace = %(schema)s::regnamespace""",
    "trigger": """
        SELECT c.relname, pg_get_triggerdef(t.oid), t.tgenabled::text
        FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = %(schema)s::regnamespace AND NOT t.tgisinternal""",
    "function": """
        SELECT p.proname, pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = %(schema)s::regnamespace""",
    "type": """
        SELECT t.typname, t.typtype::text FROM pg_type t
        WHERE t.typnamespace = %(schema)s::regnamespace AND t.typtype IN ('d', 'e', 'r')""",
}


def postgres_catalog(url: str, schema: str = "persist") -> Catalog:
    """Every fact about the tables of one schema, in words that do not name it."""
    facts: Catalog = set()
    with psycopg.connect(url) as connection:
        # Names are printed without their schema when the search path finds them.
        connection.execute(sql.SQL("SET LOCAL search_path = {}").format(sql.Identifier(schema)))
        for kind, query in _POSTGRES.items():
            for row in connection.execute(query.encode(), {"schema": schema}):
                # The table of an index and a function are qualified whatever the path. Only these places are: a default may
                # name a setting like it.
                facts.add((kind, *(_unqualified(str(value), schema) for value in row)))
    return facts


def _unqualified(text: str, schema: str) -> str:
    return text.replace(f" ON {schema}.", " ON ").replace(f" FUNCTION {schema}.", " FUNCTION ")


def sqlite_catalog(path: str) -> Catalog:
    """Every fact about the tables of one file; a column reads the same whether CREATE or ALTER TABLE made it."""
    facts: Catalog = set()
    connection = sqlite3.connect(path)
    try:
        for kind, name, table, definition in connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"):
            if kind == "table" and definition:
                facts |= {(kind, name, clause) for clause in table_clauses(definition)}
            else:
                facts.add((kind, name, table, _squeezed(definition or "")))
    finally:
        connection.close()
    return facts


def table_clauses(definition: str) -> set[str]:
    """The columns and constraints of a CREATE TABLE, and what stands after its closing parenthesis."""
    text = _squeezed(definition)
    start = text.index("(") + 1
    clauses, depth, quote, begin = set(), 0, "", start
    for at in range(start, len(text)):
        char = text[at]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "(":
            depth += 1
        elif char in ",)" and depth == 0:
            clauses.add(text[begin:at].strip())
            begin = at + 1
            if char == ")":
                return clauses | {f"options: {text[begin:].strip()}"}
        elif char == ")":
            depth -= 1
    raise ValueError(f"not a CREATE TABLE: {definition}")


def postgres_rows(url: str, tables: list[str], schema: str = "persist") -> dict[str, list[Fact]]:
    """The rows of tables, sorted."""
    found = {}
    with psycopg.connect(url) as connection:
        for table in tables:
            rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table)))
            found[table] = sorted(tuple(map(repr, row)) for row in rows)
    return found


def sqlite_rows(path: str, tables: list[str]) -> dict[str, list[Fact]]:
    """The rows of tables, sorted."""
    connection = sqlite3.connect(path)
    try:
        return {
            table: sorted(tuple(map(repr, row)) for row in connection.execute(f'SELECT * FROM "{table}"')) for table in tables
        }
    finally:
        connection.close()


def _squeezed(definition: str) -> str:
    return re.sub(r"\s+", " ", definition).strip().replace("( ", "(").replace(" )", ")")
