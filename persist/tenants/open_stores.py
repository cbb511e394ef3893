"""The stores that a Tenants keeps open: opened once for all callers, closed when others are used more."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from enum import StrEnum
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import Column, Connection, MetaData, Table, Text, delete, insert, select, update
from sqlalchemy.schema import CreateSchema

from persist.db.concurrency.fork_count import PROCESS
from persist.db.concurrency.observers import WeakGroup
from persist.db.dialects.backends import dialect_for
from persist.db.group_commit.pinned_connection import PinnedConnection
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.transactions.async_transactions import AsyncTransactionPerVerb
from persist.db.transactions.repository import TransactionPerVerb
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.domains import Domains
from persist.errors import Closed, Conflict, StoreForked, StoreInUse
from persist.settings import Settings
from persist.store.async_store import AsyncDomains, AsyncStore
from persist.store.store import Store
from persist.store.transaction import StoreEventLog, transaction_per_verb


class Use:
    """One use of a tenant's store: it lasts until it is ended, or until nothing that was reached by it is left."""

    __slots__ = ("__weakref__", "ended")

    def __init__(self) -> None:
        self.ended = False


class TenantStore(Store):
    """The store of a tenant. `close` gives it back: other uses go on, and its connections are kept for the next one."""

    _use: Use
    _give_back: Callable[[Use], Sequence[Store]]

    @classmethod
    def of(cls, store: Store, use: Use, give_back: Callable[[Use], Sequence[Store]]) -> "TenantStore":
        """A use of the store; `give_back` is called at its end, and returns stores to close."""
        lent = object.__new__(cls)
        vars(lent).update({name: value for name, value in vars(store).items() if name not in vars(Domains)})
        lent._use, lent._give_back = use, give_back
        lent._work, lent._recorders = _work_of(store.runtime, use), _Recorders(use)
        return lent

    def close(self) -> None:
        """Flush the recorders of this use without finishing them, and give the store back. A second call does nothing.

        Whatever is called on it afterwards raises Closed. A transaction that is still open goes on until its end.
        """
        if self._use.ended:
            return
        self._use.ended = True
        if not self.runtime.forked:
            for recorder in self._recorders.members():
                recorder.close()
        self.runtime = closed_copy(self.runtime)
        self.pinned, self._event_log = PinnedConnection(self.runtime), StoreEventLog(self.runtime, self.timer)
        for superfluous in self._give_back(self._use):
            superfluous.close()

    def __del__(self) -> None:
        """Say nothing: a use that was dropped has ended, and the store is kept for the next one."""


def _work_of(runtime: Runtime, use: Use) -> TransactionPerVerb:
    """Runs each verb of a use in a transaction: it keeps the use alive, and refuses verbs once the use has ended."""
    every = transaction_per_verb(runtime)

    def run(verb: Callable[[UnitOfWork], Any], writes: bool) -> Any:
        if use.ended:
            raise Closed("store")
        return every.run(verb, writes)

    return TransactionPerVerb(run, one_writer=runtime.dialect.one_writer)


class AsyncTenantStore(AsyncStore):
    """See TenantStore: the asynchronous store of a tenant."""

    _use: Use
    _give_back: Callable[[Use], Sequence[AsyncStore]]

    @classmethod
    def of(cls, store: AsyncStore, use: Use, give_back: Callable[[Use], Sequence[AsyncStore]]) -> "AsyncTenantStore":
        """A use of the store; `give_back` is called at its end, and returns stores to close."""
        lent = object.__new__(cls)
        vars(lent).update({name: value for name, value in vars(store).items() if name not in vars(AsyncDomains)})
        lent._use, lent._give_back = use, give_back
        lent._work = AsyncTransactionPerVerb(lent._run_verb, one_writer=store._runtime.dialect.one_writer)
        lent._recorders = _Recorders(use)
        return lent

    async def close(self) -> None:
        """See TenantStore.close."""
        if self._use.ended:
            return
        self._use.ended = True
        if not self._runtime.forked:
            for recorder in self._recorders.members():
                await recorder.close()
        self._runtime = closed_copy(self._runtime)
        self._store = TenantStore.of(self._store, self._use, lambda use: ())
        self._store.runtime = self._runtime
        for superfluous in self._give_back(self._use):
            await superfluous.close()


