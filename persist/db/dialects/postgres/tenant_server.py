"""A Postgres database in which each tenant has a schema, and all share one pool of connections."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, text

from persist.db.dialects.interface import Dialect
from persist.db.dialects.postgres.dialect import of_shared_pool, shared_pool
from persist.db.dialects.postgres.schema_locks import EVERYTHING, ONE_SCHEMA
from persist.db.dialects.tenant_servers import TenantServer
from persist.db.schema.base import VERSION_TABLE

_NAMES = text("""
    SELECT n.nspname FROM pg_catalog.pg_namespace n
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = :version AND c.relkind IN ('r', 'p')
    WHERE n.nspname > :after ORDER BY n.nspname LIMIT :limit""")
_HAS = text("""
    SELECT 1 FROM pg_catalog.pg_namespace n
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = :version AND c.relkind IN ('r', 'p')
    WHERE n.nspname = :schema""")
_PATIENCE = text("SET LOCAL lock_timeout = '10s'")


class PostgresTenants(TenantServer):
    """The schemas of one database that hold persist's tables."""

    shares_connections = True

    def __init__(self, url: URL, *, pooler: str | None) -> None:
        self._url, self._pool = url, shared_pool(url, pooler=pooler)
        self._errors = of_shared_pool(self._pool, "persist").errors

    def dialect(self, name: str, *, new: bool = False) -> Dialect:
        return of_shared_pool(self._pool, name)

    def has(self, name: str) -> bool:
        with self._transaction() as connection:
            return connection.execute(_HAS, {"version": VERSION_TABLE, "schema": name}).first() is not None

    def names(self, after: str, limit: int) -> list[str]:
        with self._transaction() as connection:
            found = connection.execute(_NAMES, {"version": VERSION_TABLE, "after": after, "limit": limit})
            return [name for (name,) in found]

    def drop(self, name: str) -> bool:
        with self._transaction() as connection:
            connection.execute(_PATIENCE)
            connection.execute(text(ONE_SCHEMA), {"everything": EVERYTHING, "schema": name})
            if connection.execute(_HAS, {"version": VERSION_TABLE, "schema": name}).first() is None:
                return False
            quoted = connection.dialect.identifier_preparer.quote_schema(name)
            connection.exec_driver_sql(f"DROP SCHEMA {quoted} CASCADE")
            return True

    def place(self, name: str) -> tuple[str, str | None]:
        return self._url.set(drivername="postgresql").render_as_string(hide_password=False), name

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """A transaction on a connection of the pool, apart from those of stores."""
        try:
            with self._pool.connections.engine.begin() as connection:
                yield connection
        except Exception as error:
            raise (self._errors.classify(error) or error) from error
