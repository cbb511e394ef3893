"""Executes statements in as few round trips as possible, in less time than psycopg's own pipeline, and with their COMMIT."""

import re
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import psycopg
from psycopg import adapt, errors, pq, waiting

_Command = tuple[bytes, Sequence[Any], "Answer | None"]
_BINARY = frozenset((bytes, bytearray, memoryview))
_FORMATS = (adapt.PyFormat.TEXT, adapt.PyFormat.BINARY)
_USES_UNPREPARED = 2
"""A statement is prepared when it is executed once more than that on one connection."""
_LONG = 64
"""Items of a list from which on its statement is planned anew: a plan for any length compares each row with each item."""
_MAX_PREPARED = 400
"""Statements that are prepared on one connection; further ones are sent with their text each time."""
_MAX_COUNTED = 2000
_MAX_LEFT_OUT = 10_000
_LOST_PREPARED = frozenset(("26000", "0A000"))
"""SQLSTATEs for a prepared statement that the server no longer has, or whose result changed its type."""

_BEGIN = b"BEGIN"
_BEGIN_READ_COMMITTED = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_SNAPSHOT = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_COMMIT = b"COMMIT"


class Answer:
    """The server's answer to one statement, once it has arrived: its rows, or the number of changed rows."""

    __slots__ = ("_loader", "result")

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.result: Any = None
        """The result of libpq; None until it has arrived."""

    @property
    def rowcount(self) -> int:
        """The number of rows that were changed or selected; -1 for a statement without such a number."""
        number = self.result.command_tuples
        return -1 if number is None else int(number)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._load(self.result.ntuples)

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._load(1)[0] if self.result.ntuples else None

    def reloaded(self, connection: "PipelinedConnection") -> list[tuple[Any, ...]]:
        """All rows, as the connection's adapters are now; the statement is not executed again."""
        self._loader = adapt.Transformer(connection.driver)
        return self.fetchall()

    def _load(self, rows: int) -> list[tuple[Any, ...]]:
        self._loader.set_pgresult(self.result)
        loaded: list[tuple[Any, ...]] = self._loader.load_rows(0, rows, tuple)
        return loaded


class Total(NamedTuple):
    """The answer to a statement that was executed for many rows of parameters."""

    rowcount: int


class PreparedNames:
    """The statements prepared on one server connection; none behind a pooler, which may run them on another."""

    __slots__ = ("_left_out", "_numbers", "_uses", "enabled", "names", "one_server", "settings")

    def __init__(self, enabled: bool, *, one_server: bool = True, settings: bytes | None = None) -> None:
        self.enabled, self.one_server, self.settings = enabled, one_server, settings
        self._numbers = count()
        self.names: dict[bytes, bytes] = {}
        """The names of the statements that the server has prepared."""
        self._uses: dict[bytes, int] = {}
        self._left_out = 0

    def new_name(self, sql: bytes) -> bytes | None:
        """The name under which to prepare the statement now; None if it is not used often enough."""
        if not self.enabled:
            return None
        if len(self.names) >= _MAX_PREPARED:
            self._left_out += 1
            return None
        if len(self._uses) >= _MAX_COUNTED:  # a connection of many schemas sees the same statement with each of their names
            self._uses.clear()
        uses = self._uses[sql] = self._uses.get(sql, 0) + 1
        return b"persist_%d" % next(self._numbers) if uses > _USES_UNPREPARED else None

    @property
    def worn(self) -> bool:
        """Whether so many executions found no room that it is time to prepare what is used now."""
        return self._left_out >= _MAX_LEFT_OUT

    def forget(self) -> None:
        """Prepare every statement again: the server may have lost some."""
        self.names.clear()
        self._uses.clear()
        self._left_out = 0


