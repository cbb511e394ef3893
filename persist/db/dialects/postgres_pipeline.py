"""A transaction in pipeline mode: one round trip for BEGIN and all that follows until a result is read, one for the rest."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any


class Pipelined:
    """See persist.db.batched.Batch."""

    def __init__(self, psycopg: Any, driver: Any, *begin: str) -> None:
        self._psycopg, self._driver = psycopg, driver
        driver.autocommit = True  # the driver would send a BEGIN of its own, and wait for its answer
        self._stack = ExitStack()
        self._pipeline = self._stack.enter_context(driver.pipeline())
        self._send(begin)

    def wait(self) -> None:
        """Until everything that was sent is answered."""
        self._pipeline.sync()

    def end(self, *, commit: bool) -> None:
        """Commit or roll back; afterwards the connection is as it was before."""
        try:
            if commit:
                self._send(["COMMIT"])
                self._stack.close()
        finally:
            self._leave()

    def _send(self, statements: Sequence[str]) -> None:
        for statement in statements:
            self._driver.execute(statement)

    def _leave(self) -> None:
        driver = self._driver
        with suppress(self._psycopg.Error):  # it was raised before, or the transaction is rolled back anyway
            self._stack.close()
        if driver.closed:
            return
        if driver.info.transaction_status != self._psycopg.pq.TransactionStatus.IDLE:
            driver.rollback()
        driver.autocommit = False
