"""Postgres through psycopg 3: a separate schema, READ COMMITTED writes, snapshot reads, no session state."""

import logging
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, make_url, text

from persist.db.concurrency.writer_lock import Waiting
from persist.db.connections.connection_cache import ConnectionCache
from persist.db.dialects.interface import AUTOCOMMIT, Dialect
from persist.db.dialects.postgres.deferred_commits import DeferredCommits
from persist.db.dialects.postgres.errors import facts_of, meaning
from persist.db.dialects.postgres.event_guards import SETTING
from persist.db.dialects.postgres.rereading import REREADER
from persist.db.dialects.postgres.timeouts import SECRETS, connection_timeouts, interrupt
from persist.db.dialects.postgres.wakeups import Notices, notice
from persist.db.dialects.wakeups import Polling, Wakeups
from persist.db.expressions.locking import LOCK_TIMEOUT
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.statements.compiled import Kind
from persist.db.values.command_words import command_word
from persist.db.values.key_order import from_jsonb
from persist.errors import InvalidValue, PersistError, StoreBusy, Unavailable, UnsupportedEngine
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.dialects.postgres import pipelining
else:
    pipelining = lazy_module("persist.db.dialects.postgres.pipelining")

log = logging.getLogger("persist")

_SNAPSHOT = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
_cursors = count()
_IDLE_SECONDS = 1.0  # a connection idle for longer goes through the pool, which pings it
_PIPELINED = "persist"
"""Where the `info` of SQLAlchemy's connection has its PipelinedConnection."""
_LAST_ANSWER = 0.5
"""Seconds that the answer to a COMMIT may take to arrive when its connection is returned to the pool."""


