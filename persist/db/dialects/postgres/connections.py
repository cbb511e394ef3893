"""Connections to Postgres through psycopg 3, direct or through a pooler: pools, cached connections, whether one is still open."""

import contextlib
import logging
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import URL, Connection, Engine, event, exc

from persist.db.connections import ConnectionCache, Lent
from persist.db.dialects.connections import Connections
from persist.db.schema.base import SCHEMA_TOKEN
from persist.errors import UnsupportedEngine
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.dialects.postgres import pipelining
else:
    pipelining = lazy_module("persist.db.dialects.postgres.pipelining")


SECRETS = ["password", "sslpassword", "oauth_client_secret"]
"""URL parameters that are never shown."""
_SECONDS = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_UNANSWERED_MS = 30_000
_GRACE = 5.0
"""Seconds for a cancellation to reach the server, and again for the cancelled statement to end."""


def connection_timeouts(url: URL) -> dict[str, Any]:
    """The timeout parameters of a new connection, without those that the URL or the environment sets."""
    chosen = {**_SECONDS, "tcp_user_timeout": _UNANSWERED_MS}
    if "PGCONNECT_TIMEOUT" in os.environ:
        del chosen["connect_timeout"]
    return {name: value for name, value in chosen.items() if name not in url.query}


def interrupt(psycopg: Any, driver: Any) -> None:
    """Cancel the statement that another thread runs on the connection; shut the connection down if the server does not answer."""
    deadline = time.monotonic() + 2 * _GRACE
    try:
        driver.cancel_safe(timeout=_GRACE)
    except psycopg.Error:
        deadline = 0.0
    while driver.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
        if time.monotonic() > deadline:
            with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(driver.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)  # the waiting thread gets an error
            return
        time.sleep(0.01)


_LACKS = (
    "it lacks LISTEN and NOTIFY, LOCK TABLE, and advisory locks that hold, by which the processes of persist agree; "
    "use PostgreSQL, or what is built from it, as Citus is."
)


RELIED_ON = {"default_transaction_isolation": "read committed", "extra_float_digits": "1"}
"""Settings that a role or a database may have, and the values by which writers wait and numbers are read as written."""

_BY_HOSTS = "persist sets its own, and other programs and the engines of hosts do not"
SETTINGS_THAT_MATTER = {
    **{name: (value, _BY_HOSTS) for name, value in RELIED_ON.items()},
    "default_transaction_read_only": ("off", "whatever writes is Unavailable"),
    "session_replication_role": ("origin", "foreign keys and triggers do not work, so deletes leave rows behind"),
}
"""For `persist doctor`: the expected value, and the consequence of a different value."""


def own_settings(session: int) -> bytes:
    """SQL for the names of settings that differ from persist's, but for those of the client's own `session`, which are set."""
    return b" || ".join(
        f"CASE WHEN current_setting('{name}') = '{value}' THEN '' WHEN pg_backend_pid() = {session}"
        f" THEN left(set_config('{name}', '{value}', false), 0) ELSE '{name} ' END".encode()
        for name, value in RELIED_ON.items()
    )


def refuse_other_servers(driver: Any) -> None:
    """Raise UnsupportedEngine for CockroachDB or YugabyteDB, by the parameters of the connection, without a round trip."""
    reported = driver.info.parameter_status
    if reported("crdb_version") is not None:
        raise UnsupportedEngine("CockroachDB", _LACKS)
    if "-YB-" in (reported("server_version") or ""):
        raise UnsupportedEngine("YugabyteDB", _LACKS)


_ASK = (
    b"SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT), pg_backend_pid(),"
    b" EXISTS (SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'citus')"
)
_GOOD_FOR_NS = 600 * 1_000_000_000


def wall_ns() -> int:
    """Nanoseconds since 1970 on this machine's clock, which somebody may set."""
    return time.time_ns()


