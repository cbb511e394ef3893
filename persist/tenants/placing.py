"""On which server a tenant is: the only one, the one that a rule names, or the one that a map says."""

from collections.abc import Callable, Mapping
from os import PathLike

from persist.db.dialects.from_url import tenant_server
from persist.db.dialects.tenant_servers import TenantServer
from persist.errors import InvalidValue
from persist.quoting import named
from persist.settings import Settings
from persist.tenants.tenant_map import TenantMap

ONLY = ""
"""The key of the server of a Tenants that has one."""


class Servers:
    """The servers of a Tenants by their keys, and which one a tenant belongs to."""

    def __init__(
        self,
        urls: str | PathLike[str] | Mapping[str, str],
        settings: Settings,
        *,
        pooler: str | None,
        rule: Callable[[str], str] | None,
        map_url: str | None,
    ) -> None:
        given = {ONLY: urls} if isinstance(urls, str | PathLike) else dict(urls)
        if not given:
            raise InvalidValue("urls", "there is no server.")
        if rule is not None and map_url is not None:
            raise InvalidValue("map_url", "give a rule or a map, not both.")
        if len(given) > 1 and rule is None and map_url is None:
            raise InvalidValue("urls", "for several servers, give a rule that names the server of a tenant, or map_url.")
        self._rule = rule
        self.by_key: dict[str, TenantServer] = {}
        try:
            for key, url in given.items():
                self.by_key[key] = tenant_server(url, settings, pooler=pooler)
            self.map = None if map_url is None else TenantMap(map_url, settings)
        except BaseException:
            self.close()
            raise

    def server(self, key: str) -> TenantServer:
        """The server of that key. Raises InvalidValue if there is none."""
        try:
            return self.by_key[key]
        except KeyError:
            known = ", ".join(map(named, sorted(self.by_key)))
            raise InvalidValue("server", f"{named(key)} is none of the servers {known}.") from None

    def ruled(self, name: str) -> str:
        """The key of the server on which the tenant has to be, where no map says it."""
        if self._rule is None:
            return next(iter(self.by_key))
        key = self._rule(name)
        self.server(key)
        return key

    def close(self) -> None:
        """Close the connections to all servers."""
        for server in self.by_key.values():
            server.close()
        if getattr(self, "map", None) is not None:
            assert self.map is not None
            self.map.close()
