"""Many tenants behind one object: each has its own Store, over shared connections. The asynchronous face has the same names."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from persist.db.transactions.async_transactions import WorkerPool
from persist.db.values.arguments import Progress as CopyProgress
from persist.db.values.clock import Clock
from persist.db.values.pages import Page, check_limit
from persist.maintenance.copying import CopyReport
from persist.store.async_store import AsyncStore, Opening
from persist.store.store import Store
from persist.tenants.directory import Directory
from persist.tenants.open_stores import MAX_OPEN, AsyncTenantStore, OpenStores, TenantStore
from persist.tenants.placing import Progress, Tenant, UpgradeReport

if TYPE_CHECKING:
    from persist.settings import Settings


S = TypeVar("S", Store, AsyncStore)


class _OfTenants(Generic[S]):
    _lent: type[Any]

    def __init__(
        self,
        urls: str | PathLike[str] | Mapping[str, str],
        *,
        max_open: int = 100,
        rule: Callable[[str], str] | None = None,
        map_url: str | None = None,
        pooler: Literal["transaction"] | None = None,
        listen_url: str | None = None,
        blobs: str | PathLike[str] | None = None,
        settings: "Settings | None" = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        """Nothing is connected until it is needed.

        `urls`: `postgresql://…`, or `sqlite:///folder` or its Path, which must exist; or several servers by keys of your choice.
        `rule`: returns the key of a tenant's server; or `map_url`: a database whose table says it, made at its first use. Several
        servers need one of the two. `max_open`: above so many, stores that nobody uses are closed, oldest use first. `blobs`: a
        folder or URL for the bodies of blobs; each tenant gets a folder in it. The others are as in Store.open.
        """
        check_limit(max_open, maximum=MAX_OPEN, path="max_open")
        self._directory = Directory(
            urls,
            rule=rule,
            map_url=map_url,
            pooler=pooler,
            listen_url=listen_url,
            blobs=blobs,
            settings=settings,
            clock=clock,
            sleep=sleep,
        )
        self._stores: OpenStores[S] = OpenStores(self._open, self._lent.of, max_open)
        self._pools: dict[str, WorkerPool] = {}
        """The threads of the asynchronous face, by server."""

    @abstractmethod
    def _open(self, name: str) -> tuple[Store, S]: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._stores)} open)"


class Tenants(_OfTenants[Store]):
    """The tenants of one server or several: on Postgres a schema each, on SQLite a file each in one folder.

    A name has lower-case letters a to z, digits and underscores, begins with a letter and has at most 63 bytes. Names that
    Postgres, Citus, Windows or persist keep for themselves are InvalidValue, too. Threads may share the object.
    """

    _lent = TenantStore

    def _open(self, name: str) -> tuple[Store, Store]:
        store, _ = self._directory.open(name)
        return store, store

    def open(self, name: str) -> Store:
        """The store of a tenant. Raises UnknownTenant, or SchemaOutdated for an older schema on Postgres.

        Close it, or use it as a context manager, to give it back; another `open` of the tenant then finds it open. A store that
        nothing refers to any more is given back by itself. One in use is never closed, even beyond `max_open`.
        """
        known = self._stores.known(name)
        if known is not None:
            return known
        store, superfluous = self._stores.take(name)
        _close(superfluous)
        return store

    def create(self, name: str, *, server: str | None = None) -> Tenant:
        """Create a tenant, in one transaction. Raises Conflict if there is one. `server`: its key, where a map is to say it.

        Of two processes that create the same tenant, one succeeds. A creation that was cut short is ended by calling it again.
        """
        return self._directory.create(name, server)

    def exists(self, name: str) -> bool:
        """Whether a tenant of this name exists, at any revision."""
        return self._directory.exists(name)

    def drop(self, name: str, *, confirm: str, server: str | None = None) -> None:
        """Delete a tenant with all its data, and all other contents of its schema. `confirm`: the name once more.

        `server`: drop the tenant there, such as the source of a copy. Raises UnknownTenant. Raises StoreInUse while a store of
        the tenant is in use in this process, StoreBusy or StoreInUse while another process uses it. Until it ends, opening the
        tenant raises Conflict.
        """
        self._directory.check_drop(name, confirm)
        with self._stores.leaving(name) as removed:
            _close(removed)
            self._directory.drop(name, confirm, server)

    def list(self, *, limit: int = 100, after: str | None = None, server: str | None = None) -> Page[Tenant]:
        """A page of tenants by name, from the map, all servers, or one. `after`: the cursor of the last page."""
        return self._directory.list_page(limit, after, server)

    def upgrade_all(self, *, parallel: int = 4, progress: Progress | None = None) -> UpgradeReport:
        """Bring every tenant to the revision of this code, `parallel` at a time, each in a transaction of its own.

        A tenant that fails stays as it was and does not stop other tenants. A second call goes on where the first one was cut
        short. `parallel` above 1 starts so many processes. `progress` is called with the outcome of each tenant.
        """
        return self._directory.upgrade_all(parallel, progress)

    def copy(
        self,
        name: str,
        to: str,
        *,
        new_name: str | None = None,
        progress: CopyProgress | None = None,
        leave_unknown: bool = False,
    ) -> CopyReport:
        """Copy a tenant to another server, or under another name, and compare row counts and checksums.

        `to`: the key of a server, or a URL. What is there must be empty, else Conflict. A copy that was cut short cannot be
        opened until `copy` was called again. What is written to the source during the copy is not in it; the source stays.
        `progress` and `leave_unknown` are those of `persist.maintenance.copy`.
        """
        return self._directory.copy(name, to, new_name, progress, leave_unknown=leave_unknown)

    def assign(self, name: str, server: str) -> None:
        """Say in the map that a tenant is on another server from now on, to which it was copied.

        The tenant's open stores, here and in other processes, still write to the former server: close them before the copy.
        """
        self._directory.assign(name, server)
        _close(self._stores.remove(name))

    def close(self) -> None:
        """Close all tenants' stores, as Store.close does; repeatable. Raises StoreInUse while a transaction is open."""
        if self._stores.over:
            return
        _close(self._stores.end())
        self._directory.close()

    def __enter__(self) -> "Tenants":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _close(stores: Sequence[Store]) -> None:
    for store in stores:
        store.close()