class PipelinedConnection:
    """A psycopg connection (`driver`) whose statements run through libpq, in one thread. Other users call `start` before."""

    __slots__ = ("_begin", "_last_settings", "_loader", "_names", "_queue", "_renew", "_settings", "committed", "driver")

    def __init__(self, driver: Any, names: PreparedNames) -> None:
        self.driver, self._names = driver, names
        self._loader = adapt.Transformer(driver)
        self._begin: bytes | None = None
        self._settings: bytes | None = None
        self._last_settings: bytes | None = None
        self._renew: Callable[[], tuple[Any, PreparedNames]] | None = None
        self._queue: list[_Command] = []
        self.committed = False
        """Whether `flush` has committed the transaction, whose end has not been told yet."""

    def begin(
        self, *, write: bool, settings: bytes | None = None, renew: Callable[[], tuple[Any, PreparedNames]] | None = None
    ) -> None:
        """Begin with the next statement: READ COMMITTED to write, else a snapshot. `renew`: a connection for a lost one."""
        self._begin, self._renew = _BEGIN if write else _SNAPSHOT, renew
        self._settings = self._last_settings = settings
        self.committed = False

    @property
    def adapters(self) -> Any:
        """The adapters of the connection. Later results are loaded as they are changed now."""
        self._loader = adapt.Transformer(self.driver)  # one that has loaded results keeps what it found for their types
        return self.driver.adapters

    @property
    def begins(self) -> bool:
        """Whether the transaction has not been sent yet, because it has executed nothing."""
        return self._begin is not None

    @property
    def is_lost(self) -> bool:
        """Whether the connection is closed, which leaves the outcome of a sent commit unknown."""
        return bool(self.driver.closed)

    def start(self) -> Any:
        """Send what waits to be sent, and return the psycopg connection."""
        if self._begin is not None or self._queue:
            self.flush()
        return self.driver

    def execute(self, sql: str, args: Sequence[Any] = ()) -> Answer:
        answer = self.queue(sql, args)
        self.flush()
        return answer

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> "Total":
        """Execute one statement once for each row of parameters; the sum of the numbers of rows changed."""
        answers = [self.queue(sql, args) for args in rows]
        self.flush()
        return Total(sum(answer.rowcount for answer in answers))

    def queue(self, sql: str, args: Sequence[Any] = ()) -> Answer:
        """Add a statement to those that `flush` sends; the answer has arrived after that."""
        assert not self.committed, "a verb sent its last batch, which wrote, and then another statement"
        answer = Answer(self._loader)
        self._queue.append((_numbered(sql), args, answer))
        return answer

    def begin_again(self) -> None:
        """Begin a transaction for writing with the next statement, after one that was committed."""
        self._begin, self._settings, self.committed = _BEGIN, self._last_settings, False

    def flush(self, *, commit: bool = False) -> None:
        """Execute the statements that wait, in one round trip, with a COMMIT if `commit`. Raises the first statement's error."""
        queued, self._queue = self._queue, []
        begin, settings, self._begin, self._settings = self._begin, self._settings, None, None
        opening: list[_Command] = [] if settings is None or begin is None else [(settings, (), None)]
        spelled = not (commit and self._names.one_server and self._names.settings is None)
        if begin is not None and self._names.settings is not None:
            begin = _BEGIN_READ_COMMITTED if begin == _BEGIN else begin
            opening.insert(0, (self._names.settings, (), None))
        if begin is not None and spelled:
            opening.insert(0, (begin, (), None))
        closing: list[_Command] = [(_COMMIT, (), None)] if commit and (begin is None or spelled) else []
        commands = [*opening, *queued, *closing]
        try:
            self._run(commands)
        except psycopg.OperationalError:
            # An idle connection may be lost without notice. Nothing of a transaction was done before its first answer.
            if begin is None or commit or self._renew is None or not self.driver.closed:
                raise
            self.driver, self._names = self._renew()
            self._loader = adapt.Transformer(self.driver)
            self._run(commands)
        self.committed = commit

    def drop(self) -> None:
        self._queue.clear()

    def commit(self) -> None:
        if self._begin is None and not self.committed:
            self.driver.commit()
        self._begin, self.committed = None, False

    def rollback(self) -> None:
        """Roll back what was sent, if anything was, and drop what was not."""
        self._queue.clear()
        if self._begin is None and not self.committed:
            self.driver.rollback()
        self._begin, self.committed = None, False

    def _run(self, commands: Sequence[_Command]) -> None:
        """Send all commands, then read their results. The connection is in pipeline mode only in between."""
        pgconn = self.driver.pgconn
        pgconn.enter_pipeline_mode()
        try:
            receivers = self._send(pgconn, commands)
            pgconn.pipeline_sync()
            results = self.driver.wait(self._receive(pgconn))
        except BaseException:
            if pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                pgconn.finish()  # results that are still to come would be taken for those of the next statements
            raise
        finally:
            if pgconn.status == pq.ConnStatus.OK:
                pgconn.exit_pipeline_mode()
        # a commit that fails at the sync, such as one of deferred constraints, has a result that belongs to no command
        for result, (sql, name, answer) in zip(results, [*receivers, (b"", None, None)], strict=False):
            if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
                raise self._error(result)
            if name is not None:
                self._names.names[sql] = name
            elif answer is not None:
                answer.result = result

    def _send(self, pgconn: Any, commands: Sequence[_Command]) -> list[tuple[bytes, bytes | None, Answer | None]]:
        """Queue the commands; for each result to come, the statement, the name if it tells of a preparation, and the answer."""
        receivers: list[tuple[bytes, bytes | None, Answer | None]] = []
        names, new = self._names, dict[bytes, bytes | None]()
        for sql, args, answer in commands:
            formats = [1 if type(value) in _BINARY else 0 for value in args] if args else None
            values = self._loader.dump_sequence(args, [_FORMATS[binary] for binary in formats]) if formats else None
            long = any(type(value) is list and len(value) >= _LONG for value in args)
            name = None if long else names.names.get(sql) or new.get(sql)
            if name is None and not long and sql not in new:
                name = new[sql] = names.new_name(sql)
                if name is not None:
                    pgconn.send_prepare(name, sql)
                    receivers.append((sql, name, None))
            if name is None:
                pgconn.send_query_params(sql, values, param_formats=formats)
            else:
                pgconn.send_query_prepared(name, values, param_formats=formats)
            receivers.append((sql, None, answer))
        return receivers

    def _receive(self, pgconn: Any) -> Generator[Any, Any, list[Any]]:
        """Write what is queued and read until the answer to the sync, for the wait of psycopg."""
        wait, ready = waiting.Wait, waiting.Ready
        while pgconn.flush():
            if (yield wait.RW) & ready.R:  # the server may write before it reads on
                pgconn.consume_input()
        results: list[Any] = []
        synced, lost = pq.ExecStatus.PIPELINE_SYNC, pq.ConnStatus.BAD
        while True:
            while pgconn.is_busy():
                yield wait.R
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:  # between the results of two commands
                if pgconn.status == lost:
                    raise psycopg.OperationalError("the connection is lost")
            elif result.status == synced:
                return results
            else:
                results.append(result)

    def _error(self, result: Any) -> Exception:
        error: Exception = errors.error_from_result(result)
        if getattr(error, "sqlstate", None) in _LOST_PREPARED:
            self._names.forget()
        return error


_PARAMETER = re.compile("%[s%]")


@lru_cache(maxsize=4096)
def _numbered(sql: str) -> bytes:
    numbers = count(1)
    return _PARAMETER.sub(lambda found: "%" if found[0] == "%%" else f"${next(numbers)}", sql).encode()
