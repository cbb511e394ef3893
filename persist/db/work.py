"""The unit of work: one transaction on one connection, and the rules of what may run in it."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable, NestedTransaction

from persist.db.base import SCHEMA_TOKEN
from persist.db.checks import check_body
from persist.db.clock import aware
from persist.db.hot import Hot, Row
from persist.db.json import Json, JsonText, check_object, encode
from persist.db.locks import Owner
from persist.db.runtime import Runtime
from persist.db.types import check_label
from persist.errors import Closed, InvalidValue, ReadOnlyTransaction, TransactionAborted, Unavailable, WrongOwner

log = logging.getLogger("persist")

_LONG_BEGIN = 1.0


class Work:
    """A transaction: `writable` or a snapshot, ours (`owner`) or joined into the caller's."""

    def __init__(self, runtime: Runtime, *, writable: bool, owner: Owner, joined: Connection | None = None) -> None:
        self.runtime = runtime
        self.writable = writable
        self.owner = owner
        self.thread: int | None = threading.get_ident()
        """The one thread that may use it; None on the async face, which has its own check."""
        self.joined = joined is not None
        self._connection: Connection | None = joined
        self._driver: Any = None
        self._wrote = False
        self._depth = 0
        self._doomed = False
        self._open = joined is not None
        self._began = 0.0
        self.announcements: list[tuple[str, Any]] = []
        self._options: dict[str, Any] = {}
        if joined is not None:
            translate = {
                **(joined.get_execution_options().get("schema_translate_map") or {}),
                SCHEMA_TOKEN: runtime.dialect.schema,
            }
            self._options = {"schema_translate_map": translate}

    # -- life

    @property
    def is_open(self) -> bool:
        """Between begin and its end."""
        return self._open

    def begin(self, cancelled: Callable[[], bool] | None = None) -> None:
        """Take the lock, a connection and a transaction, or leave nothing behind."""
        runtime, dialect = self.runtime, self.runtime.dialect
        runtime.check_usable()
        if self.writable:
            if runtime.read_only:
                raise ReadOnlyTransaction("begin()")
            runtime.enter_write(self.owner, "begin()", cancelled)
        else:
            runtime.enter_read(self.owner, "read()", cancelled)
        try:

            def start() -> None:
                self._connection = self._connection or dialect.connect(write=self.writable)
                dialect.begin(self._connection, write=self.writable, cancelled=cancelled)

            runtime.retrying_lock(start)
            assert self._connection is not None
            self._driver = self._connection.connection.driver_connection if runtime.owns_engine else None
        except BaseException:
            self._release()
            raise
        self._began = time.monotonic()
        self._open = True

    def commit(self) -> None:
        """Make it durable; a doomed transaction rolls back instead and says so."""
        if self._doomed:
            self.rollback()
            raise TransactionAborted
        assert self._connection is not None
        self._open = False
        try:
            self.runtime.dialect.end(self._connection, self._driver, commit=True)
        except Exception as error:
            ours = self.runtime.dialect.classify(error)
            if isinstance(ours, Unavailable):
                ours = Unavailable("The connection was lost while committing", outcome="unknown")
            raise (ours or error) from error
        finally:
            self._release()

    def end_read(self) -> None:
        """End a snapshot by committing nothing: of a rollback drivers think that what they prepared is gone."""
        (self.rollback if self._doomed else self.commit)()

    def rollback(self) -> None:
        """Undo everything; never raises for a connection that is already gone."""
        self._open = False
        self.announcements.clear()
        try:
            if self._connection is not None:
                self.runtime.dialect.end(self._connection, self._driver, commit=False)
        except Exception as error:
            if self.runtime.dialect.classify(error) is None:
                raise
            log.warning("rolling back on a lost connection: %s", type(error).__name__)
        finally:
            self._release()

    @property
    def own_connection(self) -> Connection | None:
        """The connection that only we use; None inside a transaction or over an engine of the caller's."""
        return None if self._driver is None else self._connection

    def interrupt(self) -> None:
        """Cancel the statement that another thread is running in this transaction."""
        driver = self._driver
        if driver is not None:
            self.runtime.dialect.interrupt(driver)

    def _release(self) -> None:
        connection, self._connection, self._driver = self._connection, None, None
        try:
            if connection is not None:
                self.runtime.dialect.release(connection, write=self.writable)
        finally:
            if self.writable:
                self.runtime.leave_write(self.owner)
                held = time.monotonic() - self._began if self._began else 0.0
                if held > _LONG_BEGIN and self.runtime.dialect.one_writer:
                    log.warning("a write transaction held the store's lock for %.1f s", held)
            else:
                self.runtime.leave_read(self.owner)

    def announce(self, topic: str, value: Any) -> None:
        """After the commit, whoever observes the topic is told. Not in join(), where the commit is the caller's."""
        if not self.joined and self.runtime.observers.wanted(topic):
            self.announcements.append((topic, value))

    # -- verbs

    def verb(self, name: str, *, writes: bool) -> "_Verb":
        """The frame of one repository verb: refusals before it, dooming and error translation after it."""
        if not self._open:
            raise Closed("transaction")
        if self.thread is not None and self.thread != threading.get_ident():
            raise WrongOwner
        if self._doomed:
            raise TransactionAborted
        if writes and not self.writable:
            raise ReadOnlyTransaction(name)
        return _Verb(self, writes)

    # -- statements

    def rows(self, hot: Hot, **values: Any) -> list[Row]:
        """Every row of a hot SELECT, decoded."""
        if self._driver is not None:
            return self.runtime.hot[hot].all(self._driver, values)
        return [tuple(row) for row in self._core(hot.statement, values)]

    def row(self, hot: Hot, **values: Any) -> Row | None:
        """The first row of a hot SELECT, decoded."""
        if self._driver is not None:
            return self.runtime.hot[hot].one(self._driver, values)
        found = self._core(hot.statement, values).first()
        return None if found is None else tuple(found)

    def run(self, hot: Hot, **values: Any) -> int:
        """Run a hot INSERT, UPDATE or DELETE; the number of rows."""
        self._wrote = True
        if self._driver is not None:
            return self.runtime.hot[hot].run(self._driver, values)
        return self._core(hot.statement, values).rowcount

    def returned(self, hot: Hot, **values: Any) -> Row | None:
        """The first row that a hot INSERT or UPDATE … RETURNING wrote, decoded; None where it wrote none."""
        found = self.rows(hot, **values)
        self._wrote = self._wrote or bool(found)
        return found[0] if found else None

    def run_many(self, hot: Hot, values: Sequence[Mapping[str, Any]]) -> None:
        """Run one hot statement for many rows."""
        if not values:
            return
        self._wrote = True
        if self._driver is None:
            self._core(hot.statement, list(values))
            return
        compiled = self.runtime.hot[hot]
        compiled.run_many(self._driver, values)

    def select(self, statement: Executable, values: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        """Run a Core SELECT that is put together per call."""
        return self._core(statement, values)

    def _core(self, statement: Executable, values: Any) -> CursorResult[Any]:
        assert self._connection is not None
        result: CursorResult[Any] = self._connection.execute(statement, values, execution_options=self._options)
        return result

    def wire(self, text: str) -> str:
        """Plain JSON text for the stored text of a Json column."""
        return self.runtime.dialect.wire(text)

    def savepoint(self) -> NestedTransaction:
        """A point to roll back to."""
        assert self._connection is not None
        return self._connection.begin_nested()

    def tables(self) -> set[str]:
        """The names of the tables in our schema, those of others included."""
        assert self._connection is not None
        return self.runtime.dialect.tables(self._connection)

    # -- values

    def json(self, path: str, value: Json) -> JsonText:
        """The checked JSON text of a value."""
        return encode(value, path, self.runtime.limits)

    def json_object(self, path: str, value: Json) -> dict[str, Any]:
        """A JSON object of the domain; None is the empty one."""
        return check_object(value, path, self.runtime.limits)

    def now(self) -> datetime:
        """The store's clock, cut to the milliseconds that columns keep."""
        at = aware("clock", self.runtime.clock())
        return at.replace(microsecond=at.microsecond // 1000 * 1000)

    def label(self, path: str, value: object, *, empty: bool = False) -> str:
        """A checked identifier or filter."""
        text = check_label(path, value)
        if not text and not empty:
            raise InvalidValue(path, "it is empty.")
        return text

    def body(self, path: str, value: object) -> str:
        """Checked text of any content."""
        return check_body(path, value, self.runtime.settings.max_text_bytes)


class _Verb:
    """See Work.verb. A verb called by a verb is part of it."""

    __slots__ = ("_savepoint", "_work", "_writes")

    def __init__(self, work: Work, writes: bool) -> None:
        self._work, self._writes = work, writes
        self._savepoint: NestedTransaction | None = None

    def __enter__(self) -> None:
        work = self._work
        work._depth += 1
        if work._depth > 1:
            return
        work._wrote = False
        if work.joined and self._writes:
            assert work._connection is not None
            try:
                work.runtime.dialect.join(work._connection)
                self._savepoint = work._connection.begin_nested()
            except Exception as error:
                work._depth -= 1
                raise work.runtime.translate(error) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        work = self._work
        work._depth -= 1
        if work._depth:
            return
        if self._savepoint is not None:  # the host's transaction survives a refused verb: only our savepoint goes
            if error is None:
                self._savepoint.commit()
            elif self._savepoint.is_active:
                self._savepoint.rollback()
        if error is None:
            return
        ours = work.runtime.translate(error)
        from_database = ours is not error
        if (work._wrote or from_database) and not work.joined:
            work._doomed = True
        if from_database:
            raise ours from error
