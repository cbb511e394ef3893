"""A database dialect: the facts in which SQLite and Postgres differ, and an object for each operation that differs."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Executable, MetaData, Table

from persist.db.concurrency.writer_lock import Waiting
from persist.db.dialects.connections import Connections
from persist.db.dialects.errors import Errors
from persist.db.dialects.upgrade_steps import Step
from persist.db.statements.prepared import Kind, StatementsOfSchema, compiled_for

if TYPE_CHECKING:
    from persist.db.statements.prepared import StatementCache
    from persist.db.unreadable.cells import Rereader


class StoredColumn(NamedTuple):
    """A column as the database knows it, with its declared type."""

    name: str
    type: str
    not_null: bool
    has_default: bool


class Tables(ABC):
    """The tables in a store's schema, as the database knows them: which there are, and how their ids go on."""

    @abstractmethod
    def names(self, connection: Connection) -> set[str]:
        """The names of the tables in the store's schema."""

    @abstractmethod
    def columns(self, driver: Any, table: str, *, computed: bool = False) -> list[StoredColumn]:
        """The columns of a table, also those that persist does not know: the stored ones, or those that the database computes."""

    def may_lack(self, driver: Any, table: Table) -> frozenset[str]:
        """The columns that persist's own tables have NOT NULL, and that may be NULL in this database."""
        loose = {column.name for column in self.columns(driver, table.name) if not column.not_null}
        return frozenset(str(column.name) for column in table.columns if not column.nullable and column.name in loose)

    def advance_sequences(self, connection: Connection, tables: Sequence[Table]) -> None:  # noqa: B027  # a file has none
        """Advance the sequences of these tables past their highest ids, after rows with explicit ids were inserted."""

    @abstractmethod
    def suspend_references(self, connection: Connection, tables: Sequence[Table]) -> Sequence[str]:
        """Check no foreign key of these tables until `restore_references`, which gets what is returned, or the COMMIT."""

    def restore_references(self, connection: Connection, suspended: Sequence[str]) -> None:
        """Check the foreign keys again, also of existing rows."""
        for statement in suspended:
            connection.exec_driver_sql(statement)

    def expected_rows(self, driver: Any, sql: str, args: Sequence[Any]) -> int | None:
        """How many rows the planner expects of a compiled SELECT, which is not executed; None if it does not say."""
        return None  # SQLite's planner knows proportions, and these only as they were at the last ANALYZE

    @abstractmethod
    def arguments(self, schema_option: str) -> str:
        """The database in a shell command: its URL without secrets, and the option with its schema if that has another name."""

    def upgrade_command(self) -> str:
        return f"persist upgrade --url {self.arguments('--schema')}"


Notify = Callable[[ColumnElement[str]], ColumnElement[Any]]
"""Makes the SQL that sends a text to the readers."""

EVENTS, TURNS, RUNS = "events", "turns", "runs"
"""The topics that readers wait for: new events of the log, changes of running turns, and runs that workers may claim."""

MAX_PAYLOAD = 2000
"""The characters of a notification. Postgres takes at most 8000 bytes."""


class EventLogSupport(ABC):
    """The database's part in a store's event log: telling its guard triggers who keeps the log, and waking its readers."""

    kept: bool = False
    """Whether write transactions record events in the event log; the log's guard triggers refuse writers that do not."""

    channel: str = ""
    """The channel of event notifications that one statement sends for many schemas."""

    notify: Notify | None = None
    """Makes the SQL that wakes readers in other processes when the transaction commits; None where none is needed."""

    @abstractmethod
    def leave_to_database(self, driver: Any) -> AbstractContextManager[None]:
        """Let the guard trigger log the text delta that one statement on a pinned connection inserts."""

    def notification(self, topic: str) -> Notify | None:
        """Makes the SQL that tells the readers of a topic, in other processes, what changed; None where none is needed."""
        return None

    @abstractmethod
    def wakeups(self, listen_url: str | None, topic: str = EVENTS) -> "Wakeups":
        """Create the object that waits for new events on behalf of a reader: of the event log, or of another topic."""


_LOOK_AGAIN = 0.05
_SELDOM = 1.0


