"""Many tenants behind one object: each has its own Store, over shared connections."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from persist.db.values.arguments import Progress as CopyProgress
from persist.db.values.clock import Clock
from persist.db.values.pages import Page, check_limit
from persist.maintenance.copying import CopyReport
from persist.store.store import Store
from persist.tenants.directory import Directory
from persist.tenants.open_stores import MAX_OPEN, OpenStores, TenantStore
from persist.tenants.placing import Tenant, UpgradeReport
from persist.tenants.upgrading import Progress

if TYPE_CHECKING:
    from persist.settings import Settings


class Tenants:
    """The tenants of one server or several: on Postgres a schema each, on SQLite a file each in one folder.

    A name has lower-case letters a to z, digits and underscores, begins with a letter and has at most 63 bytes. Names that
    Postgres, Citus, Windows or persist keep for themselves are InvalidValue, too. Threads may share the object.
    """

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
        self._stores: OpenStores[Store] = OpenStores(self._open, TenantStore.of, max_open)

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

    def __repr__(self) -> str:
        return f"Tenants({len(self._stores)} open)"


def _close(stores: Sequence[Store]) -> None:
    for store in stores:
        store.close()
