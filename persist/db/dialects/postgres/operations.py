"""Administrative operations on Postgres: VACUUM, and facts from catalogs and statistics. Some work is left to the server."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, MetaData, Table, event, func, select, text
from sqlalchemy.types import BigInteger

from persist.db.concurrency.writer_lock import Waiting
from persist.db.dialects import interface
from persist.db.dialects.postgres import upgrading
from persist.db.dialects.postgres.catalog import compare
from persist.db.dialects.postgres.connections import SECRETS, SETTINGS_THAT_MATTER, PostgresConnections, interrupt
from persist.db.dialects.postgres.event_guards import NUMBERS, SETTING
from persist.db.dialects.postgres.raw_writes import MARK, MARK_JOINED, UNMARK_JOINED
from persist.db.dialects.upgrade_steps import Step
from persist.db.expressions.locking import LOCK_TIMEOUT
from persist.db.statements.schema_version import is_distributed, number_of
from persist.db.values.escaping import command_word
from persist.errors import InvalidValue, NotPermitted, UnsupportedEngine
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect
    from persist.db.dialects.postgres import pipelining
else:
    pipelining = lazy_module("persist.db.dialects.postgres.pipelining")


_cursors = count()
_PIPELINED = "persist"
"""Where the `info` of SQLAlchemy's connection has its PipelinedConnection."""


class PostgresTransactions(interface.Transactions):
    """The transactions of one store on a Postgres database."""

    joined_marks = (MARK_JOINED, UNMARK_JOINED)

    def __init__(self, psycopg: Any, connections: PostgresConnections, event_log: interface.EventLogSupport) -> None:
        self._psycopg, self._connections, self._event_log = psycopg, connections, event_log
        if connections.owned and not connections.of_schema:
            event.listen(connections.engine, "do_execute", _begin_before)
            event.listen(connections.engine, "do_executemany", _begin_before)

    def begin(self, connection: Connection, *, write: bool, driver: Any = None, waiting: Waiting | None = None) -> Any:
        driver = driver or connection.connection.driver_connection
        connections = self._connections
        if not connections.owned:
            if not connection.in_transaction():
                connection.begin()
            if write:
                driver.execute(self._settings, prepare=False)
            return driver

        def renewed() -> tuple[Any, Any]:
            connection.invalidate()
            new: Any = connection.connection.driver_connection
            connection.info[_PIPELINED] = pipelined
            return new, connections.names(new)

        pipelined = pipelining.PipelinedConnection(driver, connections.names(driver))
        pipelined.begin(write=write, settings=self._settings if write else None, renew=renewed)
        connection.info[_PIPELINED] = pipelined
        return pipelined

    @property
    def _settings(self) -> bytes:
        """The SELECT that limits waits and marks the writer: for the transaction, as a pooler passes a session on."""
        logged = f", set_config('{SETTING}', 'on', true), set_config('{NUMBERS}', 'on', true)" if self._event_log.kept else ""
        return f"SELECT set_config('lock_timeout', '{LOCK_TIMEOUT}', true), {MARK}{logged}".encode()

    def end_read(self, connection: Connection | None, driver: Any) -> None:
        if connection is not None and (driver is None or connection.get_transaction() is not None):
            connection.commit()
        elif driver.begins:
            driver.commit()
        else:
            self._connections.deferred_commits.send(driver.driver)

    def ends_at_once(self, connection: Connection, driver: Any) -> bool:
        return driver is not None and self._connections.has_room_for_reader and connection.get_transaction() is None

    def join(self, connection: Connection) -> None:
        theirs: Any = connection.connection.dbapi_connection  # any driver that SQLAlchemy supports, not only psycopg
        if theirs.autocommit:
            raise InvalidValue("connection", interface.AUTOCOMMIT)
        if not connection.in_transaction():
            connection.begin()
        if self._event_log.kept:
            connection.exec_driver_sql(f"SET LOCAL {SETTING} = 'on'")
            connection.exec_driver_sql(f"SET LOCAL {NUMBERS} = 'on'")

    def runner(self, driver: Any) -> Any:
        return pipelining.PipelinedConnection(driver, self._connections.names(driver))

    def begin_pinned(self, runner: Any) -> None:
        runner.begin(write=True, settings=self._settings)

    def driver_of(self, connection: Connection) -> Any:
        pipelined = _pipelined(connection)
        return connection.connection.driver_connection if pipelined is None else pipelined.start()

    def reading_cursor(self, driver: Any) -> Any:
        return driver.cursor(f"persist_{next(_cursors)}", binary=True)  # binary: bytea in text form is twice as long

    def interrupt(self, driver: Any) -> None:
        interrupt(self._psycopg, driver.driver)