def steady_ns() -> int:
    """Nanoseconds on a clock that nobody sets, and that also runs while the machine is suspended, where there is one."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


class ServerClock:
    """A clock that runs as the server's does. A machine's own clock that agrees with the answer is taken, to be comparable."""

    def __init__(self) -> None:
        self._ahead_ns: int | None = None
        """How much later it is on the server than on the steady clock; None until a connection has asked."""
        self._asked_ns = 0

    def __call__(self) -> datetime:
        return datetime.fromtimestamp(self.us() / 1_000_000, UTC)

    def us(self) -> int:
        return (wall_ns() if self._ahead_ns is None else steady_ns() + self._ahead_ns) // 1000

    def ms(self) -> int:
        return self.us() // 1000

    @property
    def is_due(self) -> bool:
        """Whether the server was asked so long ago that the two clocks may have drifted apart."""
        return self._ahead_ns is None or steady_ns() - self._asked_ns > _GOOD_FOR_NS

    def ask(self, pgconn: Any, also: bytes = b"NULL") -> Any:
        """Ask the server over an idle connection: its time, the session's process id, whether it is a cluster, and `also`."""
        sent, steady = wall_ns(), steady_ns()
        answer = pgconn.exec_(_ASK + b", " + also)
        if answer.ntuples == 1:
            took = steady_ns() - steady
            server = int(answer.get_value(0, 0)) * 1000
            agrees = sent - 1000 <= server <= sent + took + 1000
            self._ahead_ns = (sent if agrees else server - took // 2) - steady
            self._asked_ns = steady
        return answer


# A snapshot has no changes to lose, and waiting for its COMMIT costs as much as a small query.


class DeferredCommits:
    """The driver connections with an unanswered COMMIT. Thread-safe, as only one thread uses a connection at a time."""

    def __init__(self, psycopg: Any) -> None:
        self._psycopg = psycopg
        self._sent: WeakSet[Any] = WeakSet()

    def __contains__(self, driver: Any) -> bool:
        return driver in self._sent

    def send(self, driver: Any) -> None:
        """Send COMMIT if the connection is in a transaction."""
        if driver.pgconn.transaction_status == self._psycopg.pq.TransactionStatus.INTRANS:
            driver.pgconn.send_query(b"COMMIT")
            driver.pgconn.flush()
            self._sent.add(driver)

    def answered(self, driver: Any) -> bool:
        """Whether the whole answer has arrived, which is read then; psycopg.Error if the connection is lost. Never waits."""
        if driver in self._sent:
            pgconn = driver.pgconn
            pgconn.consume_input()
            while not pgconn.is_busy():  # get_result would wait for the end of an answer of which a part has arrived
                if pgconn.get_result() is None:
                    self._sent.discard(driver)
                    return True
            return False
        return True

    def answered_within(self, driver: Any, seconds: float) -> bool:
        """As `answered`, once the answer has had so many seconds to arrive."""
        if self.answered(driver):
            return True
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(driver.pgconn.socket, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                selector.select(left)
                if self.answered(driver):
                    return True
        return False

    def settle(self, driver: Any) -> None:
        """Read the answer to the COMMIT, before the connection is used again; psycopg.Error if the connection is lost."""
        try:
            if self.answered(driver):
                return
        finally:
            self._sent.discard(driver)
        driver.wait(self._psycopg.generators.fetch_many(driver.pgconn))  # the driver's own wait, which releases the GIL


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
            # first, as SQLAlchemy fails on them
            event.listen(engine, "connect", lambda driver, _: refuse_other_servers(driver), insert=True)
            event.listen(engine, "connect", self._set_up)
            event.listen(engine, "checkout", self._replace_distrusted)

    def _make_engine(self, *, write: bool) -> Engine:
        snapshot = _SNAPSHOT if self.owned and not write else {}
        return self.engine.execution_options(schema_translate_map={SCHEMA_TOKEN: self._schema}, **snapshot)

    def _set_up(self, driver: Any, record: Any) -> None:
        """Look at the server's clock, take persist's settings, and disable prepared statements behind a pooler.

        A pooler may run a prepared statement in another session, where the name can mean another statement. A pooler sends its
        clients cancel keys of its own, so a pooled connection reports a process id other than pg_backend_pid().
        """
        found = self._server_clock.ask(driver.pgconn, own_settings(0 if self._pooled else driver.info.backend_pid))
        if found.status != self._psycopg.pq.ExecStatus.TUPLES_OK:
            raise self._psycopg.errors.error_from_result(found)
        pooled = self._pooled or int(found.get_value(0, 1)) != driver.info.backend_pid
        one_server, left = found.get_value(0, 2) != b"t", found.get_value(0, 3).decode()
        set_each = ", ".join(f"set_config('{name}', '{RELIED_ON[name]}', true)" for name in left.split())
        settings = f"SELECT {set_each}".encode() if set_each else None  # until the transaction ends
        self._names[driver] = pipelining.PreparedNames(not pooled, one_server=one_server, settings=settings)
        driver.prepare_threshold = None  # psycopg would deallocate all prepared statements, also ours, after a ROLLBACK

    def distrust(self) -> None:
        """Use no session any more that exists by now: it may refuse writes for ever, which a ping does not show."""
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
