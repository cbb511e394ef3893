"""One server whose tenants have a database each: a schema on Postgres, a file in a folder on SQLite."""

from abc import ABC, abstractmethod

from persist.db.dialects.interface import Dialect


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

    @abstractmethod
    def close(self) -> None:
        """Close the connections that the tenants' stores share."""