class AsyncTenants(_OfTenants[AsyncStore]):
    """See Tenants. Whatever waits for a database runs on threads; the stores of one server share theirs."""

    _lent = AsyncTenantStore

    def _open(self, name: str) -> tuple[Store, AsyncStore]:
        store, key = self._directory.open(name)
        if not self._directory.servers.server(key).shares_connections:
            return store, AsyncStore(store)
        shared = self._pools.get(key) or self._pools.setdefault(key, WorkerPool(store.runtime, self._directory.timer))
        return store, AsyncStore(store, shared.for_store(store.runtime))

    def open(self, name: str) -> "TenantOpening":
        """See Tenants.open. Await it, or enter it: `async with tenants.open("acme") as store`."""
        return TenantOpening(self, name)

    async def _opened(self, name: str) -> AsyncStore:
        known = self._stores.known(name)
        if known is not None:
            return known
        # a cancelled caller does not stop the opening: the use that it would have been ends by itself
        taking = asyncio.get_running_loop().run_in_executor(None, self._stores.take, name)
        store, superfluous = await asyncio.shield(taking)
        await _close_all(superfluous)
        return store

    async def create(self, name: str, *, server: str | None = None) -> Tenant:
        """See Tenants.create."""
        return await asyncio.to_thread(self._directory.create, name, server)

    async def exists(self, name: str) -> bool:
        """See Tenants.exists."""
        return await asyncio.to_thread(self._directory.exists, name)

    async def drop(self, name: str, *, confirm: str, server: str | None = None) -> None:
        """See Tenants.drop."""
        self._directory.check_drop(name, confirm)
        with ExitStack() as stack:
            await _close_all(stack.enter_context(self._stores.leaving(name)))
            left = stack.pop_all()

        def drop() -> None:
            with left:
                self._directory.drop(name, confirm, server)

        # a cancelled caller does not stop the dropping, during which nobody gets a store
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, drop))

    async def list(self, *, limit: int = 100, after: str | None = None, server: str | None = None) -> Page[Tenant]:
        """See Tenants.list."""
        return await asyncio.to_thread(self._directory.list_page, limit, after, server)

    async def upgrade_all(self, *, parallel: int = 4, progress: Progress | None = None) -> UpgradeReport:
        """See Tenants.upgrade_all. `progress` is called on other threads than the loop's."""
        return await asyncio.to_thread(self._directory.upgrade_all, parallel, progress)

    async def copy(
        self,
        name: str,
        to: str,
        *,
        new_name: str | None = None,
        progress: CopyProgress | None = None,
        leave_unknown: bool = False,
    ) -> CopyReport:
        """See Tenants.copy. `progress` is called on another thread than the loop's."""
        return await asyncio.to_thread(self._directory.copy, name, to, new_name, progress, leave_unknown=leave_unknown)

    async def assign(self, name: str, server: str) -> None:
        """See Tenants.assign."""
        await asyncio.to_thread(self._directory.assign, name, server)
        await _close_all(self._stores.remove(name))

    async def close(self) -> None:
        """See Tenants.close."""
        if self._stores.over:
            return
        await _close_all(self._stores.end())
        for pool in self._pools.values():
            pool.close()
        await asyncio.to_thread(self._directory.close)

    async def __aenter__(self) -> "AsyncTenants":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class TenantOpening(Opening[AsyncStore]):
    """The result of `AsyncTenants.open`. Awaiting it returns the store; `async with` also gives the store back at the end."""

    def __init__(self, tenants: AsyncTenants, name: str) -> None:
        self._tenants, self._name = tenants, name
        self._store: AsyncStore | None = None

    async def _open(self) -> AsyncStore:
        return await self._tenants._opened(self._name)


async def _close_all(stores: Sequence[AsyncStore]) -> None:
    for store in stores:
        await store.close()
