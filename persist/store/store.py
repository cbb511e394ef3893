"""The store: opening, transactions, recorders. Wiring only; the verbs are in the domain packages."""

import logging
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sqlalchemy import Connection, Engine

from persist.db.concurrency.fork_count import PROCESS, in_each_child
from persist.db.concurrency.observers import WeakGroup
from persist.db.concurrency.worker_threads import Timer
from persist.db.connections import check_connection, connection_of, session_in
from persist.db.dialects.backends import check_listen_url, dialect_for, dialect_of
from persist.db.dialects.connections import Connections
from persist.db.dialects.interface import RUNS, TURNS, Dialect
from persist.db.group_commit.pinned_connection import PinnedConnection
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.schema.row_guards import MARKED, UNMARKED
from persist.db.statements.schema_version import GUARDING, HEAD
from persist.db.transactions.notifier import Notifiers, Tell
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import Clock, system_clock
from persist.db.values.json import Json
from persist.domains import Domains
from persist.errors import PersistError, ReadOnlyTransaction
from persist.lazy_imports import lazy_module
from persist.schema.opening import prepare
from persist.store.transaction import (
    StoreEventLog,
    Transaction,
    TransactionBlock,
    explain,
    transact_with_retries,
    transaction_per_verb,
    work_of,
)

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

    from persist import settings as configuration
    from persist.blobs import body_stores, sharing
    from persist.chat.following import follower
    from persist.chat.recording import recorder as recorders
    from persist.chat.recording import recording as recording
    from persist.chat.recording import resume
    from persist.conversations.storage import progressions as folding
    from persist.events.schemas import Event
    from persist.schema import adopt as adopting
    from persist.schema import metadata as catalog
    from persist.settings import Settings
    from persist.store import metrics as measuring
    from persist.workflows import steps
    from persist.workflows.schemas import Lease, WorkflowRun
    from persist.workflows.verbs import finishing
else:
    configuration = lazy_module("persist.settings")
    body_stores = lazy_module("persist.blobs.body_stores")
    sharing = lazy_module("persist.blobs.sharing")
    follower = lazy_module("persist.chat.following.follower")
    recording = lazy_module("persist.chat.recording.recording")
    recorders = lazy_module("persist.chat.recording.recorder")
    resume = lazy_module("persist.chat.recording.resume")
    folding = lazy_module("persist.conversations.storage.progressions")
    adopting = lazy_module("persist.schema.adopt")
    catalog = lazy_module("persist.schema.metadata")
    measuring = lazy_module("persist.store.metrics")
    steps = lazy_module("persist.workflows.steps")
    finishing = lazy_module("persist.workflows.verbs.finishing")


log = logging.getLogger("persist")


def fold_progressions(runtime: Runtime, begin: Callable[[], TransactionBlock]) -> None:
    """Update the published arrays of progressions that the store appended to; their members are durable in any case."""
    if not any(runtime.own_writes.values()) or not folding.has_lagging(runtime):
        return
    try:
        with begin() as tx:
            folding.fold_lagging(work_of(tx))
    except PersistError as error:
        log.warning("progressions are left unfolded: %s", error)


def close_when_dropped(runtime: Runtime) -> "weakref.finalize[Any, Any]":
    """Close a store's own connections once nothing refers to it: its pools would keep themselves."""
    finalizer = weakref.finalize(runtime, _close, runtime.connections if runtime.owns_engine else None, runtime.forks)
    finalizer.atexit = False
    return finalizer


def _close(connections: Connections | None, forks: int) -> None:
    if connections is not None and forks == PROCESS.forks:
        connections.dispose()


def say_dropped(store: object, runtime: Runtime) -> bool:
    """Warn of a store with connections of its own that is freed without having been closed; whether it is one."""
    dropped = runtime.owns_engine and not runtime.closed and not runtime.forked
    if dropped:
        warnings.warn(f"{store!r} was not closed", ResourceWarning, stacklevel=3)
    return dropped


_open: WeakGroup[Runtime] = WeakGroup()
_inherited: list[Any] = []


def _after_fork_in_child() -> None:
    """Drop the parent's connections in the child without closing them; references keep the garbage collector from doing so."""
    for runtime in _open.members():
        dialect = runtime.dialect
        pools = [engine.pool for engine in dialect.connections.engines]
        _inherited.append((runtime.pinned, dialect, pools, runtime.watchers.members()))
        if runtime.owns_engine:
            dialect.connections.abandon([pinned.at_rest() for pinned in runtime.recording.members()])
        _open.discard(runtime)


