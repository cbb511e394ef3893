"""Whether a database is spread over the nodes of a cluster, and where on a server its tables are, in SQL."""

from typing import Any

from sqlalchemy import Boolean, String
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement

from persist.db.sqlalchemy_private import made_of


@made_of()
class is_distributed(ColumnElement[Any]):  # noqa: N801  # reads as the SQL it stands for
    """Whether tables may be on other nodes, where a sequence is not."""

    type = Boolean()


@compiles(is_distributed, "sqlite")
def _render_lite(element: is_distributed, compiler: SQLCompiler, **kw: Any) -> str:
    return "NULL"


@compiles(is_distributed, "postgresql")
def _render_pg(element: is_distributed, compiler: SQLCompiler, **kw: Any) -> str:
    return "EXISTS (SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'citus')"


@made_of()
class place_of_tables(ColumnElement[Any]):  # noqa: N801  # reads as the SQL it stands for
    """What tells a table of a server, read in the same query, from one that was restored beside it; NULL in a file."""

    type = String()


@compiles(place_of_tables, "sqlite")
def _render_place_lite(element: place_of_tables, compiler: SQLCompiler, **kw: Any) -> str:
    return "NULL"


@compiles(place_of_tables, "postgresql")
def _render_place_pg(element: place_of_tables, compiler: SQLCompiler, **kw: Any) -> str:
    return "(SELECT datname || ' ' || oid FROM pg_catalog.pg_database WHERE datname = current_database()) || '.' || tableoid"
