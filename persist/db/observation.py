"""What a store says of its work: counters, each executed statement, and the interface to who traces."""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

# Each number is changed under a lock: one that its writer holds anyway, as a pinned connection's, or that of `Counters`.

Outcome = Literal["committed", "rolled_back", "unknown", "read"]
"""How a transaction ended. `unknown`: COMMIT failed, and may have been carried out. `read`: a snapshot, which writes nothing."""


class ConnectionTally:
    """What one pinned connection wrote. Changed by the thread that has the connection's mutex.

    commits   transactions and single statements that committed
    groups    commits of groups, which several writers may join
    grouped   the tasks in all groups
    largest   the tasks in the largest group
    waits     how often another thread held the connection, or the store's lock
    waited    the seconds of all waits
    """

    __slots__ = ("commits", "grouped", "groups", "largest", "waited", "waits")

    def __init__(self) -> None:
        self.commits = self.groups = self.grouped = self.largest = self.waits = 0
        self.waited = 0.0

    def group(self, size: int) -> None:
        self.groups += 1
        self.grouped += size
        self.largest = max(self.largest, size)


class RecorderTally:
    """What one recorder made durable. Changed under the recorder's lock.

    chunks    chunks whose call returned, whether the save policy wrote them at once or not
    bytes     bytes of UTF-8 of the text that these added to growing parts
    folds     parts whose delta rows were moved into the part
    """

    __slots__ = ("bytes", "chunks", "folds")

    def __init__(self) -> None:
        self.chunks = self.bytes = self.folds = 0

    def add(self, other: "RecorderTally") -> None:
        self.chunks += other.chunks
        self.bytes += other.bytes
        self.folds += other.folds


class Counters:
    """The numbers of one store since it was opened."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.waited = self.committing = self.lag = 0.0
        self.looks = self.leases_lost = self.commits = 0
        self.snapshots = 0
        """The number of snapshots that began, counted under the store's lock."""
        self._connections: list[ConnectionTally] = []
        self._recorders: set[RecorderTally] = set()
        self._over: deque[RecorderTally] = deque()
        """Numbers of recorders that ended since a recorder last began or the metrics were last read."""
        self._ended = RecorderTally()
        self._recorders_ended = 0

    def transaction_ended(self, outcome: Outcome, waited: float, committing: float) -> None:
        """Count a transaction that writes: how long it waited for its beginning, and how long its COMMIT took, in seconds."""
        if outcome == "committed":
            return self.committed(waited, committing)
        with self._mutex:
            self.outcomes[outcome] += 1
            self.waited += waited
            self.committing += committing

    def committed(self, waited: float, committing: float) -> None:
        with self._mutex:
            self.commits += 1
            self.waited += waited
            self.committing += committing

    def retried(self, cause: str) -> None:
        with self._mutex:
            self.retries[cause] += 1

    def lease_lost(self) -> None:
        with self._mutex:
            self.leases_lost += 1

    def followed(self, lag: float) -> None:
        """Count a look of a follower, so many seconds after it was told of a change."""
        with self._mutex:
            self.looks += 1
            self.lag += lag

    def connection(self) -> ConnectionTally:
        tally = ConnectionTally()
        with self._mutex:
            self._connections.append(tally)
        return tally

    def recorder_began(self, tally: RecorderTally) -> None:
        """Count a recorder that has begun: its session was found, and nothing refused it."""
        with self._mutex:
            self._settle()
            self._recorders.add(tally)

    def recorder_withdrawn(self, tally: RecorderTally) -> None:
        """Count a recorder no more whose caller was cancelled while it began."""
        with self._mutex:
            self._recorders.discard(tally)

    def recorder_ended(self, tally: RecorderTally) -> None:
        """Keep the numbers of a recorder that began and ended, once. Takes no lock: garbage collection may run this under it."""
        self._over.append(tally)

    def _settle(self) -> None:
        while self._over:
            over = self._over.popleft()
            if over in self._recorders:
                self._recorders.discard(over)
                self._ended.add(over)
                self._recorders_ended += 1

    def connections(self) -> ConnectionTally:
        total = ConnectionTally()
        with self._mutex:
            for tally in self._connections:
                total.commits += tally.commits
                total.groups += tally.groups
                total.grouped += tally.grouped
                total.largest = max(total.largest, tally.largest)
                total.waits += tally.waits
                total.waited += tally.waited
        return total

    def recorders(self) -> tuple[int, int, RecorderTally]:
        """Return the numbers of running and of ended recorders, and the sum over all."""
        total = RecorderTally()
        with self._mutex:
            self._settle()
            total.add(self._ended)
            for tally in self._recorders:
                total.add(tally)
            return len(self._recorders), self._recorders_ended, total