class PostgresDialect(Dialect):
    """A Postgres database, reached directly or through a transaction-mode pooler."""

    name = "postgresql"
    rereader = REREADER
    schema: str
    _guest = False
    _said_polling = False
    one_writer = False
    one_file = False
    autocommits_single_statement = True
    batches_rows = True
    pipelines = True

    def __init__(self, url: URL, schema: str, *, pooler: str | None = None, read_only: bool = False) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise UnsupportedEngine("postgresql", "install agent-persist[postgres] for the psycopg driver.") from error
        self._psycopg = psycopg
        self.schema = schema
        self.notice = notice(schema)
        self._pooled = pooler == "transaction"
        self.read_only = read_only
        self.url = url.set(drivername="postgresql+psycopg")
        connect_args = connection_timeouts(url)
        engine = create_engine(self.url, pool_pre_ping=True, pool_size=5, max_overflow=24, connect_args=connect_args)
        self.idle = {write: ConnectionCache(2, _IDLE_SECONDS, self.give_back) for write in (True, False)}
        self._endings = DeferredCommits(psycopg)
        self._names: WeakKeyDictionary[Any, pipelining.PreparedNames] = WeakKeyDictionary()
        """The prepared statements of each psycopg connection."""
        event.listen(engine, "connect", self._look)
        event.listen(engine, "do_execute", _begin_before)
        event.listen(engine, "do_executemany", _begin_before)
        self._engine = engine

    def _look(self, driver: Any, record: Any) -> None:
        """Disable prepared statements on a new connection that goes through a pooler.

        A pooler may run a prepared statement in another session, where the name can mean another statement. A pooler sends its
        clients cancel keys of its own, so a pooled connection reports a process id other than pg_backend_pid().
        """
        found = driver.pgconn.exec_(b"SELECT pg_backend_pid()")
        if found.status != self._psycopg.pq.ExecStatus.TUPLES_OK:
            raise self._psycopg.errors.error_from_result(found)
        pooled = self._pooled or int(found.get_value(0, 0)) != driver.info.backend_pid
        self._names[driver] = pipelining.PreparedNames(enabled=not pooled)
        driver.prepare_threshold = None  # psycopg would deallocate all prepared statements, also ours, after a ROLLBACK

    def _make_engine(self, *, write: bool) -> Engine:
        snapshot = {} if write or self._guest else _SNAPSHOT
        return self._engine.execution_options(schema_translate_map={SCHEMA_TOKEN: self.schema}, **snapshot)

    @property
    def kind(self) -> Kind:
        return type(self._engine.dialect)

    @classmethod
    def of_engine(cls, engine: Engine, schema: str) -> "PostgresDialect":
        """Create the dialect for a caller's engine, whose pool and settings stay as they are."""
        import psycopg

        self = cls.__new__(cls)
        self._psycopg, self.schema, self.url = psycopg, schema, engine.url
        self._engine = engine
        self.notice = notice(schema)
        self._pooled = False
        self._guest = True
        self._endings = DeferredCommits(psycopg)
        return self

    def connect(self, *, write: bool) -> Connection:
        connection = super().connect(write=write)
        if not self._guest:
            return connection
        # override the isolation level of the host's engine: AUTOCOMMIT would mean no transaction
        return connection.execution_options(**({"isolation_level": "READ COMMITTED"} if write else _SNAPSHOT))

    def end_read(self, connection: Connection, driver: Any) -> None:
        if driver is None or connection.get_transaction() is not None:
            super().end_read(connection, driver)
        elif driver.begins:
            driver.commit()
        else:
            self._endings.send(driver.driver)

    def ends_at_once(self, connection: Connection, driver: Any) -> bool:
        return super().ends_at_once(connection, driver) and connection.get_transaction() is None

    def _ready(self, connection: Connection, wait: float = 0.0) -> bool:
        try:
            answered = self._endings.answered_within(connection.connection.driver_connection, wait)
        except self._psycopg.Error:
            return False
        return answered and super()._ready(connection)

    def give_back(self, connection: Connection) -> None:
        if self._ready(connection, wait=_LAST_ANSWER):
            connection.close()
        else:  # lost, or its last answer did not arrive: closing a store does not wait for a network that stalls
            self.discard(connection)

    def settle(self, driver: Any) -> None:
        """Do nothing: a Postgres database needs no setup by its clients."""

    def begin(self, connection: Connection, *, write: bool, waiting: Waiting | None = None) -> Any:
        driver: Any = connection.connection.driver_connection
        if self._guest:
            if not connection.in_transaction():
                connection.begin()
            if write:
                driver.execute(self._settings, prepare=False)
            return driver

        def renewed() -> tuple[Any, Any]:
            connection.invalidate()
            new: Any = connection.connection.driver_connection
            connection.info[_PIPELINED] = pipelined
            return new, self._names[new]

        pipelined = pipelining.PipelinedConnection(driver, self._names[driver])
        pipelined.begin(write=write, settings=self._settings if write else None, renew=renewed)
        connection.info[_PIPELINED] = pipelined
        return pipelined

    @property
    def _settings(self) -> bytes:
        """The SELECT that limits the wait for row locks, and says that events are recorded, for one transaction.

        A pooler's next client must not find these settings, so they are never made for the session.
        """
        logged = f", set_config('{SETTING}', 'on', true)" if self.keeps_log else ""
        return f"SELECT set_config('lock_timeout', '{LOCK_TIMEOUT}', true){logged}".encode()

    def join(self, connection: Connection) -> None:
        theirs: Any = connection.connection.dbapi_connection  # any driver that SQLAlchemy supports, not only psycopg
        if theirs.autocommit:
            raise InvalidValue("connection", AUTOCOMMIT)
        if not connection.in_transaction():
            connection.begin()
        if self.keeps_log:
            connection.exec_driver_sql(f"SET LOCAL {SETTING} = 'on'")

    def begin_pinned(self, runner: Any) -> None:
        runner.begin(write=True, settings=self._settings)

    def prepare_pinned(self, driver: Any) -> Callable[[], None]:
        before = driver.autocommit

        def restore() -> None:
            if self.usable(driver):
                driver.autocommit = before

        driver.autocommit = True
        return restore

    def runner(self, driver: Any) -> Any:
        names = pipelining.PreparedNames(enabled=False) if self._guest else self._names[driver]
        return pipelining.PipelinedConnection(driver, names)

    def driver_of(self, connection: Connection) -> Any:
        pipelined = _pipelined(connection)
        return super().driver_of(connection) if pipelined is None else pipelined.start()

    def interrupt(self, driver: Any) -> None:
        interrupt(self._psycopg, driver.driver)

    def usable(self, driver: Any) -> bool:
        return not (driver.closed or driver.broken)

    def alive(self, driver: Any) -> bool:
        try:
            self._endings.settle(driver)
            for _ in range(2):  # the first call may read the server's last message, the second then sees the end
                driver.pgconn.consume_input()
        except self._psycopg.Error:
            return False
        return self.usable(driver)

    def in_transaction(self, driver: Any) -> bool:
        return driver not in self._endings and bool(driver.info.transaction_status != self._psycopg.pq.TransactionStatus.IDLE)

    def translate_driver_error(self, error: BaseException) -> PersistError | None:
        facts = facts_of(self._psycopg, error)
        return None if facts is None else meaning(facts, self.url.database or "the database")

    def retryable(self, error: PersistError) -> bool:
        return isinstance(error, StoreBusy) or (isinstance(error, Unavailable) and error.outcome == "rolled back")

    def to_plain_json(self, text: str) -> str:
        return from_jsonb(text)

    def tables(self, connection: Connection) -> set[str]:
        query = text("SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = :schema")
        return set(connection.execute(query, {"schema": self.schema}).scalars())

    def count_on(self, connection: Connection, tables: Sequence[Table]) -> None:
        for table in tables:
            for column in table.columns:
                if column.identity is not None:
                    named = f'"{self.schema}"."{table.name}"'
                    query = f'SELECT setval(pg_get_serial_sequence(%s, %s), (SELECT max("{column.name}") FROM {named}))'
                    connection.exec_driver_sql(query, (named, column.name))

    def wakeups(self, listen_url: str | None) -> Wakeups:
        if listen_url is None and self._pooled:
            if not self._said_polling:
                self._said_polling = True
                log.warning(
                    "LISTEN needs a direct connection, and this one goes through a pooler: watching looks again and again;"
                    " give listen_url to be told at once"
                )
            return Polling()
        url = self.url if listen_url is None else make_url(listen_url)
        _, parameters = self._engine.dialect.create_connect_args(url)  # several hosts are joined as libpq expects
        return Notices({**connection_timeouts(url), **parameters}, self.schema)

    def upgrade_command(self) -> str:
        schema = "" if self.schema == "persist" else f" --schema {self.schema}"
        url = self.url.set(drivername="postgresql").difference_update_query(SECRETS).render_as_string(hide_password=True)
        return f"persist upgrade --url {command_word(url)}{schema}"

    def reading_cursor(self, driver: Any) -> Any:
        return driver.cursor(f"persist_{next(_cursors)}", binary=True)  # binary: bytea in text form is twice as long


def _begin_before(cursor: Any, statement: Any, parameters: Any, context: Any) -> None:
    """Send the BEGIN that waits for a statement, before SQLAlchemy executes one."""
    pipelined = _pipelined(context.root_connection)
    if pipelined is not None:
        pipelined.start()


def _pipelined(connection: Connection) -> "pipelining.PipelinedConnection | None":
    try:
        found: pipelining.PipelinedConnection | None = connection.info.get(_PIPELINED)
    except NotImplementedError:  # SQLAlchemy looks at a new connection, which has no `info` yet
        return None
    return found