in_each_child(_after_fork_in_child)


T = TypeVar("T")


class Store(Domains):
    """One database. Threads may share a store; one thread at a time uses a transaction.

    `store.<domain>.<aggregate>.<verb>` runs one verb in a transaction of its own: a verb that reads in a snapshot, a verb that
    writes with its own commit. The latter is tried again when `transact` would try again.

    `path` is the SQLite file, None elsewhere. `run_id` is the run that owns the file, or None if no run does.
    """

    def __init__(self, runtime: Runtime, timer: Timer | None = None) -> None:
        super().__init__(transaction_per_verb(runtime))
        self.runtime = runtime
        self.timer = timer or Timer()
        self._event_log = StoreEventLog(runtime, self.timer)
        self.pinned = runtime.pinned = PinnedConnection(runtime)
        self._recorders: WeakGroup[recorders.Recorder] = WeakGroup()
        self._notifiers = Notifiers(runtime, self.timer)
        self.path: Path | None = runtime.dialect.path
        if (wake_workers := self._notifiers.of(RUNS)) is not None:
            runtime.observers.add(RUNS, wake_workers)
        _open.add(runtime)
        self._unless_closed = close_when_dropped(runtime)

    @property
    def run_id(self) -> str | None:
        """The program's run whose own file this is, or None."""
        return self.runtime.scopes.get("run_id")

    @property
    def instance_id(self) -> str | None:
        """The instance whose own file this is, or None."""
        return self.runtime.scopes.get("instance_id")

    @property
    def workspace_id(self) -> str | None:
        """The workspace whose own file this is, or None."""
        return self.runtime.scopes.get("workspace_id")

    # -- opening and closing

    @classmethod
    def open(
        cls,
        url: str | Path,
        *,
        migrate: bool | None = None,
        adopt: bool = False,
        schema: str | None = None,
        pooler: Literal["transaction"] | None = None,
        read_only: bool = False,
        events: bool | None = None,
        listen_url: str | None = None,
        blobs: "body_stores.Bodies | None" = None,
        settings: "Settings | None" = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> "Store":
        """Open `sqlite:///file.db`, `sqlite:///:memory:`, `postgresql://…` or, as a Path, a SQLite file.

        `migrate`: create and upgrade tables; by default on SQLite only. On Postgres an older schema is SchemaOutdated.
        `adopt`: first convert a file that another program made, as `persist.maintenance.adopt` does, with a backup.
        `read_only`: nothing is created or migrated, `begin()` raises, a newer schema is allowed, a missing file is NotFound.
        `events`: switch the log of events on or off for every user of the database; None leaves it as it is.
        `listen_url`: URL of a direct connection for `watch()`, where `url` goes through a pooler.
        `schema`, `pooler`, `blobs` (a folder, URL or BlobStore for the bodies of blobs): None takes the value from Settings.
        """
        if listen_url is not None:
            check_listen_url(listen_url)
        settings = settings or configuration.current_settings()
        settings = settings if blobs is None else settings.model_copy(update={"blobs": blobs})
        dialect = dialect_for(url, settings, schema=schema, pooler=pooler, read_only=read_only)
        if adopt:
            adopting.adopt_if_foreign(dialect, clock or system_clock)
        store = cls.on_dialect(dialect, settings, clock, sleep, migrate=migrate)
        store.runtime.listen_url = listen_url
        try:
            store._event_log.open_as(events)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def on_dialect(
        cls,
        dialect: Dialect,
        settings: "Settings",
        clock: Clock | None = None,
        sleep: Callable[[float], None] | None = None,
        *,
        migrate: bool | None = None,
        owns_engine: bool = True,
        timer: Timer | None = None,
        copied_into: bool = False,
    ) -> "Store":
        """Open a store on a dialect, which persist's own modules choose. `timer`: that of several stores."""
        try:
            bodies = sharing.checked(settings.blobs) if settings.blobs else None
            found = prepare(dialect, migrate=migrate, copied_into=copied_into)
        except BaseException:
            if owns_engine:
                dialect.connections.dispose()
            raise
        runtime = Runtime(dialect, settings, clock or dialect.connections.clock, sleep or time.sleep, owns_engine=owns_engine)
        if bodies is not None:
            runtime.blob_store = sharing.shared(runtime, bodies, found.database_id, found.place)
        runtime.scopes = dict(found.scopes)
        runtime.tables, runtime.explain = lambda: catalog.metadata.sorted_tables, explain
        dialect.transactions.keep_references(runtime.tables)
        store = cls(runtime, timer)
        store._event_log.prepare(distributed=found.distributed)
        runtime.keep_log(found.log_revision is not None)
        runtime.strict, runtime.marks_writes = found.strict is not None, found.strict in (MARKED, UNMARKED)
        if found.log_revision not in (None, HEAD, GUARDING) and not dialect.read_only:
            store.switch_events(True)  # tables added by later revisions have no event guard yet
        if found.has_deltas and owns_engine:
            try:
                resume.fold_left_deltas(store.pinned)
            except BaseException:
                store.close()
                raise
        return store

    @classmethod
    def from_engine(
        cls, engine: Engine, *, schema: str | None = None, settings: "Settings | None" = None, clock: Clock | None = None
    ) -> "Store":
        """Open a store over the caller's own engine, which is neither configured nor disposed. The schema must be current."""
        settings = settings or configuration.current_settings()
        return cls.on_dialect(dialect_of(engine, settings, schema=schema), settings, clock, migrate=False, owns_engine=False)

    def close(self) -> None:
        """Flush recorders without finishing them, stop timers, close the store's connections; the second call does nothing.

        Raises StoreInUse while a transaction is open. A store that is dropped without it is freed with a ResourceWarning.
        """
        runtime = self.runtime
        if runtime.closed:
            return
        if runtime.forked:
            runtime.closed = True
            return
        with runtime.closing():
            for recorder in self._recorders.members():
                recorder.close()
            self.timer.stop()
            self._notifiers.flush()
            self._event_log.flush()
            runtime.stop_watchers()
            fold_progressions(runtime, self.begin)
            runtime.closed = True
        runtime.stop_watchers()  # watchers that began while the store was closing
        self.pinned.close()
        if runtime.owns_engine:
            runtime.connections.dispose()
        self._unless_closed.detach()
        _open.discard(runtime)

    _at_exit = staticmethod(sys.is_finalizing)

    def __del__(self) -> None:
        try:
            if "_unless_closed" in vars(self) and say_dropped(self, self.runtime) and not self._recorders.members():
                self.timer.leave()  # the connections are closed as well, once no transaction has them
        except (AttributeError, TypeError):
            if not self._at_exit():  # then modules may have been emptied before
                raise

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path) if self.path else self.runtime.dialect.name!r})"

    # -- transactions

    def begin(self, *, actor: str | None = None) -> TransactionBlock:
        """Open a write transaction. The block commits on a clean exit and rolls back on an error. `actor`: who acts."""
        return TransactionBlock(self.runtime, writable=True, actor=actor)

    def read(self) -> TransactionBlock:
        """Open a read transaction: a consistent snapshot that never takes the write lock."""
        return TransactionBlock(self.runtime, writable=False)

    def join(self, connection: "Connection | Session | scoped_session[Session]") -> Transaction:
        """Run verbs inside the caller's own transaction, which the store neither commits nor rolls back.

        `connection`: it, or a session of SQLAlchemy's ORM, whose transaction it is. What the session has not flushed is not seen.
        """
        self.runtime.check_usable()
        session = session_in(connection, asynchronous=False)
        with self.runtime.errors.translated():
            given = connection if session is None else connection_of(session)
        joined = check_connection(given, self.runtime.dialect.name, asynchronous=False)
        return Transaction(UnitOfWork(self.runtime, writable=not self.runtime.read_only, joined=joined))

    def execution_options(self) -> dict[str, Any]:
        """The options with which a host's engine, connection or query finds the tables of this store (`persist.orm`)."""
        return {"schema_translate_map": {SCHEMA_TOKEN: self.runtime.dialect.schema}}

    def transact(self, fn: Callable[[Transaction], T], *, attempts: int = 5, actor: str | None = None) -> T:
        """Run `fn` in a write transaction, and again from the start after lock contention, serialization failure or deadlock.

        On Postgres also after a lost connection, if the transaction is known to be rolled back. `attempts` counts all runs.
        """
        return transact_with_retries(self.runtime, lambda: self.begin(actor=actor), fn, attempts)

    def on_run_finished(self, callback: "Callable[[WorkflowRun], object]") -> Callable[[], None]:
        """Call `callback` with every workflow run that ended, once the transaction that ended it has committed.

        Covers runs that succeeded, failed or were cancelled in transactions of this store; not in `join`, where the caller
        commits. An exception of the callback is logged, never raised. Call the returned function to remove the callback.
        """
        return self.runtime.observers.add(finishing.RUN_FINISHED, callback)

    def metrics(self, *, database: bool = True) -> "measuring.Metrics":
        """Return what the store did since it was opened, and what is open now.

        `database`: also ask it, in one snapshot, how long the queue of runs is and how far readers of the log are behind.
        """
        return measuring.metrics_of(self.runtime, database=database)

    # -- the event log

    @property
    def logs_events(self) -> bool:
        """Whether the log of events is on, as far as this store knows; only its next transaction knows for certain."""
        return self._event_log.on

    def switch_events(self, on: bool, *, progress: Callable[[int, int], object] | None = None) -> bool:
        """Switch the log of events on or off for every user of the database. False: nothing changed.

        Switching it on writes one snapshot event per stream, in separate transactions, while others write. On Postgres the role
        needs the rights to create functions and triggers: NotPermitted names the missing ones. `progress`: called with the
        numbers of written snapshots and of all snapshots.
        """
        return self._event_log.switch(on, progress)

    def watch(self, stream_id: str, *, after: int = 0, timeout: float | None = None) -> "Iterator[Event]":
        """Follow a stream after its event number `after`, or all streams (`*`) after that log position.

        Yields every event once and in order, from every process that writes. `timeout`: end after so many seconds without
        an event; None waits for ever. No transaction is open while the caller handles an event.
        """
        return self._event_log.watch(stream_id, after, timeout)

    def on_commit(self, callback: "Callable[[Sequence[Event]], object]") -> Callable[[], None]:
        """Call `callback` with the events of every transaction of this store, after its commit, but not in `join`.

        Raises InvalidValue while the log is off. Exceptions of the callback are logged. Call the result to remove the callback.
        """
        return self._event_log.on_commit(callback)

    def follow(self, session_id: str, cursor: str | None = None, *, ai_sdk: Literal[6, 7] | None = None) -> "follower.Follower":
        """Iterate over the UI message chunks of the session's running message: first the stored part, then new chunks.

        Ends with the message, at once if no turn runs. `follower.cursor` is the place after the last chunk: another `follow` with
        it goes on there, without a gap or a repetition, in any process. Only assistant messages of this session are followed:
        NotFound for others, InvalidValue for text that is no cursor. `close()` ends it.
        """
        return follower.Follower(self.runtime, session_id, cursor, ai_sdk)

    def step(self, run: "WorkflowRun | Lease | str", key: str, input: Json = None, *, retry: bool = False) -> "steps.Step":
        """Return a context manager around one side effect of a run, which happens once however often the run is restarted."""
        return steps.Step(self.runtime, self.workflows.effects, run, key, input, retry)

    def phase(self, run: "WorkflowRun | Lease | str", name: str, *, trigger_type: str = "worker") -> "steps.PhaseBlock":
        """Return a context manager around one phase of a run, which succeeds once however often the run is restarted."""
        return steps.PhaseBlock(self.runtime, self.workflows, run, name, trigger_type)

    # -- recorders

    def record(
        self,
        session_id: str,
        *,
        model: Json = None,
        agent: str | None = None,
        system_prompt: str | None = None,
        metadata: Json = None,
        takeover: bool = False,
        save_on: Literal["chunk", "step", "turn"] | None = None,
        buffer_bytes: int | None = None,
        buffer_ms: int | None = None,
        ai_sdk: Literal[6, 7] | None = None,
    ) -> "recorders.Recorder":
        """Return a recorder of one turn: feed it the chunks of a UI message stream of AI SDK 6 or 7.

        `save_on`, `buffer_*` and `ai_sdk`: None takes the value from Settings; with both buffers 0 every chunk is durable when
        fed. `ai_sdk` is the major release whose reading is recorded where the two read one stream differently.
        Entering the recorder raises Conflict while another one runs in the session, unless that one is dead or `takeover`.
        """
        options = self.record_options(
            model=model,
            agent=agent,
            system_prompt=system_prompt,
            metadata=metadata,
            takeover=takeover,
            save_on=save_on,
            buffer_bytes=buffer_bytes,
            buffer_ms=buffer_ms,
            ai_sdk=ai_sdk,
        )
        recorder = recorders.Recorder(self.runtime, self.pinned, self.timer, session_id, options, self.announcer())
        self._recorders.add(recorder)
        return recorder

    def announcer(self) -> Tell | None:
        """The function that recorders call after a commit, so that followers look again."""
        return self._notifiers.of(TURNS)

    def record_options(self, **given: Any) -> "recording.RecordOptions":
        """Check the arguments of `record`, for the sync and the async store."""
        self.runtime.check_usable()
        if self.runtime.read_only:
            raise ReadOnlyTransaction("record()")
        return recording.RecordOptions.of(self.runtime, **given)
