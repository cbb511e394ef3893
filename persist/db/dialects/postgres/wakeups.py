"""Waiting for the notices of other transactions on Postgres: LISTEN on a connection of its own.

A notice only says that there is more; what, is read from the log. A slow look of the reader's stands behind it, since a
connection can be lost without a word.
"""

import contextlib
import logging
import selectors
import socket
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import Text, bindparam, func, literal, select

from persist.db.dialects.wakeups import Polling
from persist.db.statements.prepared import Statement

log = logging.getLogger("persist")

_BACKSTOP = 2.0
"""Seconds after which a reader looks, notice or not."""

_RETRY, _SELDOM = 1.0, 30.0
"""Seconds until it tries again to listen: at first, and after many failures."""

_PATIENCE = 5
"""Seconds for connecting."""


def channel(schema: str) -> str:
    """The name that readers listen to: one for each schema of a database."""
    return f"persist_events_{schema}"[:63]


@lru_cache(maxsize=16)
def notice(schema: str) -> Statement:
    """Wakes the readers when the transaction commits."""
    return Statement(select(func.pg_notify(literal(channel(schema), Text()), bindparam("payload", type_=Text()))))


class Notices(Polling):
    """Listens; while it cannot, it looks again and again, and now and then tries to listen."""

    def __init__(self, parameters: Mapping[str, Any], schema: str) -> None:
        super().__init__()
        self._parameters, self._channel = {**parameters, "connect_timeout": _PATIENCE}, channel(schema)
        self._connection: Any = None
        self._selector: selectors.BaseSelector | None = None
        self._poke: socket.socket | None = None
        self._poked: socket.socket | None = None
        self._retry, self._retry_at = _RETRY, 0.0

    def wait(self, timeout: float) -> None:
        if self._selector is None:
            if time.monotonic() < self._retry_at:
                super().wait(timeout)
                return
            try:
                self._listen()  # what came before is not told: look once more
            except Exception as error:
                self._lost(error)
            return
        try:
            self._selector.select(min(timeout, _BACKSTOP))
            self._connection.pgconn.consume_input()
            while self._connection.pgconn.notifies():
                pass
        except Exception as error:
            self._lost(error)

    def tell(self) -> None:
        """The server tells those who listen of our own commits, too."""
        if self._selector is None:
            super().tell()

    def stop(self) -> None:
        super().stop()
        poke = self._poke
        if poke is not None:
            with contextlib.suppress(OSError):  # closed at this moment: nobody waits
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
        if self.stopped:  # another thread was first: the poke was not there yet
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
                with contextlib.suppress(Exception):  # it may be gone already
                    one.close()