# A store without a tracer has None in its place, and asks for it once per transaction, verb and turn, never per row.


class VerbTrace(Protocol):
    """One call of a verb."""

    def ended(self, result: object, error: BaseException | None) -> None:
        """The verb returned or raised. Called on the thread on which the verb began."""


class StatementTrace(Protocol):
    """Whatever is told of executed statements."""

    def statement(self, sql: str, seconds: float, rows: int, sent: int, error: BaseException | None) -> None:
        """A statement was executed.

        seconds   how long it took
        rows      how many rows it changed; -1 if the driver does not say
        sent      the bytes of text and binary values that were sent with it
        """


class TransactionTrace(StatementTrace, Protocol):
    """One transaction, or a caller's transaction that was joined."""

    def within(self, context: Any, retries: int) -> None:
        """Take the context of the call, where the transaction begins on another thread, and the number of earlier attempts."""

    def began(self, waited: float) -> None:
        """The transaction began after so many seconds of waiting for the lock and a connection."""

    def verb(self, module: str, name: str) -> VerbTrace:
        """A verb begins: the module and the qualified name of its function."""

    def ended(self, outcome: Outcome, committing: float, error: BaseException | None) -> None:
        """The transaction ended, or could not begin."""


class TurnTrace(Protocol):
    """One turn of a recorder."""

    def ended(self, tally: RecorderTally, error: BaseException | None) -> None:
        """The recorder has ended. A second call does nothing."""


class RecorderTrace(StatementTrace, Protocol):
    """A transaction of recorders, with the tasks of one turn or of several."""

    def ended(self, error: BaseException | None) -> None:
        """The transaction ended."""


class Tracer(Protocol):
    """Traces one store."""

    @property
    def statements(self) -> bool:
        """Whether the recorders' statements are traced, too. A row of growing text costs less than telling of it."""

    def context(self) -> Any:
        """The caller's context."""

    def transaction(self, *, writable: bool, joined: bool) -> TransactionTrace | None:
        """A transaction is made, in the caller's context. None: it is not to be traced."""

    def turn(self, session_id: str, options: Mapping[str, Any]) -> TurnTrace:
        """A recorder is made."""

    def recorders(self, what: str, turns: Sequence[TurnTrace]) -> RecorderTrace:
        """Recorders write together, more than rows of growing text. `what`: the call that asked for it first."""


# A driver connection is wrapped only while somebody wants to know: what nobody watches costs nothing.

log = logging.getLogger("persist.statements")
"""Level DEBUG: a record per statement, with its values if the settings ask for them."""


class StatementWatch:
    """Reports statements of a transaction, or of a pinned connection, to the logger and a trace."""

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
        """Return SQLAlchemy's `execute`, wrapped so that the watch is told of each statement."""

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
        return getattr(self._watched, "connection", self._watched)

    def execute(self, sql: str, args: Any = ()) -> Any:
        return self._timed(self._watched.execute, sql, args)

    def executemany(self, sql: str, rows: Sequence[Any]) -> Any:
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
        answer = self._watched.queue(sql, args)
        self._sent.append((sql, args, answer))
        return answer

    def flush(self, *, commit: bool = False) -> None:
        """Send the statements that wait. Each is timed as the whole round trip."""
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
        self._sent.clear()
        self._watched.drop()

    def start(self) -> Any:
        """Send what waits, and return the driver's own connection."""
        if self._sent:
            self.flush()
        return self._watched.start()
