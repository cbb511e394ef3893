"""The COMMIT of a snapshot is sent and not awaited: the next user of the connection reads the answer, which is there by then.

A snapshot has nothing to lose, and to wait for its end costs as much as a small query.
"""

from typing import Any
from weakref import WeakSet


class DeferredCommits:
    """The driver connections that were left so. Safe for threads, as a connection is with one of them at a time."""

    def __init__(self, psycopg: Any) -> None:
        self._psycopg = psycopg
        self._sent: WeakSet[Any] = WeakSet()

    def __contains__(self, driver: Any) -> bool:
        return driver in self._sent

    def send(self, driver: Any) -> None:
        """End its transaction, if there is one."""
        if driver.pgconn.transaction_status == self._psycopg.pq.TransactionStatus.INTRANS:
            driver.pgconn.send_query(b"COMMIT")
            driver.pgconn.flush()
            self._sent.add(driver)

    def answered(self, driver: Any) -> bool:
        """Whether `settle` would not have to wait; psycopg.Error where it is lost."""
        if driver in self._sent:
            driver.pgconn.consume_input()
            return not driver.pgconn.is_busy()
        return True

    def settle(self, driver: Any) -> None:
        """Before anything else is done with the connection; psycopg.Error where it is lost."""
        if driver not in self._sent:
            return
        self._sent.discard(driver)
        pgconn = driver.pgconn
        pgconn.consume_input()
        if pgconn.is_busy():
            driver.wait(self._psycopg.generators.fetch_many(pgconn))  # in its way, which lets other threads go on
        else:
            while pgconn.get_result() is not None:
                pass
