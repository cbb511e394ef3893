"""Waiting for new events on Postgres, with LISTEN on a separate connection.

A notification only wakes the reader, which then queries the event log. The reader also polls slowly, since a connection can be
lost without an error.
"""

import contextlib
import logging
import selectors
import socket
import time
from collections.abc import Mapping
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any

from sqlalchemy import Text, func, literal

from persist.db.dialects.event_log import EVENTS, Notify
from persist.db.dialects.wakeups import Polling

log = logging.getLogger("persist")

_BACKSTOP = 2.0
"""Seconds after which a reader queries the log even without a notification."""

_RETRY, _SELDOM = 1.0, 30.0
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
