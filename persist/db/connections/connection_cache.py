"""A cache of open connections, so that the next transaction of a store need not check one out of the pool.

A checkout costs several times as much as an empty transaction; on a server it also takes a round trip to test the connection
(pre-ping). A connection that was used a moment ago needs no test. Older ones are returned to the pool, which tests them.
"""

import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

Lent = tuple[Connection, Any]
"""A connection that a transaction has, and the driver's connection below it."""


class ConnectionCache:
    """Holds at most `maximum` connections, each for at most `seconds`. `return_to_pool` returns one to its pool.

    Thread-safe, since list.append and list.pop are atomic.
    """

    def __init__(self, maximum: int, seconds: float, return_to_pool: Callable[[Connection], None]) -> None:
        self._maximum, self._seconds, self._return_to_pool = maximum, seconds, return_to_pool
        self._connections: list[tuple[float, Connection, Any]] = []

    def take(self) -> Lent | None:
        """Remove and return the most recently used connection; None if none is fresh. Stale ones are returned to their pool."""
        while True:
            try:
                since, connection, driver = self._connections.pop()
            except IndexError:
                return None
            if time.monotonic() - since < self._seconds:
                return connection, driver
            self._return_to_pool(connection)

    def take_if(self, ready: Callable[[Any], bool]) -> Lent | None:
        """Remove and return the most recently used connection if it is fresh and `ready`; else leave it and return None."""
        try:
            since, connection, driver = self._connections.pop()
        except IndexError:
            return None
        if time.monotonic() - since < self._seconds and ready(driver):
            return connection, driver
        self._connections.append((since, connection, driver))
        return None

    @property
    def has_room(self) -> bool:
        """Whether `put` would keep another connection."""
        return len(self._connections) < self._maximum

    @property
    def cached(self) -> list[Any]:
        """The driver's connections that wait for the next transaction."""
        return [driver for _, _, driver in self._connections]

    def put(self, connection: Connection, driver: Any) -> None:
        """Keep a connection for the next transaction, or return it to its pool if the cache is full."""
        if len(self._connections) < self._maximum:
            self._connections.append((time.monotonic(), connection, driver))
        else:
            self._return_to_pool(connection)

    def close(self) -> None:
        """Return all connections to their pool."""
        while self._connections:
            self._return_to_pool(self._connections.pop()[1])
