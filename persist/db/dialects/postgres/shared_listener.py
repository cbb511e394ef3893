"""One connection that listens for the readers of many schemas: LISTEN on a connection each would use up the server's."""

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from persist.db.concurrency.fork_count import PROCESS
from persist.db.dialects.wakeups import Polling

log = logging.getLogger("persist")

_BACKSTOP = 2.0
"""Seconds after which a reader queries the log even without a notification."""
_RETRY, _SELDOM = 1.0, 30.0
_PATIENCE = 5
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
        """Listen on the reader's channel."""
        with self._lock:
            self._readers.add(reader)
            if self._thread is None and not self._closed:
                self._poke, poked = socket.socketpair()
                self._thread = threading.Thread(target=self._run, args=(poked,), name="persist-listener", daemon=True)
                self._thread.start()
        self._look()

    def leave(self, reader: Heard) -> None:
        """Listen for this reader no more."""
        with self._lock:
            self._readers.discard(reader)
        self._look()

    def close(self) -> None:
        """End the thread and close the connection. Readers that still wait poll from now on."""
        with self._lock:
            self._closed, thread = True, self._thread
        self._look()
        if thread is not None and self._forks == PROCESS.forks:
            thread.join()

    def _look(self) -> None:
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
