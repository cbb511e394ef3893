"""A Postgres database in which each tenant has a schema, and all share one pool of connections."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from urllib.parse import quote, urlencode

from sqlalchemy import URL, Connection, Integer, Text, bindparam, literal_column, select, text

from persist.db.dialects.interface import Dialect, TenantServer
from persist.db.dialects.postgres.dialect import of_shared_pool, shared_pool
from persist.db.dialects.postgres.upgrading import EVERYTHING, ONE_SCHEMA
from persist.db.schema.base import VERSION_TABLE
from persist.db.statements.prepared import Row, Statement

_FROM = (
    "pg_catalog.pg_policies p JOIN pg_catalog.pg_roles r ON r.rolname = ANY(p.roles)"
    " JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname"
    " JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename"
)
_READY = Statement(
    select(literal_column("count(*)", Integer()))
    .select_from(text(_FROM))
    .where(
        literal_column("p.schemaname", Text()) == bindparam("schema", type_=Text()),
        literal_column("p.policyname", Text()) == bindparam("policy", type_=Text()),
        literal_column("r.rolname", Text()) == bindparam("role", type_=Text()),
        text("c.relrowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls"),
    )
)
_TABLES = 3
_TOLD = frozenset({"host", "hostaddr", "port", "sslmode", "sslrootcert", "connect_timeout"})
"""The parameters of a store's URL that a subagent is told: none of the owner's secrets and files."""


SETTING = "persist.subagent_token"
"""The setting of a session that holds its token."""


def policy_of(role: str) -> str:
    """The name of the policy that keeps a role to its rows; roles of long names have one, too."""
    return f"rows_of_a_subagent_{sha256(role.encode()).hexdigest()[:16]}"


class SubagentAccess:
    """The server and schema of a store, for roles that `persist grants --role subagent` has made."""

    def __init__(self, url: URL, schema: str) -> None:
        self._url, self._schema = url, schema

    def is_ready(self, row: Callable[..., Row | None], role: str) -> bool:
        """Whether row security keeps the role to the rows of its token. `row` runs a prepared statement."""
        found = row(_READY, schema=self._schema, policy=policy_of(role), role=role)
        return found is not None and found[0] == _TABLES

    def server(self, role: str) -> str:
        """How the role connects, without a token and without a password."""
        return self._with(role, {})

    def options(self, token: str) -> str:
        """The options of a connection with that token."""
        return f"-c {SETTING}={token} -c search_path={self._schema}"

    def dsn(self, role: str, token: str) -> str:
        """How the role connects with that token."""
        return self._with(role, {"options": self.options(token)})

    def _with(self, role: str, more: dict[str, str]) -> str:
        kept = {name: value for name, value in self._url.query.items() if name in _TOLD} | more
        url = URL.create("postgresql", role, None, self._url.host, self._url.port, self._url.database)
        query = urlencode(kept, doseq=True, quote_via=quote)  # the server's library takes no + for a space
        return url.render_as_string(hide_password=False) + (f"?{query}" if query else "")


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
        with self._errors.translated(), self._pool.connections.engine.begin() as connection:
            yield connection
