"""The connection pool that the stores of many schemas share, each store's view of it, and the listeners that wait for events.

No connection remembers a schema: statements name it, and the map of SQLAlchemy's schema token is set at each checkout.
"""

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from sqlalchemy import Connection, Engine, Text, func, literal, literal_column

from persist.db.concurrency.fork_count import PROCESS, in_each_child
from persist.db.connections import Lent
from persist.db.dialects.connections import Pinned
from persist.db.dialects.interface import EVENTS, EventLogSupport, Notify, Polling, Wakeups
from persist.db.dialects.postgres.connections import PostgresConnections, connection_timeouts
from persist.db.dialects.postgres.urls import server_url
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.statements.prepared import PLACE_OF_CHANNEL

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect


# Waiting for new events on Postgres, with LISTEN on a separate connection.
#
# A notification only wakes the reader, which then queries the event log. The reader also polls slowly, since a connection can be
# lost without an error.

log = logging.getLogger("persist")

_BACKSTOP = 2.0
"""Seconds after which a reader queries the log even without a notification."""

_RETRY = 1.0
_SELDOM = 30.0
"""Seconds until the next attempt to listen: after the first failure, and at most."""

_LONGEST = 63
_PATIENCE = 5
"""Timeout of connecting, in seconds."""


def channel(schema: str, topic: str = EVENTS) -> str:
    """The name of the notification channel: one for each topic and schema of a database."""
    whole = f"persist_{topic}_{schema}"
    return whole if len(whole) <= _LONGEST else f"{whole[:46]}_{sha256(whole.encode()).hexdigest()[:16]}"


@lru_cache(maxsize=16)
def notify(schema: str, topic: str) -> Notify:
    """Makes the SQL that notifies the readers of a topic when the transaction commits."""
    return partial(func.pg_notify, literal(channel(schema, topic), Text()))


class Notices(Polling):
    """Waits with LISTEN; while listening fails, polls and periodically tries to listen again."""

    def __init__(self, parameters: Mapping[str, Any], channel: str) -> None:
        super().__init__()
        self._parameters, self._channel = {**parameters, "connect_timeout": _PATIENCE}, channel
        self._connection: Any = None
        self._selector: selectors.BaseSelector | None = None
        self._poke: socket.socket | None = None
        self._poked: socket.socket | None = None
        self._retry, self._retry_at = _RETRY, 0.0

    def wait(self, timeout: float) -> set[str] | None:
        if self._selector is None:
            if time.monotonic() < self._retry_at:
                return super().wait(timeout)
            try:
                self._listen()  # earlier commits send no notification: let the reader query the log
            except Exception as error:
                self._lost(error)
            return None
        told = set()
        try:
            self._selector.select(min(timeout, _BACKSTOP))
            self._connection.pgconn.consume_input()
            while notice := self._connection.pgconn.notifies():
                told.add(notice.extra.decode("utf-8", "replace"))
        except Exception as error:
            self._lost(error)
            return None
        return told

    def tell(self) -> None:
        """Wake the reader only while it polls: a listening connection is notified of this process's commits, too."""
        if self._selector is None:
            super().tell()

    def stop(self) -> None:
        super().stop()
        poke = self._poke
        if poke is not None:
            with contextlib.suppress(OSError):  # closed in this moment, so no thread waits
                poke.send(b"\0")

    def _listen(self) -> None:
        import psycopg

        made = psycopg.connect(autocommit=True, prepare_threshold=None, **self._parameters)
        self._connection = made
        made.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(self._channel)))
        self._poke, self._poked = socket.socketpair()
        selector = selectors.DefaultSelector()
        selector.register(self._poked, selectors.EVENT_READ)
        selector.register(made.fileno(), selectors.EVENT_READ)
        self._selector, self._retry = selector, _RETRY
        if self.stopped:  # `stop` was called before the socket existed
            self._poke.send(b"\0")

    def _lost(self, error: Exception) -> None:
        self.close()
        self._retry_at = time.monotonic() + self._retry
        if self._retry == _RETRY:
            log.warning("listening for events failed (%s); looking again and again until it works", type(error).__name__)
        self._retry = min(self._retry * 2, _SELDOM)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        held = [self._selector, self._poke, self._poked, connection]
        self._selector = self._poke = self._poked = None
        for one in held:
            if one is not None:
                with contextlib.suppress(Exception):  # it may be closed already
                    one.close()


