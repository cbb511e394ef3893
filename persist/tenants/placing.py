"""Which names tenants may have, and on which server each is: the only one, or one that a rule or a map names."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike

from persist.db.dialects.backends import tenant_server
from persist.db.dialects.tenant_servers import TenantServer
from persist.errors import InvalidValue, named
from persist.settings import Settings
from persist.tenants.open_stores import TenantMap

# Which names tenants may have: those that mean one tenant everywhere, as a schema, a file and a word in a command.

MAX_BYTES = 63
"""The longest name in bytes: Postgres cuts longer identifiers off, so that two tenants would share a schema."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_OF_SERVERS = {"public", "information_schema", "citus", "citus_internal", "columnar", "columnar_internal"}
_OF_WINDOWS = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
_BEGINNINGS = ("pg_", "persist")


def is_tenant(name: str) -> bool:
    """Whether a tenant may have the name."""
    return (
        _NAME.fullmatch(name) is not None
        and name not in _OF_SERVERS
        and name not in _OF_WINDOWS
        and not name.startswith(_BEGINNINGS)
    )


def check_tenant(name: object) -> str:
    """Return the name of a tenant, or raise InvalidValue.

    A name has lower-case letters of ASCII, digits and underscores, begins with a letter, and has at most 63 bytes. Capital
    letters are refused, because some file systems and unquoted SQL do not tell them apart, and letters outside of ASCII, because
    one of them can be written in several ways. Names that the databases, Windows or persist keep for themselves are refused.
    """
    if not isinstance(name, str):
        raise InvalidValue("tenant", f"{named(name)} is not text.")
    if len(name.encode("utf-8", "replace")) > MAX_BYTES:
        raise InvalidValue("tenant", f"{named(name)} is longer than {MAX_BYTES} bytes.")
    if _NAME.fullmatch(name) is None:
        raise InvalidValue(
            "tenant", f"{named(name)} is no name of lower-case letters a to z, digits and underscores that begins with a letter."
        )
    if not is_tenant(name):
        raise InvalidValue("tenant", f"{named(name)} is a name that the database, Windows or persist keeps for itself.")
    return name


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant, and the key of the server that it is on: "" where there is one server."""

    name: str
    server: str


class UpgradeStatus(StrEnum):
    """What became of a tenant in `upgrade_all`."""

    UPGRADED = "upgraded"
    CURRENT = "current"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class UpgradeOutcome:
    """What `upgrade_all` did with one tenant. `found`: its revision before; `error`: why it failed, in one sentence."""

    tenant: str
    server: str
    status: UpgradeStatus
    found: str | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """The outcome of every tenant, by server and name."""

    outcomes: tuple[UpgradeOutcome, ...]

    @property
    def failed(self) -> tuple[UpgradeOutcome, ...]:
        """The outcomes of the tenants that could not be upgraded, and are as they were."""
        return tuple(outcome for outcome in self.outcomes if outcome.status is UpgradeStatus.FAILED)

    def count(self, status: UpgradeStatus) -> int:
        """How many tenants have that status."""
        return sum(outcome.status is status for outcome in self.outcomes)


# On which server a tenant is: the only one, the one that a rule names, or the one that a map says.

ONLY = ""
"""The key of the server, if the Tenants has only one."""


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
