"""Each executed statement, for the logger `persist.statements` and for who traces: what it was, how long it took, how many rows.

A driver connection is wrapped only while somebody wants to know: what nobody watches costs nothing.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from persist.db.observation.tracing import StatementTrace

log = logging.getLogger("persist.statements")
"""Level DEBUG: one record for each statement, without its values unless the settings ask for them."""


class StatementWatch:
    """Tells the logger and a trace of the statements of one transaction, or of one pinned connection.

    verb    the verb or call that executes statements now
    trace   the trace of the transaction, if there is one
    """

    __slots__ = ("trace", "values", "verb")

    def __init__(self, verb: str, trace: StatementTrace | None = None, *, values: bool = False) -> None:
        self.verb, self.trace, self.values = verb, trace, values

    def ran(self, sql: str, started: float, rows: int, args: Any, error: BaseException | None = None) -> None:
        """A statement that began at `started` (time.perf_counter()) has ended."""
        seconds = time.perf_counter() - started
        if log.isEnabledFor(logging.DEBUG):
            failed = "" if error is None else f", {type(error).__name__}"
            number = "rows unknown" if rows < 0 else f"{rows} row" if rows == 1 else f"{rows} rows"
            values = f" {args!r}" if self.values else ""
            log.debug(
                "%.3f ms, %s%s, %s: %s%s",
                1000 * seconds,
                number,
                failed,
                self.verb,
                " ".join(sql.split()),
                values,
                extra={"sql": sql, "seconds": seconds, "rows": rows, "verb": self.verb},
            )
        if self.trace is not None:
            self.trace.statement(sql, seconds, rows, _size(args), error)

    def core(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Return the `execute` of SQLAlchemy's connection that also tells of its statement."""

        def watched(statement: Any, values: Any, *, execution_options: Any) -> Any:
            started = time.perf_counter()
            try:
                result = execute(statement, values, execution_options=execution_options)
            except BaseException as error:
                self.ran(getattr(error, "statement", None) or type(statement).__name__, started, -1, values, error)
                raise
            self.ran(result.context.statement, started, result.rowcount, values)
            return result

        return watched


def _size(args: Any) -> int:
    """The length of all text and binary values, at any depth of lists; characters count as bytes."""
    if isinstance(args, str | bytes):
        return len(args)
    if isinstance(args, list | tuple):
        return sum(map(_size, args))
    return sum(map(_size, args.values())) if isinstance(args, dict) else 0


is_logged = log.isEnabledFor
"""Whether statements are logged now: `is_logged(logging.DEBUG)`, the logger's own method, since each transaction asks."""


class WatchedDriver:
    """A driver connection that tells of each statement. Everything else is the connection's own."""

    def __init__(self, driver: Any, watch: StatementWatch) -> None:
        self._watched, self._watch = driver, watch
        self._sent: list[tuple[str, Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watched, name)

    @property
    def connection(self) -> Any:
        """The driver's own connection: what is set on a wrapper would not reach it."""
        return getattr(self._watched, "connection", self._watched)

    def execute(self, sql: str, args: Any = ()) -> Any:
        """Execute one statement."""
        return self._timed(self._watched.execute, sql, args)

    def executemany(self, sql: str, rows: Sequence[Any]) -> Any:
        """Execute one statement for many rows."""
        return self._timed(self._watched.executemany, sql, rows)

    def _timed(self, execute: Callable[..., Any], sql: str, args: Any) -> Any:
        started = time.perf_counter()
        try:
            cursor = execute(sql, args)
        except BaseException as error:
            self._watch.ran(sql, started, -1, args, error)
            raise
        # where rows are still to be fetched, their number is not known
        self._watch.ran(sql, started, -1 if getattr(cursor, "description", None) else cursor.rowcount, args)
        return cursor

    def queue(self, sql: str, args: Any = ()) -> Any:
        """Add a statement to those that `flush` sends."""
        answer = self._watched.queue(sql, args)
        self._sent.append((sql, args, answer))
        return answer

    def flush(self, *, commit: bool = False) -> None:
        """Send the statements that wait. The time of each is that of the round trip that they share."""
        sent, self._sent = self._sent, []
        started = time.perf_counter()
        try:
            self._watched.flush(commit=commit)
        except BaseException as error:
            for sql, args, _ in sent:
                self._watch.ran(sql, started, -1, args, error)
            raise
        for sql, args, answer in sent:
            self._watch.ran(sql, started, answer.rowcount, args)

    def drop(self) -> None:
        """Forget the statements that wait."""
        self._sent.clear()
        self._watched.drop()

    def start(self) -> Any:
        """Send what waits, and return the driver's own connection."""
        if self._sent:
            self.flush()
        return self._watched.start()
