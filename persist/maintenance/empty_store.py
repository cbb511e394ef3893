"""Checks whether a database is empty, apart from the rows that always exist."""

from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements.schema_version import DATABASE_ID
from persist.errors import Conflict
from persist.maintenance.transactions import TABLES, Session

_META = table_of(Meta)
FIXED = frozenset({"schema_version", DATABASE_ID})
"""The keys of the `_meta` rows that are never copied or exported, because each database has its own."""


def first_with_rows(target: Session) -> str | None:
    """Return the first table with rows other than those that always exist, or None for an empty database."""
    for table in TABLES:
        columns = tuple(table.columns)
        seed = [tuple(row.get(column.name) for column in columns) for row in table.info.get("seed", ())]
        for batch in target.bulk.batches(target.whole(table), columns):
            if any(row not in seed and not (table is _META and row[0] in FIXED) for row in batch):
                return table.name
    return None


def refuse_unless_empty(target: Session) -> None:
    """Raise Conflict, which names the first table with rows, unless the database is empty."""
    name = first_with_rows(target)
    if name is not None:
        raise Conflict(f"The target has rows in {name}; it must be empty. Nothing was written.", constraint=name)