class Wakeups:
    """Wakes readers for commits of this process only: enough for `:memory:`, and the base class of the others."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self.stopped = False
        self.reading = threading.Lock()
        """Held during each query of the log, so that closing the store can wait for the query's end."""

    def wait(self, timeout: float) -> set[str] | None:
        """Wait until something may be new, for `timeout` seconds at most. The notifications that came; None: unknown."""
        self.pause(min(timeout, _SELDOM))  # commits of the host's own transactions are not announced here
        return None

    def pause(self, seconds: float) -> bool:
        """Wait for `seconds`, or until `tell` or `stop` is called; True if one of them was."""
        told = self._told.wait(seconds)
        if told:  # cleared only if it was seen: a `tell` after the timeout must end the next wait
            self._told.clear()
        return told

    def found(self) -> None:
        """Note that a query of the log returned events."""

    def tell(self) -> None:
        """Wake the waiting reader, from another thread."""
        self._told.set()

    def stop(self) -> None:
        """Stop all waiting and querying, from another thread."""
        self.stopped = True
        self._told.set()

    def close(self) -> None:
        """Release the connections and sockets that this object holds."""


class Polling(Wakeups):
    """Polls the log: every 50 ms while there are events, slowing down to once a second while there are none."""

    def __init__(self) -> None:
        super().__init__()
        self._interval = _LOOK_AGAIN

    def found(self) -> None:
        """Poll quickly again, since more events may follow soon."""
        self._interval = _LOOK_AGAIN

    def wait(self, timeout: float) -> set[str] | None:
        told = self.pause(min(timeout, self._interval))
        self._interval = _LOOK_AGAIN if told else min(self._interval * 1.5, _SELDOM)
        return None


AUTOCOMMIT = "it is in AUTOCOMMIT mode, where there is no transaction to join."
"""The reason given when a caller's connection is refused."""


class Transactions(ABC):
    """Begins and ends transactions on a store's connections, and inside callers' transactions."""

    joined_marks: tuple[str, str]
    """The statements that mark a caller's own transaction, and that take the mark back."""

    @abstractmethod
    def begin(self, connection: Connection, *, write: bool, driver: Any = None, waiting: Waiting | None = None) -> Any:
        """Start a transaction on an idle connection: the driver's alone, until SQLAlchemy runs a statement; `end` ends both."""

    def end(self, connection: Connection | None, driver: Any, *, commit: bool) -> None:
        """Commit or roll back. `connection`: None if SQLAlchemy ran nothing. `driver`: None on a caller's engine."""
        of: Any = driver
        if connection is not None and (driver is None or connection.get_transaction() is not None):
            of = connection
        (of.commit if commit else of.rollback)()

    @abstractmethod
    def end_read(self, connection: Connection | None, driver: Any) -> None:
        """End a snapshot with COMMIT. After a ROLLBACK the drivers would discard their prepared statements."""

    @abstractmethod
    def ends_at_once(self, connection: Connection, driver: Any) -> bool:
        """Whether a snapshot can end, and its connection be released, without blocking."""

    @abstractmethod
    def join(self, connection: Connection) -> None:
        """Prepare the caller's own transaction for a write: take the locks that a write needs, and allow savepoints."""

    def keep_references(self, tables: Callable[[], Sequence[Table]]) -> None:  # noqa: B027  # a server always keeps them
        """Enforce the tables' foreign keys also on callers' connections that leave them unchecked."""

    def mark_joined(self, connection: Connection, *, marked: bool) -> None:
        """Mark the caller's own transaction for the triggers that note raw writes, or take the mark back."""
        connection.exec_driver_sql(self.joined_marks[not marked])

    def runner(self, driver: Any) -> Any:
        """Return the object that executes the statements of a pinned connection, and commits them."""
        return driver

    @abstractmethod
    def begin_pinned(self, runner: Any) -> None:
        """Start a write transaction on a pinned connection; on Postgres it is sent with its first statement."""

    def driver_of(self, connection: Connection) -> Any:
        """Return the driver connection of a transaction, for statements that are executed on it directly."""
        return connection.connection.driver_connection

    def reading_cursor(self, driver: Any) -> Any:
        """Return a driver cursor that fetches a result in batches until the transaction ends."""
        return driver.cursor()

    def interrupt(self, driver: Any) -> None:
        """Cancel the running statement from another thread; end the connection if the cancellation fails."""
        driver.interrupt()