def _begin_before(cursor: Any, statement: Any, parameters: Any, context: Any) -> None:
    pipelined = _pipelined(context.root_connection)
    if pipelined is not None:
        pipelined.start()


def _pipelined(connection: Connection) -> "pipelining.PipelinedConnection | None":
    try:
        found: pipelining.PipelinedConnection | None = connection.info.get(_PIPELINED)
    except NotImplementedError:  # SQLAlchemy looks at a new connection, which has no `info` yet
        return None
    return found


_SETTINGS = (
    "server_version",
    "synchronous_commit",
    "default_transaction_isolation",
    "max_connections",
    "shared_buffers",
    "autovacuum",
    "idle_in_transaction_session_timeout",
)
_TABLES = """
    SELECT c.relname, pg_total_relation_size(c.oid) AS bytes, coalesce(pg_stat_get_live_tuples(c.oid), 0) AS live_rows,
           coalesce(pg_stat_get_dead_tuples(c.oid), 0) AS dead_rows,
           greatest(pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid)) AS last_vacuum,
           greatest(pg_stat_get_last_analyze_time(c.oid), pg_stat_get_last_autoanalyze_time(c.oid)) AS last_analyze
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relkind IN ('r', 'p')"""
_TABLES_ON_NODES = """
    SELECT c.relname, citus_total_relation_size(p.logicalrelid, false) AS bytes
    FROM pg_catalog.pg_dist_partition p JOIN pg_catalog.pg_class c ON c.oid = p.logicalrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema"""
_INDEXES = """
    SELECT t.relname AS table, c.relname AS name, pg_relation_size(c.oid) AS bytes, pg_stat_get_numscans(c.oid) AS scans,
           i.indisunique AS unique, i.indisvalid AS valid
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_class t ON t.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema ORDER BY t.relname, c.relname"""
_HOSTS_KEYS = """
    WITH RECURSIVE keys AS (
        SELECT k.oid, k.conrelid, k.confdeltype
        FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
        JOIN pg_catalog.pg_class p ON p.oid = k.confrelid JOIN pg_catalog.pg_namespace t ON t.oid = p.relnamespace
        WHERE k.contype = 'f' AND t.nspname = :schema AND p.relname = ANY(:names)
        AND NOT (c.relnamespace = p.relnamespace AND c.relname = ANY(:names))
        UNION
        SELECT k.oid, k.conrelid, k.confdeltype
        FROM keys JOIN pg_catalog.pg_constraint k ON k.contype = 'f' AND k.confrelid = keys.conrelid
        WHERE keys.confdeltype = 'c')
    SELECT n.nspname::text, c.relname::text, ARRAY(
             SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u(number, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.number ORDER BY place),
           t.nspname::text, p.relname::text, ARRAY(
             SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u(number, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.number ORDER BY place),
           CASE WHEN k.confdeltype = 'c' THEN 'cascades' WHEN k.confdeltype IN ('a', 'r') THEN 'refuses'
             WHEN k.confdeltype = 'd' AND own.filled THEN 'refuses' WHEN own.needed THEN 'empties' END,
           CASE WHEN k.condeferred THEN quote_ident(n.nspname) || '.' || quote_ident(k.conname) END
    FROM keys JOIN pg_catalog.pg_constraint k ON k.oid = keys.oid JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_class p ON p.oid = k.confrelid
    JOIN pg_catalog.pg_namespace t ON t.oid = p.relnamespace CROSS JOIN LATERAL (
        SELECT bool_or(a.attnotnull) AS needed, bool_or(a.atthasdef) AS filled
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = k.conrelid AND a.attnum = ANY(k.conkey)) own
    ORDER BY 1, 2, k.conname"""
_NO_IDENTITY = """
    SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relkind IN ('r', 'p') AND NOT CASE c.relreplident
        WHEN 'f' THEN true
        WHEN 'd' THEN EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
        WHEN 'i' THEN EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisreplident)
        ELSE false END
    ORDER BY c.relname"""
_ROW_SECURITY = """
    SELECT current_user::text
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relname = ANY(:names) AND row_security_active(c.oid) LIMIT 1"""
_WRITERS = """
    SELECT DISTINCT l.virtualtransaction
    FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class c ON c.oid = l.relation
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relkind IN ('r', 'p') AND l.locktype = 'relation'
      AND l.mode IN ('RowShareLock', 'RowExclusiveLock') AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
      AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())"""