class PostgresEventLog(EventLogSupport):
    """The event log in one schema of the engine's database. `pooled`: the engine connects through a transaction-mode pooler."""

    def __init__(self, engine: Engine, schema: str, *, pooled: bool) -> None:
        self._engine, self._schema, self.pooled = engine, schema, pooled
        self._said_polling = False
        self.notify = notify(schema, EVENTS)

    def leave_to_database(self, driver: Any) -> AbstractContextManager[None]:
        return nullcontext()  # the setting that keeps triggers silent is made by BEGIN, and a single statement has none

    def notification(self, topic: str) -> Notify | None:
        return notify(self._schema, topic)

    def wakeups(self, listen_url: str | None, topic: str = EVENTS) -> Wakeups:
        if listen_url is None and self.pooled:
            if not self._said_polling:
                self._said_polling = True
                log.warning(
                    "LISTEN needs a direct connection, and this one goes through a pooler: watching looks again and again;"
                    " give listen_url to be told at once"
                )
            return Polling()
        url = self._engine.url if listen_url is None else server_url(listen_url)
        _, parameters = self._engine.dialect.create_connect_args(url)  # several hosts are joined as libpq expects
        return Notices({**connection_timeouts(url), **parameters}, channel(self._schema, topic))


# One connection that listens for the readers of many schemas: LISTEN on a connection each would use up the server's.

"""Seconds after which a reader queries the log even without a notification."""
_UNUSED = 5.0
"""Seconds for which the connection is kept after its last reader has gone."""


class Heard(Polling):
    """Waits for the notifications of one channel, which the shared connection hears; polls while it cannot listen."""

    def __init__(self, listener: "SharedListener", channel: str) -> None:
        super().__init__()
        self.channel, self.listening = channel, False
        self._listener, self._lock = listener, threading.Lock()
        self._texts: set[str] = set()
        self._missed = False
        self._joined = False

    def wait(self, timeout: float) -> set[str] | None:
        if not self._joined:
            self._joined = True
            self._listener.join(self)
        if not self.listening:
            return super().wait(timeout)
        self.pause(min(timeout, _BACKSTOP))
        with self._lock:
            texts, self._texts = self._texts, set()
            missed, self._missed = self._missed, False
        return None if missed else texts

    def tell(self) -> None:
        """Wake the reader only while it polls: the shared connection hears of this process's commits, too."""
        if not self.listening:
            super().tell()

    def hear(self, text: str) -> None:
        """Hand over the text of a notification, from the listener's thread."""
        with self._lock:
            self._texts.add(text)
        self._told.set()

    def listens(self, on: bool) -> None:
        """Note that the connection began or ceased to listen: the reader queries the log, as it may have missed something."""
        with self._lock:
            self._missed, self.listening = True, on
        self._told.set()

    def close(self) -> None:
        self._listener.leave(self)