@dataclass(frozen=True, slots=True)
class VectorFunctions:
    """The names of an extension and its distance functions, which compute in float32."""

    extension: str
    cosine: str
    l2: str


class Severity(StrEnum):
    """The severity of a problem: `error` loses or hides data, `warning` needs a decision, `info` is for information."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with `subject`. `repair` fixes it in a separate write transaction and deletes no data."""

    code: str
    severity: Severity
    subject: str
    message: str
    repair: Callable[[Any], object] | None = None
    """Called with the unit of work of the repairing transaction."""


Ask = Callable[[Executable], Any]
"""Executes a statement in the caller's transaction and returns a CursorResult."""

Facts = dict[str, Any]
"""A JSON object."""

Progress = Callable[[int, int], object]
"""`progress(done, total)`, in pages."""


class Definition(NamedTuple):
    """The definition of a column, index or constraint: the `essential` part, and the `detail` that only raw writers notice."""

    essential: str
    detail: str = ""


class ForeignReference(NamedTuple):
    """A foreign key of another program's table: where it is, what it refers to, and what it does when such a row goes."""

    schema: str | None
    table: str
    columns: tuple[str, ...]
    parent_schema: str | None
    parent: str
    parent_columns: tuple[str, ...]
    effect: str
    """"refuses", "empties" a column that is NOT NULL, or "cascades" to the rows that refer to it."""
    deferred: str | None
    """For `deferred_check`, if it is checked at the COMMIT only."""


Catalog = Mapping[tuple[str, str, str], Definition]
"""By kind (table, column, index, unique index, constraint), table and name. A table's detail may say whether persist made it."""


@dataclass(frozen=True, slots=True)
class Catalogs:
    """The expected and the found catalog, in comparable form. `names_only`: definitions could not be compared."""

    expected: Catalog
    found: Catalog
    names_only: bool = False


class DatabaseOperations(ABC):
    """Administrative operations. Methods with `ask` read in the caller's transaction; others open a separate connection."""

    @abstractmethod
    def facts(self, ask: Ask) -> Facts:
        """Facts about the whole database: its kind, version, location and size."""

    @abstractmethod
    def settings(self, ask: Ask) -> Facts:
        """The database settings that affect durability and speed, by name."""

    @abstractmethod
    def table_facts(self, ask: Ask) -> dict[str, Facts]:
        """Storage facts by table: `bytes` including indexes (None if unknown), and others that depend on the database."""

    @abstractmethod
    def index_facts(self, ask: Ask) -> list[Facts]:
        """Facts about every index: `table`, `name`, `bytes` (None if unknown), and `scans` where the database counts them."""

    @abstractmethod
    def stored_size(self, column: ColumnElement[Any]) -> ColumnElement[int]:
        """The SQL expression for the stored size of a value in bytes."""

    def integrity(self, ask: Ask, *, full: bool) -> Iterator[Problem]:
        """Find damage of the database file; `full` also compares indexes with their tables."""
        return iter(())

    def role_seeing_some(self, ask: Ask, tables: Sequence[Table]) -> str | None:
        """The caller's database role, if row security hides rows of these tables from it; None if it sees all."""
        return None

    def writers(self, ask: Ask) -> frozenset[str]:
        """Other transactions that wrote or locked a row and go on, by name; none if a writer locks the whole database."""
        return frozenset()

    def left_of(self, connection: Connection, steps: Sequence[Step]) -> list[Step]:
        """The steps of an upgrade without those that are done, where one was cut short."""
        return list(steps)

    def orphans(self, ask: Ask, tables: Iterable[Table]) -> Iterator[tuple[Table, str, int]]:
        """Find rows whose foreign key refers to a missing row: the table, the table that it refers to, and the number of rows."""
        return iter(())

    @abstractmethod
    def foreign_references(self, ask: Ask, tables: Sequence[Table]) -> list[ForeignReference]:
        """Find foreign keys of other tables to these tables, and to what cascades from them, which may refuse a deletion."""

    @abstractmethod
    def deferred_check(self, ask: Ask, deferred: Sequence[str]) -> Callable[[], object]:
        """What raises once the transaction has broken these foreign keys, which are checked at the COMMIT only."""

    @abstractmethod
    def surroundings(self, ask: Ask, tables: Iterable[Table]) -> Iterator[Problem]:
        """Find problems outside the rows: settings, the file's location, invalid indexes, sequences that lag."""

    @abstractmethod
    def catalogs(self, ask: Ask, metadata: MetaData) -> Catalogs:
        """Read the catalog that the models define and the catalog of the database."""

    @abstractmethod
    def checkpoint(self, mode: str) -> tuple[int, int, int]:
        """Checkpoint the write-ahead log: (busy, log, checkpointed). Raises UnsupportedEngine where the server does so itself."""

    def tidy(self) -> None:  # noqa: B027  # a server does this work itself
        """Run cheap maintenance that never blocks other connections, for an hourly job."""

    rewrites = False
    """Whether deleted bytes stay in a file that `vacuum` rewrites."""

    def overwrite_deleted(self, ask: Ask) -> Callable[[], object]:
        """Let the transaction overwrite what it deletes, where the database leaves that to its users; returns what undoes it."""
        return lambda: None

    @abstractmethod
    def vacuum(self, tables: Sequence[Table]) -> None:
        """Reclaim free space."""

    @abstractmethod
    def backup(self, target: Path, *, progress: Progress | None, overwrite: bool) -> tuple[int, int]:
        """Write a consistent copy while others write: (pages, bytes). Raises UnsupportedEngine where the database has a tool."""


