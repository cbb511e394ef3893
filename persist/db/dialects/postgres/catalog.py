"""Compares a Postgres schema with a temporary one that is created from the models and rolled back."""

import secrets
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, MetaData, text
from sqlalchemy.schema import CreateSchema

from persist.db.dialects.operations import Ask, Catalog, Catalogs, Definition
from persist.db.schema.base import SCHEMA_TOKEN
from persist.errors import NotPermitted

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect

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
