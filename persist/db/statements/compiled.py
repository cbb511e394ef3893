"""The process-wide cache of compiled statements: stores on the same kind of database and the same schema share it."""

from collections.abc import Callable
from functools import lru_cache

from sqlalchemy import Dialect

from persist.db.statements.prepared import StatementCache
from persist.db.unreadable.rereading import Rereader

Kind = Callable[..., Dialect]


@lru_cache(maxsize=16)  # with more schemas than that, statements of the least recently used one are compiled again
def compiled_for(kind: Kind, schema: str | None, reader: Rereader) -> StatementCache:
    """The statements compiled for a dialect (SQLAlchemy's class) and a schema; `schema` is None on SQLite."""
    if schema is not None:
        return StatementCache(kind(paramstyle="format"), schema, reader)
    dialect = kind()
    dialect.default_schema_name = "main"
    return StatementCache(dialect, None, reader)