class _Recorders(WeakGroup[Any]):
    """The recorders of one use, which lasts at least as long as they do, unless it is ended."""

    def __init__(self, use: Use) -> None:
        super().__init__()
        self._use = use

    def add(self, member: Any) -> None:
        super().add(member)
        vars(member)["_use"] = self._use


def closed_copy(runtime: Runtime) -> Runtime:
    """The runtime of a store that was given back: it refuses every use."""
    closed = copy(runtime)
    closed.closed = True
    return closed


# A table that says on which server each tenant is, in a database of the operator's choosing.

_SCHEMA = "persist_tenants"

_map = Table(
    "persist_tenants",
    MetaData(schema=SCHEMA_TOKEN),
    Column("name", Text, primary_key=True),
    Column("server", Text, nullable=False),
    Column("status", Text, nullable=False),
)


class Status(StrEnum):
    """How far a tenant's creation or removal has come. Only one that is ready can be opened."""

    CREATING = "being created"
    READY = "ready"
    DROPPING = "being dropped"


class Entry(NamedTuple):
    """A row of the map."""

    name: str
    server: str
    status: Status


class TenantMap:
    """The map in the database at `url`, made when it is first used. Every call is one transaction."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._dialect = dialect_for(url, settings, schema=_SCHEMA)
        self._made = False

    def find(self, name: str) -> Entry | None:
        with self._transaction() as connection:
            row = connection.execute(select(_map).where(_map.c.name == name)).first()
        return None if row is None else _entry(row)

    def add(self, name: str, server: str) -> Entry:
        """Note a tenant whose creation begins, and return its entry: the present one if there is one."""
        try:
            with self._transaction() as connection:
                connection.execute(insert(_map).values(name=name, server=server, status=Status.CREATING.value))
        except Conflict:
            found = self.find(name)
            if found is not None:
                return found
            raise
        return Entry(name, server, Status.CREATING)

    def change(self, name: str, was: Status, becomes: Status | None) -> bool:
        """Set the status of a tenant, or remove its entry (None). False: its status was not `was`, and nothing was changed."""
        where = (_map.c.name == name) & (_map.c.status == was.value)
        with self._transaction() as connection:
            if becomes is None:
                return connection.execute(delete(_map).where(where)).rowcount == 1
            return connection.execute(update(_map).where(where).values(status=becomes.value)).rowcount == 1

    def assign(self, name: str, server: str) -> bool:
        """Say that a ready tenant is on that server from now on. False: there is no such tenant."""
        with self._transaction() as connection:
            where = (_map.c.name == name) & (_map.c.status == Status.READY.value)
            return connection.execute(update(_map).where(where).values(server=server)).rowcount == 1

    def page(self, after: str, limit: int) -> list[Entry]:
        """At most `limit` tenants that are ready, sorted by name, from the first one greater than `after`."""
        chosen = (_map.c.name > after) & (_map.c.status == Status.READY.value)
        with self._transaction() as connection:
            return [_entry(row) for row in connection.execute(select(_map).where(chosen).order_by(_map.c.name).limit(limit))]

    def close(self) -> None:
        self._dialect.connections.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._dialect.errors.translated():
            if not self._made:
                self._make()
            with self._dialect.connections.writer.begin() as connection:
                yield connection

    def _make(self) -> None:
        for attempt in (1, 2):
            try:
                with self._dialect.connections.writer.begin() as connection:
                    if self._dialect.schema is not None:
                        connection.execute(CreateSchema(_SCHEMA, if_not_exists=True))
                    _map.metadata.create_all(connection)
                break
            except Exception:
                if attempt == 2:  # otherwise another process has made them at the same time
                    raise
        self._made = True


def _entry(row: Sequence[str]) -> Entry:
    return Entry(row[0], row[1], Status(row[2]))


S = TypeVar("S", bound=Store | AsyncStore)

MAX_OPEN = 100_000


class KeptStore(Generic[S]):
    """A tenant's open store, and who uses it. `face` is the store of the callers' face, over `store`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.opening = threading.Lock()
        self.store: Store | None = None
        self.face: S | None = None
        self.closed = False
        self.uses: WeakGroup[Use] = WeakGroup()

    @property
    def idle(self) -> bool:
        """Whether the store is unused, and no work begun with it goes on."""
        if self.store is None or self.face is None or self.uses.members():
            return False
        runtime = self.store.runtime
        return not (runtime.anything_open() or runtime.watchers.members())


