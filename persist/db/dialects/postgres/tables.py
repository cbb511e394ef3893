"""The tables of a schema on Postgres."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import URL, Connection, Table, text

from persist.db.dialects.postgres.timeouts import SECRETS
from persist.db.dialects.quoting import quoted
from persist.db.dialects.tables import StoredColumn, Tables
from persist.db.values.command_words import command_word

_REFERENCES = """
    SELECT c.relname, k.conname, pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint k
    JOIN pg_catalog.pg_class c ON c.oid = k.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE k.contype = 'f' AND n.nspname = %s AND c.relname = ANY(%s) ORDER BY c.relname, k.conname"""

_COLUMNS = """
    SELECT attname, pg_catalog.format_type(atttypid, atttypmod), attnotnull FROM pg_catalog.pg_attribute
    WHERE attrelid = CAST(%s AS regclass) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"""


class PostgresTables(Tables):
    """The tables of one schema of the database at `url`."""

    def __init__(self, url: URL, schema: str) -> None:
        self._url, self._schema = url, schema

    def names(self, connection: Connection) -> set[str]:
        query = text("SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = :schema")
        return set(connection.execute(query, {"schema": self._schema}).scalars())

    def columns(self, driver: Any, table: str) -> list[StoredColumn]:
        named = f"{quoted(self._schema)}.{quoted(table)}"
        return [StoredColumn(*row) for row in driver.execute(_COLUMNS, [named]).fetchall()]

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