class SharedListener:
    """The connection, and a thread that runs while anybody waits for notifications."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = {**parameters, "connect_timeout": _PATIENCE}
        self._lock = threading.Lock()
        self._readers: set[Heard] = set()
        self._thread: threading.Thread | None = None
        self._poke: socket.socket | None = None
        self._closed = False
        self._forks = PROCESS.forks

    def join(self, reader: Heard) -> None:
        with self._lock:
            self._readers.add(reader)
            if self._thread is None and not self._closed:
                self._poke, poked = socket.socketpair()
                self._thread = threading.Thread(target=self._run, args=(poked,), name="persist-listener", daemon=True)
                self._thread.start()
        self._poke_thread()

    def leave(self, reader: Heard) -> None:
        with self._lock:
            self._readers.discard(reader)
        self._poke_thread()

    def close(self) -> None:
        """End the thread and close the connection. Readers that still wait poll from now on."""
        with self._lock:
            self._closed, thread = True, self._thread
        self._poke_thread()
        if thread is not None and self._forks == PROCESS.forks:
            thread.join()

    def _poke_thread(self) -> None:
        poke = self._poke
        if poke is not None:
            with contextlib.suppress(OSError):  # closed in this moment
                poke.send(b"\0")

    def _run(self, poked: socket.socket) -> None:
        retry = _RETRY
        try:
            with selectors.DefaultSelector() as waiting:
                waiting.register(poked, selectors.EVENT_READ)
                while not self._over():
                    try:
                        self._listen(poked)
                        retry = _RETRY
                    except Exception as error:
                        if retry == _RETRY:
                            log.warning(
                                "listening for events failed (%s); looking again and again until it works", type(error).__name__
                            )
                        self._tell_all(False)
                        deadline = time.monotonic() + retry
                        while not self._closed and (left := deadline - time.monotonic()) > 0:
                            if waiting.select(left):
                                poked.recv(4096)
                        retry = min(retry * 2, _SELDOM)
        finally:
            self._tell_all(False)
            poked.close()

    def _over(self) -> bool:
        """Whether the thread ends now; a reader that joins afterwards starts another one."""
        with self._lock:
            if self._closed or not self._readers:
                assert self._poke is not None
                self._poke.close()
                self._thread = self._poke = None
                return True
            return False

    def _tell_all(self, on: bool) -> None:
        for reader in list(self._readers):
            reader.listens(on)

    def _listen(self, poked: socket.socket) -> None:
        """Listen until the store is closed, or nobody has waited for a while."""
        import psycopg

        with (
            contextlib.closing(psycopg.connect(autocommit=True, prepare_threshold=None, **self._parameters)) as connection,
            selectors.DefaultSelector() as selector,
        ):
            selector.register(poked, selectors.EVENT_READ)
            selector.register(connection.fileno(), selectors.EVENT_READ)
            active: dict[str, list[Heard]] = {}
            while not self._closed:
                active = self._follow(psycopg, connection.pgconn, active)
                ready = selector.select(None if active else _UNUSED)
                if not ready and not self._readers:
                    return
                if any(key.fileobj is poked for key, _ in ready):
                    poked.recv(4096)
                connection.pgconn.consume_input()
                while notice := connection.pgconn.notifies():
                    for reader in active.get(notice.relname.decode(), ()):
                        reader.hear(notice.extra.decode("utf-8", "replace"))

    def _follow(self, psycopg: Any, pgconn: Any, active: dict[str, list[Heard]]) -> dict[str, list[Heard]]:
        """Listen on the channels of the readers that are there now, and on no others."""
        wanted: dict[str, list[Heard]] = {}
        with self._lock:
            for reader in self._readers:
                wanted.setdefault(reader.channel, []).append(reader)
        for words, channels in ((b"UNLISTEN ", active.keys() - wanted.keys()), (b"LISTEN ", wanted.keys() - active.keys())):
            for channel in channels:
                found = pgconn.exec_(words + bytes(psycopg.pq.Escaping(pgconn).escape_identifier(channel.encode())))
                if found.status != psycopg.pq.ExecStatus.COMMAND_OK:
                    raise psycopg.errors.error_from_result(found)
        for readers in wanted.values():
            for reader in readers:
                if not reader.listening:
                    reader.listens(True)
        return wanted


NO_SCHEMA = "pg_no_schema"
"""The schema of a connection that no store has checked out. The server refuses to create one of that name."""

_NOTIFY: Notify = partial(func.pg_notify, literal_column(f"'{PLACE_OF_CHANNEL}'", Text()))
"""Makes the SQL that notifies the readers of events, the same for every schema."""

_MAX_PINNED = 4
_FRESH = 1.0
"""Seconds after which a pinned connection that nobody used goes back to the pool."""


_pools: WeakSet["SharedPool"] = WeakSet()
_inherited: list[Any] = []


def _after_fork_in_child() -> None:
    """Leave the connections to the parent: references keep them from being closed in the child."""
    for pool in list(_pools):
        _inherited.append((pool, pool.engine.pool))
        pool.engine.dispose(close=False)
    _pools.clear()


in_each_child(_after_fork_in_child)


class SharedPool:
    """The connections of a server to one database, and the connections that recorders gave back, whatever their schema."""

    def __init__(self, psycopg: Any, dialect: "Dialect") -> None:
        """`dialect`: that of no schema, whose connections the stores share."""
        self.psycopg, self.dialect = psycopg, dialect
        self.connections = cast("PostgresConnections", dialect.connections)
        self.engine = self.connections.engine
        self._listeners: dict[str | None, SharedListener] = {}
        self._listening = threading.Lock()
        self._pinned: deque[tuple[float, Pinned]] = deque()
        _pools.add(self)

    def of_schema(self, schema: str) -> "SchemaConnections":
        return SchemaConnections(self, schema)

    def listener(self, listen_url: str | None) -> SharedListener:
        """The listener of all schemas' stores, on a separate connection."""
        with self._listening:
            found = self._listeners.get(listen_url)
            if found is None:
                url = self.engine.url if listen_url is None else server_url(listen_url)
                _, parameters = self.engine.dialect.create_connect_args(url)  # several hosts are joined as libpq expects
                found = self._listeners[listen_url] = SharedListener({**connection_timeouts(url), **parameters})
            return found

    def take_pinned(self) -> Pinned | None:
        """Take the connection that a recorder used last; None if there is none. Others that were not used are let go."""
        while True:
            try:
                _, pinned = self._pinned.pop()
            except IndexError:
                return None
            if self.connections.alive(pinned.pooled.driver_connection):
                break
            pinned.pooled.invalidate()
        while self._pinned and time.monotonic() - self._pinned[0][0] > _FRESH:
            try:
                _, stale = self._pinned.popleft()
            except IndexError:  # another thread was faster
                break
            self._let_go(stale)
        return pinned

    def give_back_pinned(self, pinned: Pinned) -> None:
        """Keep the connection for the next recorder, or return it to the pool if enough are kept."""
        if len(self._pinned) < _MAX_PINNED:
            self._pinned.append((time.monotonic(), pinned))
        else:
            self._let_go(pinned)

    def prepare_anew(self, driver: Any) -> None:
        """Free the prepared statements of an idle connection where those of other schemas leave no room for new ones."""
        names = self.connections.names(driver)
        if names.worn:
            driver.pgconn.exec_(b"DEALLOCATE ALL")
            names.forget()

    def close(self) -> None:
        """Close all connections. One in use is closed when it is released."""
        for listener in self._listeners.values():
            listener.close()
        while self._pinned:
            self._let_go(self._pinned.pop()[1])
        self.connections.dispose()
        self.engine.dispose()  # also of what no store has asked for, such as the list of tenants

    def _let_go(self, pinned: Pinned) -> None:
        if not self.connections.usable(pinned.pooled.driver_connection):
            pinned.pooled.invalidate()
        elif pinned.restore is not None:
            pinned.restore()
        pinned.pooled.close()


