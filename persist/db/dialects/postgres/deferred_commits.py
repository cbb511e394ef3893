"""Sends the COMMIT of a snapshot without waiting for the answer; the next user of the connection reads it.

A snapshot has no changes to lose, and waiting for its COMMIT costs as much as a small query.
"""

import selectors
import time
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
