"""The process-wide cache of compiled statements: stores on the same kind of database and the same schema share it."""

from collections.abc import Callable
from functools import lru_cache

from sqlalchemy import Dialect

from persist.db.statements.prepared import CompiledStatement, Statement, StatementCache
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


_PLACE = "persist_place_of_a_schema"
"""The schema name in statements that are compiled once for every schema."""

PLACE_OF_CHANNEL = "persist_place_of_a_channel"
"""The name of the channel for notifications of events in such statements."""

_HELD = 4096
"""Statements of all tenants that are kept ready; one of 1.5 KB each, and another is made from its template in microseconds."""


class StatementsOfSchema(StatementCache):
    """The statements of one schema of many: the texts of statements that all of them share, with the schema's name put in.

    `channel`: where the schema's readers of events are notified.
    """

    def __init__(self, kind: Kind, schema: str, reader: Rereader, channel: str) -> None:
        dialect = _template(kind, reader).dialect
        super().__init__(dialect, schema, reader)
        name = str(dialect.identifier_preparer.quote_schema(schema))  # in quotes where it is a word of SQL
        self._kind, self._names = kind, (name, channel)

    def __getitem__(self, prepared: Statement) -> CompiledStatement:
        return _in_schema(self._kind, self.reader, prepared, self._names)


@lru_cache(maxsize=_HELD)
def _in_schema(kind: Kind, reader: Rereader, prepared: Statement, names: tuple[str, str]) -> CompiledStatement:
    schema, channel = names
    shared = _template(kind, reader)[prepared]
    return shared.with_text(lambda sql: sql.replace(_PLACE, schema).replace(PLACE_OF_CHANNEL, channel))


@lru_cache(maxsize=4)
def _template(kind: Kind, reader: Rereader) -> StatementCache:
    return StatementCache(kind(paramstyle="format"), _PLACE, reader)
