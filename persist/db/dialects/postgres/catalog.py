"""Compares a Postgres schema with a temporary one that is created from the models and rolled back."""

import secrets
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, MetaData, Table, text
from sqlalchemy.schema import CreateSchema

from persist.db.dialects.interface import Ask, Catalog, Catalogs, Definition, StoredColumn, Tables
from persist.db.dialects.postgres.connections import SECRETS
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.values.escaping import command_word, quoted
from persist.errors import NotPermitted

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect


_REFERENCES = """
    SELECT c.relname, k.conname, pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint k
    JOIN pg_catalog.pg_class c ON c.oid = k.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE k.contype = 'f' AND n.nspname = %s AND c.relname = ANY(%s) ORDER BY c.relname, k.conname"""

_TABLE_COLUMNS = """
    SELECT attname, pg_catalog.format_type(atttypid, atttypmod), attnotnull, atthasdef OR attidentity <> ''
    FROM pg_catalog.pg_attribute
    WHERE attrelid = CAST(%s AS regclass) AND attnum > 0 AND NOT attisdropped
    AND (attgenerated <> '') = %s ORDER BY attnum"""


class PostgresTables(Tables):
    """The tables of one schema of the database at `url`."""

    def __init__(self, url: URL, schema: str) -> None:
        self._url, self._schema = url, schema

    def names(self, connection: Connection) -> set[str]:
        query = text("SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = :schema")
        return set(connection.execute(query, {"schema": self._schema}).scalars())

    def columns(self, driver: Any, table: str, *, computed: bool = False) -> list[StoredColumn]:
        named = f"{quoted(self._schema)}.{quoted(table)}"
        return [StoredColumn(*row) for row in driver.execute(_TABLE_COLUMNS, [named, computed]).fetchall()]

    def advance_sequences(self, connection: Connection, tables: Sequence[Table]) -> None:
        for table in tables:
            for column in table.columns:
                if column.identity is not None:
                    named = f'"{self._schema}"."{table.name}"'
                    # on a node of a cluster the sequence begins at a number of that node, which older ids may be below
                    query = f"""SELECT setval(q.seqrelid, m.highest)
                        FROM pg_catalog.pg_sequence q, (SELECT max("{column.name}") AS highest FROM {named}) m
                        WHERE q.seqrelid = CAST(pg_get_serial_sequence(%s, %s) AS regclass) AND m.highest >= q.seqmin"""
                    connection.exec_driver_sql(query, (named, column.name))

    def suspend_references(self, connection: Connection, tables: Sequence[Table]) -> Sequence[str]:
        found = connection.exec_driver_sql(_REFERENCES, (self._schema, [table.name for table in tables])).all()
        for table, name, _ in found:
            connection.exec_driver_sql(f'ALTER TABLE "{self._schema}"."{table}" DROP CONSTRAINT "{name}"')
        return [f'ALTER TABLE "{self._schema}"."{table}" ADD CONSTRAINT "{name}" {rule}' for table, name, rule in found]

    def expected_rows(self, driver: Any, sql: str, args: Sequence[Any]) -> int | None:
        ((plan,),) = driver.execute(f"EXPLAIN (FORMAT JSON) {sql}", args).fetchall()
        top = plan[0]["Plan"]
        # a plan for other servers, as Citus makes it, has a number that no statistics stand behind
        return None if top["Node Type"] == "Custom Scan" else int(top["Plan Rows"])

    def arguments(self, schema_option: str) -> str:
        schema = "" if self._schema == "persist" else f" {schema_option} {self._schema}"
        url = self._url.set(drivername="postgresql").difference_update_query(SECRETS).render_as_string(hide_password=True)
        return f"{command_word(url)}{schema}"


_TABLES = """
    SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relnamespace = :schema ::regnamespace AND c.relkind IN ('r', 'p')"""
_COLUMNS = """
    SELECT c.relname, a.attname,
           format_type(a.atttypid, a.atttypmod) || coalesce(' COLLATE ' || nullif(l.collname, 'default'), '')
           || CASE a.attidentity WHEN '' THEN '' ELSE ' IDENTITY' END
           || CASE a.attgenerated WHEN '' THEN '' ELSE ' GENERATED' END,
           CASE WHEN a.attnotnull THEN 'NOT NULL ' ELSE '' END || coalesce('DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '')
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
    WHERE c.relnamespace = :schema ::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped"""
