"""Runs prepared statements on a driver connection, with a journal of the rows that they change."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from persist.db.changes.batch import Batch, ImmediateBatch, PipelinedBatch
from persist.db.changes.journal import Journal
from persist.db.statements.prepared import Driver, Row, Statement, StatementCache
from persist.db.unreadable.rereading import By


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

    __slots__ = ("_driver", "_pipelines", "_prepared", "commits", "committing", "ending", "journal", "to_plain_json")

    def __init__(
        self, prepared: StatementCache, driver: Driver, to_plain_json: Callable[[str], str], *, pipelines: bool = False
    ) -> None:
        self._prepared, self._driver, self.to_plain_json, self._pipelines = prepared, driver, to_plain_json, pipelines
        self.journal: Journal | None = None
        self.commits = False
        """Whether the transaction consists of one task, so that the task's last batch commits it."""
        self.ending = False
        """Whether the events are being stored with which that transaction ends."""
        self.committing = False
        """Whether a batch was sent with the COMMIT, and its answer has not arrived."""

    joined = False
    """Whether the transaction is a caller's."""

    def begin_event(self, name: str, stream: str | None = None) -> None:
        """Begin an event of that name: the changes that follow belong to it."""
        if self.journal is not None:
            self.journal.begin_verb(name, stream)

    def batch(self, *, last: bool = False) -> Batch:
        """Several statements that travel together; see persist.db.changes.batch.

        `last`: the task has written everything once these are executed. If it is alone, it is committed with them.
        """
        if not self._pipelines:
            return self.one_by_one()
        driver: Any = self._driver
        commits = last and self.commits and (self.ending or self.journal is None)
        flush = self._flush_and_commit if commits else driver.flush
        return PipelinedBatch(driver, flush, self._prepared, self.journal, _by, _ignore)

    def one_by_one(self) -> Batch:
        """A batch whose statements are executed at once, so that others may be executed between them."""
        return ImmediateBatch(self, one_writer=not self._pipelines)

    def _flush_and_commit(self) -> None:
        driver: Any = self._driver
        self.committing = True
        driver.flush(commit=True)
        self.committing = False

    def rows(self, prepared: Statement, **values: Any) -> list[Row]:
        """Every row, decoded."""
        return self._prepared[prepared].all(self._driver, values, (prepared.unreadable, None))

    def row(self, prepared: Statement, **values: Any) -> Row | None:
        """The first row, decoded, or None."""
        return self._prepared[prepared].one(self._driver, values)

    def returned(self, prepared: Statement, **values: Any) -> Row | None:
        """Execute an INSERT or UPDATE … RETURNING; the first row it wrote, decoded, or None."""
        found = None if self.journal is None else self.journal.run(prepared, values, self._all)
        rows = self._all(prepared, values) if found is None else found
        return rows[0] if rows else None

    def run_many(self, prepared: Statement, values: Sequence[Mapping[str, Any]]) -> None:
        """Execute for many rows."""
        for row in values:
            self.write(prepared, row)

    def run(self, prepared: Statement, **values: Any) -> int:
        """Execute; the number of rows changed."""
        return self.write(prepared, values)

    def write(self, prepared: Statement, values: Mapping[str, Any]) -> int:
        """Execute with the values in a mapping; the number of rows changed."""
        if self.journal is not None and (rows := self.journal.run(prepared, values, self._all)) is not None:
            return len(rows)
        return self._prepared[prepared].run(self._driver, values)

    def _all(self, prepared: Statement, values: Mapping[str, Any]) -> list[Row]:
        return self._prepared[prepared].all(self._driver, values)


def _by(prepared: Statement, lists: bool) -> By:
    return prepared.unreadable, None


def _ignore(wrote: bool) -> None:
    """Take no note of whether a batch wrote: the pinned connection's transaction is rolled back as a whole."""