@dataclass(eq=False, kw_only=True)
class Dialect:
    """The database of one store."""

    name: str
    sqlalchemy_dialect: Kind
    """SQLAlchemy's dialect class for this database."""
    schema: str | None = None
    """The schema that holds persist's tables; None on SQLite."""
    path: Path | None = None
    """The SQLite file; None for `:memory:` and on Postgres."""
    read_only: bool = False
    in_memory: bool = False
    one_file: bool
    """Whether the database is one file, which may belong to one run, instance or workspace."""
    one_writer: bool
    """Whether writers queue on the store's own lock before they ask the database."""
    batches_rows: bool
    """Whether one statement for many rows is faster than one driver call for each row."""
    pipelines: bool
    """Whether the statements of a batch are sent together (`queue` and `flush` of what `begin` and `runner` return)."""
    autocommits_single_statement: bool
    """Whether a single statement on the pinned connection commits by itself, durably and without a BEGIN."""
    one_of_many: bool = False
    """Whether its connections and statements are shared with the stores of other schemas of the server."""
    write_lock_timeout: float = 10.0
    """Seconds after which the attempts to take the write lock end."""

    rereader: "Rereader"
    """Reads values that the driver cannot convert; shared by all stores of this dialect."""
    to_plain_json: Callable[[str], str]
    """Converts the stored text of a Json column to plain JSON text."""

    connections: Connections
    transactions: Transactions
    errors: Errors
    event_log: EventLogSupport
    tables: Tables

    @cached_property
    def prepared(self) -> "StatementCache":
        if self.one_of_many and self.schema is not None:
            return StatementsOfSchema(self.sqlalchemy_dialect, self.schema, self.rereader, self.event_log.channel)
        return compiled_for(self.sqlalchemy_dialect, self.schema, self.rereader)


class TenantServer(ABC):
    """The tenants of one server. Their names were checked before; see persist.tenants.placing."""

    shares_connections: bool
    """Whether the stores of all tenants share one pool of connections."""

    @abstractmethod
    def dialect(self, name: str, *, new: bool = False) -> Dialect:
        """Create the dialect of a tenant's store, without connecting. `new`: connecting may create what is not there."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether the tenant is there, at whatever revision."""

    @abstractmethod
    def names(self, after: str, limit: int) -> list[str]:
        """The names of at most `limit` tenants, sorted by code point, from the first one greater than `after`."""

    @abstractmethod
    def drop(self, name: str) -> bool:
        """Delete a tenant with its data, whole or not at all. False: it is not there. Raises StoreBusy or StoreInUse."""

    @abstractmethod
    def place(self, name: str) -> tuple[str, str | None]:
        """The URL and the schema with which `persist.upgrade` finds the tenant."""

    def close(self) -> None:  # noqa: B027  # files have none
        """Close the connections that the tenants' stores share."""
