"""Statistics of a store for operators: sizes, row counts, large values, statuses and settings."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Column, LargeBinary, Table, func, select
from sqlalchemy.types import BigInteger

from persist.db.dialects.backends import operations_of
from persist.db.dialects.operations import DatabaseOperations
from persist.db.schema.column_types import EnumText, FreeText, Json
from persist.db.statements.schema_version import version_table
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.progress import Progress
from persist.maintenance.snapshots import looking
from persist.schema.metadata import HEAD, domain_of, metadata
from persist.store.store import Store

_LARGE = (FreeText, Json, LargeBinary)
_STATUS = ("status", "state")


def stats(store: Store, *, progress: Progress | None = None) -> dict[str, Any]:
    """Return statistics of the whole store as a JSON object, from one snapshot. Every table is scanned; sizes are in bytes.

    database    dialect, version, path (None in memory) or database and schema, bytes, revision, head;
                for a file wal_bytes, page_size, pages, free_pages; for a server database_bytes (other schemas included)
    tables      by table: domain, rows, bytes (with indexes; None if unknown);
                on a server dead_rows, last_vacuum, last_analyze (ISO 8601, or None), but not on a cluster
    indexes     a list of table, name, bytes (None if unknown); on a server unique, and scans since its statistics began, which
                a cluster does not tell
    blobs       by table and column: the bytes of the values that may be large, as they are stored
    statuses    by domain and table: by_status, and null (rows without one)
    settings    by the database's own names

    `progress`: called with the name of each table, how many are done, and how many there are.
    """
    upkeep = operations_of(store.runtime.dialect)
    with looking(store, "stats()") as work:
        sizes = upkeep.table_facts(work.select)
        database = upkeep.facts(work.select)
        database |= {"revision": work.select(select(version_table.c.version_num)).scalar(), "head": HEAD}
        found: dict[str, Any] = {"database": database, "tables": {}, "indexes": upkeep.index_facts(work.select), "blobs": {}}
        statuses: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        tables = metadata.sorted_tables
        for done, table in enumerate(tables):
            if progress is not None:
                progress(table.name, done, len(tables))
            rows, large = _contents(work, upkeep, table)
            found["tables"][table.name] = {"domain": domain_of(table), "rows": rows, "bytes": None, **sizes.get(table.name, {})}
            if large:
                found["blobs"][table.name] = large
            for column in _status_columns(table):
                statuses[domain_of(table)][table.name] = _distribution(work, column)
        return found | {"statuses": dict(statuses), "settings": upkeep.settings(work.select)}


def database_facts(store: Store) -> dict[str, Any]:
    """Return the database's own facts from `stats`, without reading tables."""
    with looking(store, "stats()") as work:
        return operations_of(store.runtime.dialect).facts(work.select)


def _contents(work: UnitOfWork, upkeep: DatabaseOperations, table: Table) -> tuple[int, dict[str, int]]:
    large = [column for column in table.columns if isinstance(column.type, _LARGE)]
    sums = [func.sum(upkeep.stored_size(column), type_=BigInteger()) for column in large]
    found: Sequence[Any] = work.select(select(func.count(), *sums).select_from(table)).one()
    rows, *sizes = found
    return rows, {column.name: int(size or 0) for column, size in zip(large, sizes, strict=True)}


def _status_columns(table: Table) -> Iterator[Column[Any]]:
    for column in table.columns:
        if column.name in _STATUS and isinstance(column.type, EnumText):
            yield column


def _distribution(work: UnitOfWork, column: Column[Any]) -> dict[str, Any]:
    counts: Sequence[Any] = work.select(select(column, func.count()).group_by(column).order_by(column)).fetchall()
    by_status = {str(word): count for word, count in counts if word is not None}
    return {"by_status": by_status, "null": sum(count for word, count in counts if word is None)}
