"""Making a used Postgres database as good as new: emptied in a few milliseconds, where making another takes ten times that.

Each database has one connection for this, which stays open while tests use it: a new one would have to learn the whole catalog
again, which costs four times as much as the cleaning. It is idle and holds nothing, and a test may cut it.
A database whose structure a test changed, whose rows are too many, or that somebody still uses is not cleaned, and has to go.
"""

import time
from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg import sql

from persist.schema.metadata import metadata
from tests.distributed_server import is_cluster

SCHEMA = "persist"
_ORDER = {str(table.name): number for number, table in enumerate(metadata.sorted_tables)}
MARK = "persist-tests-kept"
"""How a server's list of connections calls those that are kept for the next test."""

MAX_BYTES = 64 * 2**20
PATIENCE = 2.0

# What a test could leave behind besides rows: relations, columns, defaults, constraints, indexes, triggers, functions, schemas,
# settings.
_OURS = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"
_STRUCTURE = f"""
SELECT (SELECT array_agg((n.nspname, c.relname, c.relkind, c.reloptions, c.relacl, c.relreplident)
                         ORDER BY n.nspname, c.relname)::text
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_OURS}),
       (SELECT sum(hashtextextended(columns::text, 0)) FROM (
            SELECT c.relname, t.attname, t.atttypid, t.attnotnull, t.attisdropped, t.attidentity, t.attcollation,
                   t.atttypmod, pg_get_expr(d.adbin, d.adrelid)
            FROM pg_attribute t LEFT JOIN pg_attrdef d ON d.adrelid = t.attrelid AND d.adnum = t.attnum
            JOIN pg_class c ON c.oid = t.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE {_OURS} AND t.attnum > 0) columns),
       (SELECT sum(hashtextextended(conname || convalidated::text || pg_get_constraintdef(oid), 0)) FROM pg_constraint),
       (SELECT sum(hashtextextended(pg_get_indexdef(i.indexrelid) || i.indisvalid::text, 0))
            FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_OURS}),
       (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal),
       (SELECT count(*) FROM pg_proc),
       (SELECT array_agg(n.nspname || coalesce(n.nspacl::text, '') ORDER BY n.nspname)::text FROM pg_namespace n
            WHERE n.nspname !~ '^pg_(temp|toast_temp)'),
       (SELECT array_agg(s.setconfig::text ORDER BY s.setrole)::text FROM pg_db_role_setting s
            JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database()),
       (SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pg_event_trigger), (SELECT count(*) FROM pg_policy)
"""

# Whoever changes a structure writes to these; counting what was written to them costs a hundredth of looking at them. Since
# version 15 a server knows of it as soon as the connection that wrote is gone.
_CATALOGS = (
    "pg_class pg_attribute pg_attrdef pg_constraint pg_index pg_trigger pg_proc pg_namespace pg_db_role_setting pg_publication"
)
_WRITTEN = f"""
SELECT sum(pg_stat_get_tuples_inserted(c) + pg_stat_get_tuples_updated(c) + pg_stat_get_tuples_deleted(c))
    FROM unnest(string_to_array('{_CATALOGS} pg_event_trigger pg_policy', ' ')::regclass[]) c
    WHERE current_setting('track_counts')::boolean AND current_setting('server_version_num')::int >= 150000
"""

# What tells in one statement for all tables whether their rows are those of a fresh copy.
_SUM = sql.SQL("SELECT {}, count(*), sum(hashtextextended(t::text, 0)) FROM {} t")


def order(name: str) -> int:
    """A key to sort tables by, so that rows come after those that they refer to: a cluster checks this whatever it is told."""
    return _ORDER.get(name, -1)


def cleaner(url: str) -> psycopg.Connection[Any]:
    """A connection to clean the database by: its deletes go in any order, and fire no trigger, except on a cluster."""
    connection = psycopg.connect(url, autocommit=True)
    if not is_cluster(connection):
        connection.execute("SET session_replication_role TO replica")
    return connection


