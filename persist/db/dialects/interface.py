"""A database dialect: the facts in which SQLite and Postgres differ, and one object for each thing that they do differently.

Administrative tools, which a store seldom needs, are in persist.db.dialects.backends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from persist.db.dialects.connections import Connections
from persist.db.dialects.errors import Errors
from persist.db.dialects.event_log import EventLogSupport
from persist.db.dialects.tables import Tables
from persist.db.dialects.transactions import Transactions
from persist.db.statements.compiled import Kind, StatementsOfSchema, compiled_for

if TYPE_CHECKING:
    from persist.db.statements.prepared import StatementCache
    from persist.db.unreadable.rereading import Rereader


@dataclass(eq=False, kw_only=True)
class Dialect:
    """The database of one store."""

    name: str
    sqlalchemy_dialect: Kind
    """SQLAlchemy's dialect class for this database."""
    schema: str | None = None
    """The schema that holds persist's tables; None on SQLite."""
    path: Path | None = None
    """The SQLite file; None for `:memory:` and on Postgres."""
    read_only: bool = False
    in_memory: bool = False
    one_file: bool
    """Whether the database is one file, which may belong to one run, instance or workspace."""
    one_writer: bool
    """Whether writers queue on the store's own lock before they ask the database."""
    batches_rows: bool
    """Whether one statement for many rows is faster than one driver call for each row."""
    pipelines: bool
    """Whether the statements of a batch are sent together (`queue` and `flush` of what `begin` and `runner` return)."""
    autocommits_single_statement: bool
    """Whether a single statement on the pinned connection commits by itself, durably and without a BEGIN."""
    one_of_many: bool = False
    """Whether its connections and statements are shared with the stores of other schemas of the server."""
    write_lock_timeout: float = 10.0
    """Seconds after which the attempts to take the write lock end."""

    rereader: "Rereader"
    """Reads values that the driver cannot convert; shared by all stores of this dialect."""
    to_plain_json: Callable[[str], str]
    """Converts the stored text of a Json column to plain JSON text."""

    connections: Connections
    transactions: Transactions
    errors: Errors
    event_log: EventLogSupport
    tables: Tables

    @cached_property
    def prepared(self) -> "StatementCache":
        """The cache of compiled statements for this dialect and schema."""
        if self.one_of_many and self.schema is not None:
            return StatementsOfSchema(self.sqlalchemy_dialect, self.schema, self.rereader, self.event_log.channel)
        return compiled_for(self.sqlalchemy_dialect, self.schema, self.rereader)