class SchemaConnections(PostgresConnections):
    """The connections of one schema's store. The engine, the caches and what is known of each connection are the pool's."""

    of_schema = True

    def __init__(self, pool: SharedPool, schema: str) -> None:
        vars(self).update(vars(pool.connections))
        vars(self).pop("_made", None)
        self._pool, self._schema = pool, schema
        self._map = {SCHEMA_TOKEN: schema}

    @property
    def engines(self) -> list[Engine]:
        return self._pool.connections.engines

    def lend(self, *, write: bool) -> Lent:
        connection, driver = self._pool.connections.lend(write=write)
        self._pool.prepare_anew(driver)
        return self._mapped(connection), driver

    def connect_first(self, *, write: bool) -> Connection:
        return self.connect(write=write)

    def ready_to_read(self) -> Lent | None:
        ready = super().ready_to_read()
        return None if ready is None else (self._mapped(ready[0]), ready[1])

    def _mapped(self, connection: Connection) -> Connection:
        return connection.execution_options(schema_translate_map=self._map)

    def take_pinned(self) -> Pinned | None:
        return self._pool.take_pinned()

    def give_back_pinned(self, pinned: Pinned) -> bool:
        driver: Any = pinned.pooled.driver_connection
        if self._pool.connections.disposed or not self.usable(driver) or self._in_transaction(driver):
            return False
        self._pool.give_back_pinned(pinned)
        return True

    def dispose(self) -> None:
        """Close no connection: those that the store released are others' now."""
        self.disposed = True

    def release(self, connection: Connection, *, write: bool, driver: Any = None) -> None:
        self._pool.connections.release(connection, write=write, driver=driver)


class SharedEventLog(PostgresEventLog):
    """The event log of one schema, whose readers wait at the listener that all schemas share."""

    def __init__(self, pool: SharedPool, schema: str) -> None:
        super().__init__(pool.engine, schema, pooled=cast("PostgresEventLog", pool.dialect.event_log).pooled)
        self._pool = pool
        self.channel = channel(schema)
        self.notify = _NOTIFY

    def wakeups(self, listen_url: str | None, topic: str = EVENTS) -> Wakeups:
        if listen_url is None and self.pooled:
            return super().wakeups(listen_url, topic)
        return Heard(self._pool.listener(listen_url), channel(self._schema, topic))