class OpenStores(Generic[S]):
    """Keeps at most `max_open` stores open, and besides them those in use, which are never closed."""

    def __init__(
        self, open: Callable[[str], tuple[Store, S]], lend: Callable[[S, Use, Callable[[Use], list[S]]], S], max_open: int
    ) -> None:
        self._open, self._lend, self._max = open, lend, max_open
        self._mutex = threading.Lock()
        self._kept: OrderedDict[str, KeptStore[S]] = OrderedDict()
        self._leaving: set[str] = set()
        """The tenants that this process is dropping; opening one is refused."""
        self._forks = PROCESS.forks
        self.closed = False

    def known(self, name: str) -> S | None:
        """A use of the tenant's store if it is open already; never waits for a database."""
        self._check()
        with self._mutex:
            kept = self._kept.get(name)
            if kept is None or kept.face is None:
                return None
            self._kept.move_to_end(name)
            return self._lent(kept)

    def take(self, name: str) -> tuple[S, list[S]]:
        """A use of the tenant's store, opened if it is not open; and those stores that the caller closes for it."""
        waiting = Use()
        while True:
            self._check()
            with self._mutex:
                if name in self._leaving:
                    raise Conflict(f"The tenant {name} is being dropped.", constraint="tenant")
                kept = self._kept.get(name) or self._kept.setdefault(name, KeptStore(name))
                self._kept.move_to_end(name)
                kept.uses.add(waiting)
            try:
                with kept.opening:
                    if kept.closed:
                        continue
                    if kept.store is None:
                        try:
                            kept.store, kept.face = self._open(name)
                        except BaseException:
                            self._forget(kept)
                            raise
                    lent = self._lent(kept)
            finally:
                kept.uses.discard(waiting)
            return lent, self._superfluous()

    def remove(self, name: str) -> list[S]:
        """Take a tenant's store out, to be closed, if it is open. Raises StoreInUse while somebody uses it."""
        with self._mutex:
            return self._removed(name)

    @contextmanager
    def leaving(self, name: str) -> Iterator[list[S]]:
        """As `remove`, for a tenant that is dropped in this block: until its end, asking for a store of it raises Conflict."""
        with self._mutex:
            if name in self._leaving:
                raise Conflict(f"The tenant {name} is being dropped.", constraint="tenant")
            removed = self._removed(name)
            self._leaving.add(name)
        try:
            yield removed
        finally:
            with self._mutex:
                self._leaving.discard(name)

    def _removed(self, name: str) -> list[S]:
        kept = self._kept.get(name)
        if kept is None:
            return []
        if not kept.idle:
            raise StoreInUse(f"The tenant {name} is in use in this process; close its stores first.")
        return self._out([kept])

    def end(self) -> list[S]:
        """Take all stores out, to be closed; none can be opened afterwards. Raises StoreInUse while a transaction is open."""
        with self._mutex:
            for kept in self._kept.values():
                if kept.store is not None and kept.store.runtime.anything_open():
                    raise StoreInUse
            self.closed = True
            return self._out(list(self._kept.values()))

    @property
    def over(self) -> bool:
        """Whether there is nothing to close: it was closed, or was made before this process was forked."""
        return self.closed or self._forks != PROCESS.forks

    def __len__(self) -> int:
        return len(self._kept)

    def _lent(self, kept: KeptStore[S]) -> S:
        assert kept.face is not None
        use = Use()
        kept.uses.add(use)

        def give_back(use: Use) -> list[S]:
            kept.uses.discard(use)
            return self._superfluous()

        return self._lend(kept.face, use, give_back)

    def _superfluous(self) -> list[S]:
        if len(self._kept) <= self._max:
            return []
        with self._mutex:
            idle = (kept for kept in self._kept.values() if kept.idle)
            return self._out(list(islice(idle, max(0, len(self._kept) - self._max))))

    def _out(self, stores: list[KeptStore[S]]) -> list[S]:
        for kept in stores:
            kept.closed = True
            self._kept.pop(kept.name, None)
        return [kept.face for kept in stores if kept.face is not None]

    def _forget(self, kept: KeptStore[S]) -> None:
        with self._mutex:
            kept.closed = True
            if self._kept.get(kept.name) is kept:
                del self._kept[kept.name]

    def _check(self) -> None:
        if self._forks != PROCESS.forks:
            raise StoreForked("These tenants were opened before fork(); make new Tenants in the child process.")
        if self.closed:
            raise Closed("Tenants")
