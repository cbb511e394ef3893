"""Connections to Postgres through psycopg 3, direct or through a pooler: pools, cached connections, whether one is still open."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Connection, Engine, event, exc

from persist.db.connections.connection_cache import ConnectionCache, Lent
from persist.db.dialects.connections import Connections
from persist.db.dialects.postgres.deferred_commits import DeferredCommits
from persist.db.dialects.postgres.server_clock import ServerClock
from persist.db.dialects.postgres.servers import of_one_transaction, own_settings, refuse_other_servers
from persist.db.schema.base import SCHEMA_TOKEN
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.dialects.postgres import pipelining
else:
    pipelining = lazy_module("persist.db.dialects.postgres.pipelining")

log = logging.getLogger("persist")

_SNAPSHOT = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
_IDLE_SECONDS = 1.0  # a connection idle for longer goes through the pool, which pings it
_WAS_LENT = "persist_was_lent"
"""Where the `info` of a pool's record says that its connection was lent before; the pool clears it when it makes another."""
_LAST_ANSWER = 0.5
"""Seconds that the answer to a COMMIT may take to arrive when its connection is returned to the pool."""


class PostgresConnections(Connections):
    """The connections of an engine. `owned`: it is persist's own. `pooled`: they are known to go through a pooler."""

    of_schema = False
    """Whether the pool belongs to a server that many schemas share, which set it up."""

    def __init__(self, psycopg: Any, engine: Engine, schema: str, *, owned: bool, pooled: bool = False) -> None:
        self.engine, self.owned = engine, owned
        self._psycopg, self._schema, self._pooled = psycopg, schema, pooled
        self.deferred_commits = DeferredCommits(psycopg)
        self.clock = self._server_clock = ServerClock()
        self._names: WeakKeyDictionary[Any, pipelining.PreparedNames] = WeakKeyDictionary()
        self._trusted: WeakSet[Any] = WeakSet()
        """The driver connections on which no write was refused, nor on others, since they were made."""
        if owned:
            self.idle = {write: ConnectionCache(2, _IDLE_SECONDS, self._give_back) for write in (True, False)}
            event.listen(
                engine, "connect", lambda driver, _: refuse_other_servers(driver), insert=True
            )  # SQLAlchemy fails on them
            event.listen(engine, "connect", self._look)
            event.listen(engine, "checkout", self._replace_distrusted)

    def _make_engine(self, *, write: bool) -> Engine:
        snapshot = _SNAPSHOT if self.owned and not write else {}
        return self.engine.execution_options(schema_translate_map={SCHEMA_TOKEN: self._schema}, **snapshot)

    def _look(self, driver: Any, record: Any) -> None:
        """Look at the server's clock, take persist's settings, and disable prepared statements behind a pooler.

        A pooler may run a prepared statement in another session, where the name can mean another statement. A pooler sends its
        clients cancel keys of its own, so a pooled connection reports a process id other than pg_backend_pid().
        """
        found = self._server_clock.ask(driver.pgconn, own_settings(0 if self._pooled else driver.info.backend_pid))
        if found.status != self._psycopg.pq.ExecStatus.TUPLES_OK:
            raise self._psycopg.errors.error_from_result(found)
        pooled = self._pooled or int(found.get_value(0, 1)) != driver.info.backend_pid
        one_server, left = found.get_value(0, 2) != b"t", found.get_value(0, 3).decode()
        self._names[driver] = pipelining.PreparedNames(not pooled, one_server=one_server, settings=of_one_transaction(left))
        driver.prepare_threshold = None  # psycopg would deallocate all prepared statements, also ours, after a ROLLBACK

    def distrust(self) -> None:
        """Use no session any more that exists by now: one that began while the server took no writes may refuse them for ever.

        Others may have been made to a server that is a standby now. A ping shows none of that.
        """
        self._trusted.clear()

    def _replace_distrusted(self, driver: Any, record: Any, _: Any) -> None:
        """Let the pool replace a connection that is not trusted. One that it has just made is trusted."""
        if driver not in self._trusted:
            if record.info.get(_WAS_LENT):
                raise exc.DisconnectionError
            self._trusted.add(driver)
        record.info[_WAS_LENT] = True

    def names(self, driver: Any) -> "pipelining.PreparedNames":
        """The prepared statements of a psycopg connection; a caller's has none of persist's."""
        return self._names[driver] if self.owned else pipelining.PreparedNames(False, one_server=False)

    def check_server(self, driver: Any) -> None:
        refuse_other_servers(driver)
        if self._server_clock.is_due:
            found = self._server_clock.ask(driver.pgconn, own_settings(0))
            if not self.owned and found.ntuples == 1 and b"extra_float_digits" in (found.get_value(0, 3) or b""):
                log.warning("the engine's role or database sets extra_float_digits: numbers with fractions are read rounded")

    def prepare_database(self, driver: Any) -> None:
        """Do nothing: a Postgres database needs no setup by its clients."""

    def lend(self, *, write: bool) -> Lent:
        while self.idle is not None and (kept := self.idle[write].take()) is not None:
            if self.alive(kept[1]):
                return kept
            self.discard(kept[0])
        connection = (self.writer if write else self.reader).connect()
        driver: Any = connection.connection.driver_connection
        if self._server_clock.is_due:
            self._server_clock.ask(driver.pgconn)
        if not self.owned:
            self._trusted.add(driver)
            # override the isolation level of the host's engine: AUTOCOMMIT would mean no transaction
            connection.execution_options(**({"isolation_level": "READ COMMITTED"} if write else _SNAPSHOT))
        return connection, driver

    def _can_begin_now(self, driver: Any, wait: float = 0.0) -> bool:
        try:
            answered = self.deferred_commits.answered_within(driver, wait)
        except self._psycopg.Error:
            return False
        return answered and self.alive(driver)

    def _in_transaction(self, driver: Any) -> bool:
        idle = self._psycopg.pq.TransactionStatus.IDLE
        return driver not in self.deferred_commits and bool(driver.info.transaction_status != idle)

    def _give_back(self, connection: Connection) -> None:
        """Return a cached connection to its pool."""
        if self._can_begin_now(connection.connection.driver_connection, wait=_LAST_ANSWER):
            connection.close()
        else:  # lost, or its last answer did not arrive: closing a store does not wait for a network that stalls
            self.discard(connection)

    def usable(self, driver: Any) -> bool:
        return not (driver.closed or driver.broken)

    def alive(self, driver: Any) -> bool:
        try:
            self.deferred_commits.settle(driver)
            for _ in range(2):  # the first call may read the server's last message, the second then sees the end
                driver.pgconn.consume_input()
        except self._psycopg.Error:
            return False
        return driver in self._trusted and self.usable(driver)

    def release(self, connection: Connection, *, write: bool, driver: Any = None) -> None:
        if driver is not None and not self.usable(driver):
            driver = None  # the transaction may have begun anew on another one
        if self.owned or connection.closed or connection.invalidated or connection.connection.driver_connection in self._trusted:
            super().release(connection, write=write, driver=driver)
        else:
            self.discard(connection)

    def prepare_pinned(self, driver: Any) -> Callable[[], None]:
        self._trusted.add(driver)
        before = driver.autocommit

        def restore() -> None:
            if self.usable(driver):
                driver.autocommit = before

        driver.autocommit = True
        return restore
