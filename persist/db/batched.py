"""Transactions whose statements go to a server together: it is waited for where a result is read, and at the end."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection

from persist.db.hot import Hot
from persist.db.work import Work


class Batch(Protocol):
    """A transaction of a driver connection, from BEGIN to `end`. What a statement did wrong may be raised by a later one."""

    def wait(self) -> None:
        """Until everything that was sent is answered."""

    def end(self, *, commit: bool) -> None:
        """Commit or roll back; afterwards the connection is as it was before."""


class BatchedWork(Work):
    """A transaction of verbs that run hot statements only. Where the database has nothing to batch it is like any other."""

    _batch: Batch | None = None

    def _start(self, connection: Connection, cancelled: Callable[[], bool] | None) -> Any:
        self._batch = None if self.runtime.log is not None else self.runtime.dialect.batch(connection, write=self.writable)
        return super()._start(connection, cancelled) if self._batch is None else connection.connection.driver_connection

    def _end(self, connection: Connection, *, commit: bool) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            super()._end(connection, commit=commit)
        else:
            batch.end(commit=commit)

    def run(self, hot: Hot, **values: Any) -> int:
        if self._batch is None or self.journal is not None:
            return super().run(hot, **values)
        self._wrote = True
        compiled = self.runtime.hot[hot]
        cursor = self._driver.execute(compiled.sql, compiled.args(values))
        self._batch.wait()
        count: int = cursor.rowcount
        return count

    def run_many(self, hot: Hot, values: Sequence[Mapping[str, Any]]) -> None:
        if self._batch is None or self.journal is not None:
            super().run_many(hot, values)
            return
        self._wrote = self._wrote or bool(values)
        compiled = self.runtime.hot[hot]
        for row in values:
            self._driver.execute(compiled.sql, compiled.args(row))
