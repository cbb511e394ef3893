"""Connections between two transactions of a store, kept ready for the next one.

The pool's checkout costs several times what an empty transaction does, and on a server a round trip to see whether the
connection still lives; one that was used a moment ago does. Older ones go back to the pool, which looks.
"""

import time
from collections.abc import Callable

from sqlalchemy import Connection


class IdleConnections:
    """At most so many connections, each for so many seconds. Safe for threads: a list's append and pop are atomic."""

    def __init__(self, most: int, seconds: float, give_back: Callable[[Connection], None]) -> None:
        self._most, self._seconds, self._give_back = most, seconds, give_back
        self._kept: list[tuple[float, Connection]] = []

    def take(self) -> Connection | None:
        """The one that was used last, if it is fresh."""
        while True:
            try:
                since, connection = self._kept.pop()
            except IndexError:
                return None
            if time.monotonic() - since < self._seconds:
                return connection
            self._give_back(connection)

    def take_if(self, ready: Callable[[Connection], bool]) -> Connection | None:
        """The one that was used last, if it is fresh and ready; else it stays where it is."""
        try:
            since, connection = self._kept.pop()
        except IndexError:
            return None
        if time.monotonic() - since < self._seconds and ready(connection):
            return connection
        self._kept.append((since, connection))
        return None

    @property
    def has_room(self) -> bool:
        """Whether one more would be kept."""
        return len(self._kept) < self._most

    def keep(self, connection: Connection) -> None:
        """Keep it for the next transaction, or give it back to its pool."""
        if len(self._kept) < self._most:
            self._kept.append((time.monotonic(), connection))
        else:
            self._give_back(connection)

    def close(self) -> None:
        """Give all back to their pools."""
        while self._kept:
            self._give_back(self._kept.pop()[1])
