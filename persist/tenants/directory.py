"""The verbs of Tenants and AsyncTenants that manage tenants, and how the store of one is opened."""

from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from persist.blobs.sharing import SharedBlobStore
from persist.db.concurrency.worker_threads import SharedTimer
from persist.db.dialects.backends import check_listen_url, tenant_server
from persist.db.dialects.interface import TenantServer
from persist.db.values.arguments import Progress as CopyProgress
from persist.db.values.arguments import check_label
from persist.db.values.clock import Clock
from persist.db.values.ids import IdMinter
from persist.db.values.pages import Page, check_limit, decode_cursor, encode_cursor
from persist.errors import Conflict, InvalidValue, NotFound, PersistError, SchemaOutdated, UnknownTenant, named
from persist.maintenance.copying import CopyReport
from persist.maintenance.copying import copy as copy_store
from persist.schema.opening import create_new
from persist.settings import current_settings
from persist.store.store import Store
from persist.tenants.open_stores import Status
from persist.tenants.placing import Progress, Servers, Tenant, UpgradeReport, check_tenant, is_tenant, upgrade_all

if TYPE_CHECKING:
    from persist.settings import Settings

_LIST = "tenants"


class Directory:
    """The tenants of one or more servers. See Tenants, whose arguments it takes."""

    def __init__(
        self,
        urls: str | PathLike[str] | Mapping[str, str],
        *,
        rule: Callable[[str], str] | None,
        map_url: str | None,
        pooler: Literal["transaction"] | None,
        listen_url: str | None,
        blobs: str | PathLike[str] | None,
        settings: "Settings | None",
        clock: Clock | None,
        sleep: Callable[[float], None] | None,
    ) -> None:
        if listen_url is not None:
            check_listen_url(listen_url)
        self._settings = settings or current_settings()
        bodies: Any = self._settings.blobs if blobs is None else blobs
        if bodies is not None and not isinstance(bodies, str | PathLike):
            raise InvalidValue("blobs", "tenants' bodies are kept under a folder or URL, each tenant's in a folder of its own.")
        self._blobs = None if bodies is None else str(bodies).rstrip("/")
        self._listen_url, self._clock, self._sleep = listen_url, clock, sleep
        self.timer = SharedTimer()
        self._ids: dict[int, IdMinter] = {}
        self.servers = Servers(urls, self._settings, pooler=pooler, rule=rule, map_url=map_url)

    # -- stores

    def open(self, name: str) -> tuple[Store, str]:
        """The tenant's store, newly opened, and the key of its server. UnknownTenant: there is no such tenant."""
        key = self._key(check_tenant(name))
        return self._open(self.servers.server(key), name), key

    def _open(self, server: TenantServer, name: str, *, unfinished: bool = False) -> Store:
        try:
            return self._opened(server, name, migrate=False, unfinished=unfinished)
        except SchemaOutdated as outdated:
            if outdated.found is None:
                raise UnknownTenant("tenant", name) from None
            if server.shares_connections:
                raise
        except NotFound:
            if server.shares_connections:  # the database itself is not there
                raise
            raise UnknownTenant("tenant", name) from None
        return self._opened(server, name, migrate=True, unfinished=unfinished)  # a file, which upgrades itself

    def _opened(self, server: TenantServer, name: str, *, migrate: bool, unfinished: bool) -> Store:
        settings = self._settings
        if self._blobs is not None:
            settings = settings.model_copy(update={"blobs": f"{self._blobs}/{name}"})
        store = Store.on_dialect(
            server.dialect(name), settings, self._clock, self._sleep, migrate=migrate, timer=self.timer, copied_into=unfinished
        )
        runtime = store.runtime
        runtime.listen_url = self._listen_url
        # one minter for all stores with the same clock: each holds some random letters in advance
        runtime.ids = self._ids.setdefault(id(runtime.clock), runtime.ids)
        return store

    def _key(self, name: str) -> str:
        if self.servers.map is None:
            return self.servers.ruled(name)
        entry = self.servers.map.find(name)
        if entry is None:
            raise UnknownTenant("tenant", name)
        if entry.status is not Status.READY:
            verb = "create" if entry.status is Status.CREATING else "drop"
            raise Conflict(f"The tenant {name} is {entry.status.value}, or that was cut short; {verb} it again.")
        return entry.server

    # -- verbs

    def create(self, name: str, server: str | None) -> Tenant:
        check_tenant(name)
        key = self._chosen(name, server)
        if self.servers.map is None:
            if not self._create(self.servers.server(key), name):
                raise Conflict(f"The tenant {name} exists already.", constraint="tenant")
            return Tenant(name, key)
        entry = self.servers.map.add(name, key)
        if entry.status is Status.READY:
            raise Conflict(f"The tenant {name} exists already, on the server {named(entry.server)}.", constraint="tenant")
        if entry.status is Status.DROPPING or entry.server != key:
            what = "dropped" if entry.status is Status.DROPPING else f"created on the server {named(entry.server)}"
            raise Conflict(f"The tenant {name} is being {what}, or that was cut short; end that first.", constraint="tenant")
        self._create(self.servers.server(key), name)
        if not self.servers.map.change(name, Status.CREATING, Status.READY):
            raise Conflict(f"The tenant {name} exists already.", constraint="tenant")
        return Tenant(name, key)

    def _chosen(self, name: str, server: str | None) -> str:
        if self.servers.map is None:
            key = self.servers.ruled(name)
            if server is not None and server != key:
                raise InvalidValue("server", f"the tenant {name} belongs to {named(key)}.")
            return key
        if server is None:
            if len(self.servers.by_key) > 1:
                raise InvalidValue("server", "say on which server the tenant is to be.")
            return next(iter(self.servers.by_key))
        self.servers.server(server)
        return server

    @staticmethod
    def _create(server: TenantServer, name: str, *, unfinished: bool = False) -> bool:
        dialect = server.dialect(name, new=True)
        try:
            return create_new(dialect, unfinished=unfinished)
        finally:
            dialect.connections.dispose()

    def exists(self, name: str) -> bool:
        check_tenant(name)
        if self.servers.map is not None:
            entry = self.servers.map.find(name)
            return entry is not None and entry.status is Status.READY
        return self.servers.server(self.servers.ruled(name)).has(name)

    def drop(self, name: str, confirm: str, server: str | None) -> None:
        self.check_drop(name, confirm)
        if server is not None:
            self.servers.server(server)
        table = self.servers.map
        found = None if table is None else table.find(name)
        if table is None or (server is not None and (found is None or found.server != server)):
            if not self._drop(self.servers.server(self.servers.ruled(name) if server is None else server), name):
                raise UnknownTenant("tenant", name)
            return
        if found is None:
            raise UnknownTenant("tenant", name)
        marked = table.change(name, found.status, Status.DROPPING)
        found = table.find(name)  # the entry may be another one by now, or on another server
        if not marked or found is None:
            raise Conflict(f"Another process has just changed the tenant {name}; look, and drop it again.", constraint="tenants")
        self._drop(self.servers.server(found.server), name)
        table.change(name, Status.DROPPING, None)

    def _drop(self, server: TenantServer, name: str) -> bool:
        """Drop the tenant, and unregister it from the place of its bodies, which stay."""
        bodies: SharedBlobStore | None = None
        if self._blobs is not None:
            with suppress(PersistError), closing(self._opened(server, name, migrate=False, unfinished=True)) as store:
                bodies = store.runtime.blob_store
        dropped = server.drop(name)
        if dropped and bodies is not None:
            with suppress(PersistError):  # not registered, or out of reach: `persist blobs databases --forget` does it
                bodies.forget_own()
        return dropped

    @staticmethod
    def check_drop(name: str, confirm: str) -> None:
        """Raise InvalidValue unless the name of the tenant was given twice."""
        if confirm != check_tenant(name):
            raise InvalidValue("confirm", f"to drop the tenant {name} with all its data, repeat its name.")

    def list_page(self, limit: int, after: str | None, server: str | None) -> Page[Tenant]:
        check_limit(limit)
        filters = {"server": server}
        last = "" if after is None else str(decode_cursor(check_label("after", after), _LIST, filters, (str,))[0])
        if server is not None:
            self.servers.server(server)
        found = self._found(last, limit + 1, server)
        tenants = found[:limit]
        cursor = encode_cursor(_LIST, filters, [tenants[-1].name]) if len(found) > limit else None
        return Page(tenants, cursor)

    def _found(self, after: str, limit: int, server: str | None) -> list[Tenant]:
        if self.servers.map is not None and server is None:
            return [Tenant(entry.name, entry.server) for entry in self.servers.map.page(after, limit)]
        found: list[Tenant] = []
        for key, place in self.servers.by_key.items():
            if server is None or key == server:
                found += [Tenant(name, key) for name in self._names(place, after, limit)]
        return sorted(found, key=lambda tenant: (tenant.name, tenant.server))[:limit]

    @staticmethod
    def _names(place: TenantServer, after: str, limit: int) -> list[str]:
        """Tenants' names at a place, at most `limit`. Schemas and files of other names are left out."""
        names: list[str] = []
        while len(names) < limit and (found := place.names(after, limit)):
            after = found[-1]
            names += filter(is_tenant, found)
        return names[:limit]

    def upgrade_all(self, parallel: int, progress: Progress | None) -> UpgradeReport:
        return upgrade_all(self.servers, parallel=parallel, progress=progress)

    def copy(self, name: str, to: str, new_name: str | None, progress: CopyProgress | None, *, leave_unknown: bool) -> CopyReport:
        source, _ = self.open(name)
        named_so = check_tenant(name if new_name is None else new_name)
        with source:
            target = self.servers.by_key.get(to) or tenant_server(to, self._settings)
            try:
                self._create(target, named_so, unfinished=True)
                with self._open(target, named_so, unfinished=True) as store:
                    return copy_store(source, store, progress=progress, leave_unknown=leave_unknown)
            finally:
                if target not in self.servers.by_key.values():
                    target.close()

    def assign(self, name: str, server: str) -> None:
        check_tenant(name)
        if self.servers.map is None:
            raise InvalidValue("server", "only a map can be told where a tenant is.")
        if not (self.servers.server(server).has(name) and self.servers.map.assign(name, server)):
            raise UnknownTenant("tenant", name)

    def close(self) -> None:
        self.timer.end()
        self.servers.close()