_CONSTRAINTS = """
    SELECT c.relname, n.conname, pg_get_constraintdef(n.oid)
    FROM pg_catalog.pg_constraint n JOIN pg_catalog.pg_class c ON c.oid = n.conrelid
    WHERE n.connamespace = :schema ::regnamespace AND n.contype <> 'n'"""
_INDEXES = """
    SELECT t.relname, c.relname, pg_get_indexdef(i.indexrelid), i.indisunique
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
    WHERE c.relnamespace = :schema ::regnamespace
      AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint n WHERE n.conindid = i.indexrelid AND n.contype <> 'f')"""

_SERVER = text("SELECT version(), current_setting('quote_all_identifiers')")
"""What the text of a definition depends on beside the models."""
_expected: dict[tuple[Any, ...], Catalog] = {}
"""The catalogs that the models define, by server and tables: a schema of all tables is created once and not for each tenant."""
_MAX_EXPECTED = 4


def compare(dialect: "Dialect", ask: Ask, metadata: MetaData) -> Catalogs:
    """Compare definitions if the role may create a schema for comparison, else only names."""
    with dialect.connections.writer.connect() as connection:
        try:
            dialect.transactions.begin(connection, write=True)
            return _definitions(connection, str(dialect.schema), metadata)
        except Exception as error:
            if not isinstance(dialect.errors.classify(error), NotPermitted) and not dialect.errors.refuses_writes(error):
                raise
        finally:
            connection.rollback()
    found = {key: Definition("") for key in _read(ask, str(dialect.schema))}
    return Catalogs(_names(metadata), {key: value for key, value in found.items() if key[0] != "constraint"}, names_only=True)


def _definitions(connection: Connection, schema: str, metadata: MetaData) -> Catalogs:
    found = _read(connection.execute, schema)
    server = connection.execute(_SERVER).one()
    key = (*server, metadata, frozenset(metadata.tables))
    expected = _expected.get(key)
    if expected is None:
        beside = f"persist_doctor_{secrets.token_hex(8)}"
        connection.execute(CreateSchema(beside))
        metadata.create_all(connection.execution_options(schema_translate_map={SCHEMA_TOKEN: beside}), checkfirst=False)
        expected = MappingProxyType(_read(connection.execute, beside))
        if len(_expected) == _MAX_EXPECTED:
            _expected.clear()
        _expected[key] = expected
    return Catalogs(expected, found)


def _read(ask: Any, schema: str) -> Catalog:
    facts: dict[tuple[str, str, str], Definition] = {}

    def rows(sql: str) -> Any:
        return ask(text(sql).bindparams(schema=quoted))

    quoted = '"' + schema.replace('"', '""') + '"'
    # Postgres prints names without a schema that is on the search path; the setting is local to the transaction
    ask(text("SELECT set_config('search_path', :schema, true)").bindparams(schema=quoted))
    for (table,) in rows(_TABLES):
        facts["table", table, ""] = Definition("")
    for table, name, essential, detail in rows(_COLUMNS):
        facts["column", table, name] = Definition(essential, detail.strip())
    for table, name, definition in rows(_CONSTRAINTS):
        facts["constraint", table, name] = Definition(definition)
    for table, name, definition, unique in rows(_INDEXES):
        # an index definition always qualifies its table
        plain = definition.replace(f" ON {schema}.", " ON ").replace(f" ON {quoted}.", " ON ")
        facts["unique index" if unique else "index", table, name] = Definition(plain)
    return facts


def _names(metadata: MetaData) -> Catalog:
    facts: dict[tuple[str, str, str], Definition] = {}
    for table in metadata.sorted_tables:
        facts["table", table.name, ""] = Definition("")
        facts |= {("column", table.name, column.name): Definition("") for column in table.columns}
        for index in table.indexes:
            if index.info.get("dialect", "postgresql") != "postgresql":
                continue
            facts["unique index" if index.unique else "index", table.name, str(index.name)] = Definition("")
    return facts
