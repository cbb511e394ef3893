"""How subagents with a token connect to a server, and whether an operator has let them."""

from collections.abc import Callable
from urllib.parse import quote, urlencode

from sqlalchemy import URL, Integer, Text, bindparam, literal_column, select, text

from persist.db.dialects.subagent_roles import SETTING, policy_of
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
