"""Waiting for new events on Postgres: with LISTEN on a connection of its own, or on one that many schemas share."""

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any

from sqlalchemy import Engine, Text, func, literal

from persist.db.concurrency.fork_count import PROCESS
from persist.db.dialects.interface import EVENTS, EventLogSupport, Notify, Polling, Wakeups
from persist.db.dialects.postgres.connections import connection_timeouts
from persist.db.dialects.postgres.urls import server_url

# A notification only wakes the reader, which then queries the event log. The reader also polls slowly, since a connection can be
# lost without an error.

log = logging.getLogger("persist")

_BACKSTOP = 2.0
"""Seconds after which a reader queries the log even without a notification."""

_RETRY = 1.0
_SELDOM = 30.0
"""Seconds until the next attempt to listen: after the first failure, and at most."""

_PATIENCE = 5
"""Timeout of connecting, in seconds."""


def channel(schema: str, topic: str = EVENTS) -> str:
    """The name of the notification channel: one for each topic and schema of a database."""
    whole = f"persist_{topic}_{schema}"
    return whole if len(whole) <= 63 else f"{whole[:46]}_{sha256(whole.encode()).hexdigest()[:16]}"


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


# LISTEN on a connection of each schema's readers would use up the server's connections.

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
