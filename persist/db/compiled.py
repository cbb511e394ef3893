"""The compiled statements of this process: stores on the same kind of database and the same schema share them."""

from collections.abc import Callable
from functools import lru_cache

from sqlalchemy import Dialect

from persist.db.hot import HotCache
from persist.db.rereading import Rereader

Kind = Callable[..., Dialect]


@lru_cache(maxsize=16)  # schemas; the statements of one more are compiled again when it comes back
def compiled_for(kind: Kind, schema: str | None, reader: Rereader) -> HotCache:
    """The statements for a kind of database, which is SQLAlchemy's class, and a schema; None where there are no schemas."""
    if schema is not None:
        return HotCache(kind(paramstyle="format"), schema, reader)
    made = kind()
    made.default_schema_name = "main"
    return HotCache(made, None, reader)
