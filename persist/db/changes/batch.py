"""Statements of a verb that travel together: on Postgres in one round trip, so none may need the result of another in Python."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from sqlalchemy import Executable, Select, case, func, literal, select

from persist.db.changes.journal import Journal, ReturningStatement, twin_of
from persist.db.statements.prepared import CompiledStatement, Driver, Row, Statement, StatementCache, note_deletions
from persist.db.unreadable.cells import By
from persist.db.unreadable.excerpts import filled_up
from persist.db.values.arguments import must_exist

R = TypeVar("R")
T = TypeVar("T")
SentStatement = tuple[Executable, Mapping[str, Any]]
_DIVISION_BY_ZERO = "22012"


class RequirementMissed(Exception):  # noqa: N818  # caught by the pinned connection, which asks the task what to raise
    """A batch was rolled back, or is to be, because a row that it requires is missing."""


class Requirement:
    """A row that has to be there, or `absent`, for the rest of a batch. A server finds out itself, by a division by 0."""

    __slots__ = ("absent", "plain", "raising")

    def __init__(self, query: Select[Any], *, absent: bool = False) -> None:
        self.absent, self.plain = absent, Statement(query)
        number: Any = select(func.count()).select_from(query.subquery()).scalar_subquery()
        if absent:
            number = case((number == 0, 1), else_=0)
        self.raising = Statement(select(literal(1) // number))

    def check(self, row: Row | None) -> None:
        """Raise RequirementMissed unless the plain query found what is required."""
        if (row is None) != self.absent:
            raise RequirementMissed


class Pending(Generic[R]):
    """The result of a statement of a batch. `result` can be read once the block of the batch was left."""

    __slots__ = ("result",)
    result: R

    def must_exist(self: "Pending[T | None]", kind: str, id: str) -> T:
        """The result. Raises NotFound if it is None."""
        return must_exist(self.result, kind, id)


class Batch(ABC):
    """The statements of one block. See the module."""

    __slots__ = ()
    one_writer: bool
    """Whether its writer has locked the whole database, so that what a statement found stays true until the transaction ends."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    @abstractmethod
    def lock(self, prepared: Statement, /, **values: Any) -> None:
        """Execute a SELECT … FOR UPDATE whose rows nobody needs; not on SQLite, where a writer has locked the whole database."""

    @abstractmethod
    def require(self, requirement: Requirement, /, **values: Any) -> None:
        """Roll the transaction back if the requirement is not met, with RequirementMissed. For recorders only."""

    @abstractmethod
    def run_required(self, prepared: Statement, requirement: Requirement, /, **values: Any) -> None:
        """Execute an UPDATE that has to change a row; `requirement` is the changed row, for a server."""

    @abstractmethod
    def run_many(self, prepared: Statement, values: Sequence[Mapping[str, Any]]) -> None:
        """Execute an INSERT, UPDATE or DELETE for many rows."""

    @abstractmethod
    def run(self, prepared: Statement, /, **values: Any) -> Pending[int]:
        """Execute an INSERT, UPDATE or DELETE; the number of rows."""

    @abstractmethod
    def returned(self, prepared: Statement, /, **values: Any) -> Pending[Row | None]:
        """Execute an INSERT or UPDATE … RETURNING; the first row that it wrote, or None."""

    @abstractmethod
    def returned_rows(self, prepared: Statement, /, **values: Any) -> Pending[list[Row]]:
        """Execute an INSERT or UPDATE … RETURNING; every row that it wrote, in any order."""

    @abstractmethod
    def rows(self, prepared: Statement, /, **values: Any) -> Pending[list[Row]]:
        """Execute a SELECT; every row."""

    @abstractmethod
    def row(self, prepared: Statement, /, **values: Any) -> Pending[Row | None]:
        """Execute a SELECT; the first row, or None."""


