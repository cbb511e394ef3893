"""The asynchronous face of Tenants: the same names, awaited."""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from persist.db.transactions.async_transactions import WorkerPool
from persist.db.values.arguments import Progress as CopyProgress
from persist.db.values.clock import Clock
from persist.db.values.pages import Page, check_limit
from persist.maintenance.copying import CopyReport
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.tenants.directory import Directory
from persist.tenants.open_stores import MAX_OPEN, AsyncTenantStore, OpenStores
from persist.tenants.placing import Tenant, UpgradeReport
from persist.tenants.upgrading import Progress

if TYPE_CHECKING:
    from persist.settings import Settings


class AsyncTenants:
    """See Tenants. Whatever waits for a database runs on threads; the stores of one server share theirs."""

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
        """See Tenants."""
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
        self._stores: OpenStores[AsyncStore] = OpenStores(self._open, AsyncTenantStore.of, max_open)
        self._pools: dict[str, WorkerPool] = {}

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
        await _close(superfluous)
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
            await _close(stack.enter_context(self._stores.leaving(name)))
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
        await _close(self._stores.remove(name))

    async def close(self) -> None:
        """See Tenants.close."""
        if self._stores.over:
            return
        await _close(self._stores.end())
        for pool in self._pools.values():
            pool.close()
        await asyncio.to_thread(self._directory.close)

    async def __aenter__(self) -> "AsyncTenants":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncTenants({len(self._stores)} open)"


class TenantOpening:
    """The result of `AsyncTenants.open`. Awaiting it returns the store; `async with` also gives the store back at the end."""

    def __init__(self, tenants: AsyncTenants, name: str) -> None:
        self._tenants, self._name = tenants, name
        self._store: AsyncStore | None = None

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self._tenants._opened(self._name).__await__()

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._tenants._opened(self._name)
        return self._store

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._store is not None:
            await self._store.close()


async def _close(stores: Sequence[AsyncStore]) -> None:
    for store in stores:
        await store.close()