class Clean:
    """What a fresh copy of the template looks like, and how to bring a used one back to it."""

    def __init__(self, fresh: psycopg.Connection[Any]) -> None:
        self._structure = fresh.execute(_STRUCTURE).fetchone()
        query = "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY tablename"
        found = [name for (name,) in fresh.execute(query, (SCHEMA,))]
        self._tables = sorted(found, key=order)
        probe = sql.SQL("SELECT {}, pg_total_relation_size({}) WHERE EXISTS (SELECT FROM {})")
        probes = [probe.format(name, _table(name).as_string(fresh), _table(name)) for name in self._tables]
        self._probes = sql.SQL(" UNION ALL ").join(probes).as_string(fresh)
        self._written: dict[str, Any] = {}
        self._seeds = {name: rows for name in self._tables if (rows := _rows(fresh, name))}
        sums = [_SUM.format(sql.Literal(name), _table(name)) for name in self._seeds]
        self._sums = sql.SQL(" UNION ALL ").join(sums).as_string(fresh)
        self._seed_sums = set(fresh.execute(self._sums).fetchall())
        self._sequences = _sequences(fresh)
        self._distributed = is_cluster(fresh)

    def restore(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether the database is now as a fresh copy is."""
        try:
            if not _alone(connection) or not self._unchanged(connection):
                return False
            filled = dict(connection.execute(self._probes).fetchall())
            if sum(filled.values()) > MAX_BYTES:
                return False
            self._empty(connection, filled)
        except psycopg.OperationalError:  # cut by a test
            return False
        return True

    def _unchanged(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether the structure is that of a fresh copy; looked at only if somebody wrote to the catalogs since the last time."""
        row = connection.execute(_WRITTEN).fetchone()
        written, name = row and row[0], connection.info.dbname
        if written is None or self._written.get(name) != written:
            if connection.execute(_STRUCTURE).fetchone() != self._structure:
                return False
            self._written[name] = written
        return True

    def _empty(self, connection: psycopg.Connection[Any], filled: Iterable[str]) -> None:
        with connection.transaction():
            whole: set[str] = set()
            if self._distributed:  # the nodes check foreign keys whatever this connection says
                tables = sql.SQL(", ").join(map(_table, filled))
                connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(tables))
            else:
                whole = {name for name, *_ in self._seed_sums & set(connection.execute(self._sums).fetchall())}
                for name in filled:
                    if name not in whole:
                        connection.execute(sql.SQL("DELETE FROM {}").format(_table(name)))
            for name in self._seeds:
                if name in whole:
                    continue
                with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(_table(name))) as copy:
                    copy.write(self._seeds[name])
            for name, last in _sequences(connection).items():
                if (fresh := self._sequences[name]) != last:  # those that gave nothing begin at 1
                    values = (_table(name).as_string(connection), fresh or 1, fresh is not None)
                    connection.execute("SELECT setval(%s::regclass, %s, %s)", values)


def _table(name: str) -> sql.Identifier:
    return sql.Identifier(SCHEMA, name)


def _rows(connection: psycopg.Connection[Any], name: str) -> bytes:
    with connection.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(_table(name))) as copy:
        return b"".join(copy)


def _sequences(connection: psycopg.Connection[Any]) -> dict[str, int | None]:
    """The last number that each gave."""
    query = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = %s"
    return dict(connection.execute(query, (SCHEMA,)).fetchall())


def _alone(connection: psycopg.Connection[Any]) -> bool:
    """Whether nobody is connected but those who wait for the next test. The server notices a close a moment after it was sent."""
    query = f"""SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND (application_name <> '{MARK}' OR state <> 'idle')
        AND application_name !~ '^(citus_internal|Citus)'"""  # what a cluster's nodes ask each other
    deadline = time.monotonic() + PATIENCE
    while (row := connection.execute(query).fetchone()) is not None and row[0]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True