class ImmediateBatch(Batch):
    """Executes each statement when it is added. `runner` is a unit of work or the statements of a pinned connection."""

    __slots__ = ("_runner", "one_writer")

    def __init__(self, runner: Any, *, one_writer: bool) -> None:
        self._runner, self.one_writer = runner, one_writer

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Do nothing: every statement was executed."""

    def lock(self, prepared: Statement, /, **values: Any) -> None:
        if not self.one_writer:
            self._runner.row(prepared, **values)

    def require(self, requirement: Requirement, /, **values: Any) -> None:
        requirement.check(self._runner.row(requirement.plain, **values))

    def run_required(self, prepared: Statement, requirement: Requirement, /, **values: Any) -> None:
        if not self._runner.run(prepared, **values):
            raise RequirementMissed

    def run_many(self, prepared: Statement, values: Sequence[Mapping[str, Any]]) -> None:
        if values:
            self._runner.run_many(prepared, values)

    def run(self, prepared: Statement, /, **values: Any) -> Pending[int]:
        return known(self._runner.run(prepared, **values))

    def returned(self, prepared: Statement, /, **values: Any) -> Pending[Row | None]:
        return known(self._runner.returned(prepared, **values))

    def returned_rows(self, prepared: Statement, /, **values: Any) -> Pending[list[Row]]:
        return known(self._runner.returned_rows(prepared, **values))

    def rows(self, prepared: Statement, /, **values: Any) -> Pending[list[Row]]:
        return known(self._runner.rows(prepared, **values))

    def row(self, prepared: Statement, /, **values: Any) -> Pending[Row | None]:
        return known(self._runner.row(prepared, **values))


def known(result: R) -> Pending[R]:
    """A result that is there already."""
    pending: Pending[R] = Pending()
    pending.result = result
    return pending


class PipelinedBatch(Batch):
    """Sends all statements at the end of the block and then reads all answers.

    driver   has a queue of statements (`queue`, `drop`)
    flush    executes the statements of the queue
    journal  takes what the statements change, where the event log is on
    by       how an unreadable row is handled, by its statement and by whether the statement lists rows
    sent     is called once the answers are there, with whether a row was written
    """

    one_writer = False
    __slots__ = ("_by", "_compiled", "_driver", "_flush", "_journal", "_sent", "_waiting")

    def __init__(
        self,
        driver: Any,
        flush: Callable[[], None],
        compiled: StatementCache,
        journal: Journal | None,
        by: Callable[[Statement, bool], By],
        sent: Callable[[bool, Iterable[SentStatement]], None],
    ) -> None:
        self._driver, self._flush, self._compiled, self._journal = driver, flush, compiled, journal
        self._by, self._sent = by, sent
        self._waiting: list[_SentStatement] = []

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._driver.drop()
            return
        if not self._waiting:
            return
        try:
            self._flush()
        except Exception as failed:
            if getattr(failed, "sqlstate", None) == _DIVISION_BY_ZERO:
                raise RequirementMissed from failed
            note_deletions(failed, self._statements)
            raise
        wrote = False
        for sent in self._waiting:
            if sent.writes and sent.twin is None and sent.shape is len:
                sent.pending.result = sent.answer.rowcount
            else:
                sent.pending.result = self._shaped(sent)
            wrote = wrote or (sent.writes and bool(sent.pending.result))
        self._sent(wrote, self._statements)

    @property
    def _statements(self) -> Iterator[SentStatement]:
        return ((sent.statement.statement, sent.values) for sent in self._waiting if sent.writes)

    def _shaped(self, sent: "_SentStatement") -> Any:
        by = self._by(sent.statement, sent.shape is _all)
        rows = sent.compiled.fetched(sent.answer, self._driver, sent.values, by)
        if sent.twin is not None and self._journal is not None:
            rows, changes = sent.twin.split(rows)
            self._journal.add(changes)
        if type(rows) is not list:
            rows = filled_up(rows, sent.values, lambda more: sent.compiled.all(self._driver, more, by))
        return sent.shape(rows)

    def lock(self, prepared: Statement, /, **values: Any) -> None:
        self._add(prepared, values, _all, writes=False)

    def require(self, requirement: Requirement, /, **values: Any) -> None:
        self._add(requirement.raising, values, _all, writes=False)

    def run_required(self, prepared: Statement, requirement: Requirement, /, **values: Any) -> None:
        self._add(prepared, values, len, writes=True)
        self.require(requirement, **values)

    def run_many(self, prepared: Statement, values: Sequence[Mapping[str, Any]]) -> None:
        for row in values:
            self._add(prepared, row, len, writes=True)

    def run(self, prepared: Statement, /, **values: Any) -> Pending[int]:
        return self._add(prepared, values, len, writes=True)

    def returned(self, prepared: Statement, /, **values: Any) -> Pending[Row | None]:
        return self._add(prepared, values, _first, writes=True)

    def returned_rows(self, prepared: Statement, /, **values: Any) -> Pending[list[Row]]:
        return self._add(prepared, values, _all, writes=True)

    def rows(self, prepared: Statement, /, **values: Any) -> Pending[list[Row]]:
        return self._add(prepared, values, _all, writes=False)

    def row(self, prepared: Statement, /, **values: Any) -> Pending[Row | None]:
        return self._add(prepared, values, _first, writes=False)

    def _add(
        self, prepared: Statement, values: Mapping[str, Any], shape: Callable[[list[Row]], R], *, writes: bool
    ) -> Pending[R]:
        twin = twin_of(prepared) if writes and self._journal is not None else None
        compiled = self._compiled[prepared if twin is None else twin.prepared]
        answer = self._driver.queue(compiled.sql, compiled.args(values))
        pending: Pending[R] = Pending()
        self._waiting.append(_SentStatement(pending, prepared, compiled, values, answer, twin, shape, writes))
        return pending


def _all(rows: list[Row]) -> list[Row]:
    return rows


def _first(rows: list[Row]) -> Row | None:
    return rows[0] if rows else None


class _SentStatement(NamedTuple):
    pending: Pending[Any]
    statement: Statement
    compiled: CompiledStatement
    values: Mapping[str, Any]
    answer: Any
    twin: ReturningStatement | None
    shape: Callable[[list[Row]], Any]
    writes: bool


class StatementRunner(Protocol):
    """An object that runs prepared statements: a unit of work, or a pinned driver connection."""

    @property
    def journal(self) -> Journal | None: ...
    @property
    def joined(self) -> bool: ...
    def rows(self, prepared: Statement, **values: Any) -> list[Row]: ...
    def row(self, prepared: Statement, **values: Any) -> Row | None: ...
    def run(self, prepared: Statement, **values: Any) -> int: ...
    def returned(self, prepared: Statement, **values: Any) -> Row | None: ...
    def batch(self, *, last: bool = False) -> Batch: ...
    def begin_event(self, name: str, stream: str | None = None) -> None: ...
    def to_plain_json(self, text: str) -> str: ...


class DriverStatements:
    """Runs prepared statements on a pinned driver connection, inside the connection's current transaction, if any."""

    __slots__ = ("_driver", "_prepared", "commits", "committing", "ending", "journal", "pipelines", "to_plain_json")

    def __init__(
        self, prepared: StatementCache, driver: Driver, to_plain_json: Callable[[str], str], *, pipelines: bool = False
    ) -> None:
        self._prepared, self._driver, self.to_plain_json, self.pipelines = prepared, driver, to_plain_json, pipelines
        self.journal: Journal | None = None
        self.commits = False
        """Whether the transaction consists of one task, whose last batch commits."""
        self.ending = False
        """Whether the events are being stored with which that transaction ends."""
        self.committing = False
        """Whether a batch was sent with the COMMIT, and its answer has not arrived."""

    joined = False
    """Whether the transaction is a caller's."""

    def begin_event(self, name: str, stream: str | None = None) -> None:
        if self.journal is not None:
            self.journal.begin_verb(name, stream)

    def batch(self, *, last: bool = False) -> Batch:
        """Statements that travel together; see the module. `last`: they are the task's last, and commit it if it is alone."""
        if not self.pipelines:
            return self.one_by_one()
        driver: Any = self._driver
        commits = last and self.commits and (self.ending or self.journal is None)
        flush = self._flush_and_commit if commits else driver.flush
        return PipelinedBatch(driver, flush, self._prepared, self.journal, _by, _ignore)

    def one_by_one(self) -> Batch:
        """A batch that executes each statement at once, with room for other statements in between."""
        return _DriverBatch(self, one_writer=not self.pipelines)

    def _flush_and_commit(self) -> None:
        driver: Any = self._driver
        self.committing = True
        driver.flush(commit=True)
        self.committing = False

    def rows(self, prepared: Statement, **values: Any) -> list[Row]:
        return self._prepared[prepared].all(self._driver, values, (prepared.unreadable, None))

    def row(self, prepared: Statement, **values: Any) -> Row | None:
        return self.one(prepared, values)

    def one(self, prepared: Statement, values: Mapping[str, Any]) -> Row | None:
        return self._prepared[prepared].one(self._driver, values)

    def returned(self, prepared: Statement, **values: Any) -> Row | None:
        found = None if self.journal is None else self.journal.run(prepared, values, self._all)
        rows = self._all(prepared, values) if found is None else found
        return rows[0] if rows else None

    def run_many(self, prepared: Statement, values: Sequence[Mapping[str, Any]]) -> None:
        for row in values:
            self.write(prepared, row)

    def run(self, prepared: Statement, **values: Any) -> int:
        return self.write(prepared, values)

    def write(self, prepared: Statement, values: Mapping[str, Any]) -> int:
        if self.journal is not None and (rows := self.journal.run(prepared, values, self._all)) is not None:
            return len(rows)
        return self._prepared[prepared].run(self._driver, values)

    def _all(self, prepared: Statement, values: Mapping[str, Any]) -> list[Row]:
        return self._prepared[prepared].all(self._driver, values)


class _DriverBatch(ImmediateBatch):
    """An ImmediateBatch of a pinned connection, whose values pass through one call less."""

    __slots__ = ()

    def require(self, requirement: Requirement, /, **values: Any) -> None:
        requirement.check(self._runner.one(requirement.plain, values))

    def run(self, prepared: Statement, /, **values: Any) -> Pending[int]:
        return known(self._runner.write(prepared, values))

    def row(self, prepared: Statement, /, **values: Any) -> Pending[Row | None]:
        return known(self._runner.one(prepared, values))


def _by(prepared: Statement, lists: bool) -> By:
    return prepared.unreadable, None


def _ignore(wrote: bool, statements: Iterable[SentStatement]) -> None:
    """Take no note of whether a batch wrote: the pinned connection's transaction is rolled back as a whole."""