_SEQUENCES = """
    SELECT t.relname, a.attname, s.oid::regclass::text,
           CASE WHEN has_sequence_privilege(s.oid, 'USAGE, SELECT') THEN coalesce(pg_sequence_last_value(s.oid), 0) END
    FROM pg_catalog.pg_class s JOIN pg_catalog.pg_depend d ON d.objid = s.oid AND d.deptype IN ('a', 'i')
    JOIN pg_catalog.pg_class t ON t.oid = d.refobjid
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
    JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
    WHERE s.relkind = 'S' AND n.nspname = :schema"""


class PostgresOperations(interface.DatabaseOperations):
    """Administrative operations on one schema of a Postgres database."""

    def __init__(self, dialect: "Dialect") -> None:
        self._dialect = dialect

    # -- reading

    def facts(self, ask: interface.Ask) -> interface.Facts:
        size = sum(facts["bytes"] or 0 for facts in self.table_facts(ask).values())
        return {
            "dialect": self._dialect.name,
            "version": ask(text("SHOW server_version")).scalar(),
            "database": ask(text("SELECT current_database()")).scalar(),
            "schema": self._dialect.schema,
            "bytes": size,
            "database_bytes": ask(text("SELECT pg_database_size(current_database())")).scalar(),
        }

    def settings(self, ask: interface.Ask) -> interface.Facts:
        query = text("SELECT name, current_setting(name) FROM pg_catalog.pg_settings WHERE name = ANY(:names)")
        found = {str(row[0]): row[1] for row in ask(query.bindparams(names=list(_SETTINGS)))}
        return {name: found[name] for name in _SETTINGS if name in found}

    def left_of(self, connection: Connection, steps: Sequence[Step]) -> list[Step]:
        schema = str(self._dialect.schema)
        reached = number_of(upgrading.marks_in(connection, schema).reached) or 0
        done = [step for step in steps if int(step.revision) <= reached]
        left = upgrading.unfinished(connection, schema, [step for step in done if step.afterwards])
        return [step for step in steps if step not in done or step in left]

    def table_facts(self, ask: interface.Ask) -> dict[str, interface.Facts]:
        rows = self._of_schema(ask, _TABLES).mappings().all()
        if on_nodes := self._bytes_on_nodes(ask):
            return {row["relname"]: {"bytes": on_nodes.get(row["relname"], row["bytes"])} for row in rows}
        return {
            row["relname"]: {
                "bytes": row["bytes"],
                "dead_rows": row["dead_rows"],
                "last_vacuum": _instant(row["last_vacuum"]),
                "last_analyze": _instant(row["last_analyze"]),
            }
            for row in rows
        }

    def index_facts(self, ask: interface.Ask) -> list[interface.Facts]:
        rows = self._of_schema(ask, _INDEXES).mappings()
        if self._bytes_on_nodes(ask):
            return [{"table": row["table"], "name": row["name"], "bytes": None, "unique": row["unique"]} for row in rows]
        names = ("table", "name", "bytes", "scans", "unique")
        return [{name: row[name] for name in names} for row in rows]

    def _bytes_on_nodes(self, ask: interface.Ask) -> dict[str, int | None]:
        """The sizes of tables on other nodes of a cluster; this server has no rows of the table and counts nothing."""
        if not ask(select(is_distributed())).scalar():
            return {}
        return dict(self._of_schema(ask, _TABLES_ON_NODES).all())

    def stored_size(self, column: ColumnElement[Any]) -> ColumnElement[int]:
        return func.pg_column_size(column, type_=BigInteger())

    def _of_schema(self, ask: interface.Ask, sql: str) -> Any:
        return ask(text(sql).bindparams(schema=self._dialect.schema))

    def role_seeing_some(self, ask: interface.Ask, tables: Sequence[Table]) -> str | None:
        query = text(_ROW_SECURITY).bindparams(schema=self._dialect.schema, names=[table.name for table in tables])
        role: str | None = ask(query).scalar()
        return role

    def writers(self, ask: interface.Ask) -> frozenset[str]:
        return frozenset(self._of_schema(ask, _WRITERS).scalars())

    # -- problems

    def foreign_references(self, ask: interface.Ask, tables: Sequence[Table]) -> list[interface.ForeignReference]:
        query = text(_HOSTS_KEYS).bindparams(schema=self._dialect.schema, names=[table.name for table in tables])
        return [
            interface.ForeignReference(schema, name, tuple(columns), where, parent, tuple(theirs), effect, deferred)
            for schema, name, columns, where, parent, theirs, effect, deferred in ask(query)
            if effect is not None
        ]

    def deferred_check(self, ask: interface.Ask, deferred: Sequence[str]) -> Callable[[], object]:
        names = ", ".join(deferred).replace(":", "\\:")

        def check() -> None:
            for when in ("IMMEDIATE", "DEFERRED"):
                ask(text(f"SET CONSTRAINTS {names} {when}"))

        return check

    def surroundings(self, ask: interface.Ask, tables: Iterable[Table]) -> Iterator[interface.Problem]:
        for row in self._of_schema(ask, _INDEXES).mappings():
            if not row["valid"]:
                message = (
                    f'it is invalid and serves no query; run: REINDEX INDEX CONCURRENTLY "{self._dialect.schema}"."{row["name"]}"'
                )
                yield interface.Problem("index_invalid", interface.Severity.WARNING, f"index {row['name']}", message)
        query = text("SELECT name, reset_val FROM pg_catalog.pg_settings WHERE name = ANY(:names) ORDER BY name")
        for name, value in ask(query.bindparams(names=list(SETTINGS_THAT_MATTER))).fetchall():
            expected, why = SETTINGS_THAT_MATTER[name]
            if value != expected:
                message = f"the server, the role or the database sets it to {value} instead of {expected}: {why}."
                yield interface.Problem("setting", interface.Severity.WARNING, name, message)
        ours = {table.name: table for table in tables}
        for (name,) in self._of_schema(ask, _NO_IDENTITY).fetchall():
            if name in ours:
                message = (
                    "it has no replica identity: once it is published, as for logical replication or a blue/green upgrade, its"
                    f' updates and deletes fail; run: ALTER TABLE "{self._dialect.schema}"."{name}" REPLICA IDENTITY FULL'
                )
                yield interface.Problem("identity_missing", interface.Severity.WARNING, f"table {name}", message)
        for table, column, sequence, last in self._of_schema(ask, _SEQUENCES).fetchall():
            if last is not None and table in ours and column in ours[table].columns:
                highest = ask(select(func.max(ours[table].columns[column]))).scalar()
                if highest is not None and highest > last:
                    message = f"its sequence stands at {last:,} and the highest id is {highest:,}: the next insert may fail."
                    fix = partial(_advance, sequence=sequence, table=ours[table], column=column)
                    yield interface.Problem("sequence_behind", interface.Severity.ERROR, f"table {table}", message, fix)

    def catalogs(self, ask: interface.Ask, metadata: MetaData) -> interface.Catalogs:
        return compare(self._dialect, ask, metadata)

    # -- doing

    def checkpoint(self, mode: str) -> tuple[int, int, int]:
        raise UnsupportedEngine("postgresql", "the server keeps and checkpoints its write-ahead log itself.")

    def vacuum(self, tables: Sequence[Table]) -> None:
        refused: list[str] = []
        with self._dialect.connections.writer.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            driver: Any = connection.connection.driver_connection
            names = connection.dialect.identifier_preparer

            def note(diagnostic: Any) -> None:
                if diagnostic.severity_nonlocalized == "WARNING":
                    refused.append(diagnostic.message_primary)

            driver.add_notice_handler(note)
            try:
                for table in tables:
                    where = f"{names.quote(str(self._dialect.schema))}.{names.quote(table.name)}"
                    driver.execute(f"VACUUM (ANALYZE) {where}", prepare=False)
            finally:
                driver.remove_notice_handler(note)
        if refused:
            raise NotPermitted(f"{refused[0]}.")

    def backup(self, target: Path, *, progress: interface.Progress | None, overwrite: bool) -> tuple[int, int]:
        url = self._dialect.connections.writer.url._replace(drivername="postgresql", password=None).difference_update_query(
            SECRETS
        )
        shown = command_word(url.render_as_string(hide_password=False))
        command = f"pg_dump --format=custom --schema={self._dialect.schema} --file={command_word(str(target))} {shown}"
        command = f"umask 077; {command}"  # nobody else reads the file
        raise UnsupportedEngine("postgresql", f"pg_dump makes its backups, while others write, too; run: {command}")


def _advance(work: Any, *, sequence: str, table: Table, column: str) -> None:
    """Move the sequence past the highest id, never back. It names no table: a cluster would move the node's own sequence."""
    highest = work.select(select(func.max(table.columns[column]))).scalar()
    last = func.coalesce(func.pg_sequence_last_value(func.to_regclass(sequence)), 0)
    work.select(select(func.setval(sequence, func.greatest(highest, last))))


def _instant(value: Any) -> str | None:
    return None if value is None else value.astimezone(UTC).isoformat()
