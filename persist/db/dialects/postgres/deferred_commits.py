"""Sends the COMMIT of a snapshot without waiting for the answer; the next user of the connection reads it.

A snapshot has no changes to lose, and waiting for its COMMIT costs as much as a small query.
"""

from typing import Any
from weakref import WeakSet


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
        """Whether `settle` would return without waiting; psycopg.Error if the connection is lost."""
        if driver in self._sent:
            driver.pgconn.consume_input()
            return not driver.pgconn.is_busy()
        return True

    def settle(self, driver: Any) -> None:
        """Read the answer to the COMMIT, before the connection is used again; psycopg.Error if the connection is lost."""
        if driver not in self._sent:
            return
        self._sent.discard(driver)
        pgconn = driver.pgconn
        pgconn.consume_input()
        if pgconn.is_busy():
            driver.wait(self._psycopg.generators.fetch_many(pgconn))  # the driver's own wait, which releases the GIL
        else:
            while pgconn.get_result() is not None:
                pass
