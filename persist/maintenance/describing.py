"""What operators ask of a store: sizes, row counts, large values, statuses and settings, and a picture of its tables."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Column, ForeignKeyConstraint, LargeBinary, MetaData, Table, func, select
from sqlalchemy.types import BigInteger, Double, TypeDecorator, TypeEngine

from persist.db.dialects.backends import operations_of
from persist.db.dialects.interface import DatabaseOperations
from persist.db.schema.column_types import EnumText, FreeText, Json
from persist.db.statements.schema_version import version_table
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import Progress
from persist.errors import InvalidValue, shown
from persist.maintenance.transactions import looking
from persist.schema.metadata import HEAD, domain_of
from persist.schema.metadata import metadata as ours
from persist.store.store import Store

# The tables as a Mermaid entity-relationship diagram, drawn from the models.

_PLAIN: dict[type[TypeEngine[Any]], str] = {BigInteger: "bigint", Double: "double", LargeBinary: "bytes"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def erd(metadata: MetaData | None = None, *, domain: str | None = None) -> str:
    """Return a Mermaid `erDiagram` with tables, columns, types (of `db.schema.column_types`), PK and FK marks, and references.

    `metadata`: the tables to draw; by default those of persist. `domain`: draw only its tables. Raises InvalidValue if unknown.
    """
    tables = sorted((metadata or ours).tables.values(), key=lambda table: table.name)
    if domain is not None:
        known = sorted({domain_of(table) for table in tables})
        if domain not in known:
            raise InvalidValue("domain", f"{shown(domain)} is none of {', '.join(known)}.")
        tables = [table for table in tables if domain_of(table) == domain]
    drawn = set(tables)
    lines = ["erDiagram"]
    for table in tables:
        lines += [f"    {_quoted(table.name)} {{", *(f"        {line}" for line in map(_column, table.columns)), "    }"]
    for table in tables:
        lines += [f"    {_relation(key)}" for key in _references(table) if key.referred_table in drawn]
    return "\n".join(lines) + "\n"


def _column(column: Column[object]) -> str:
    marks = [mark for mark, on in (("PK", column.primary_key), ("FK", bool(column.foreign_keys))) if on]
    return f"{_type(column.type)} {column.name} {', '.join(marks)}".rstrip()


def _type(kind: TypeEngine[object]) -> str:
    if isinstance(kind, TypeDecorator):
        return type(kind).__name__.lower()
    return next((word for plain, word in _PLAIN.items() if isinstance(kind, plain)), type(kind).__name__.lower())


def _references(table: Table) -> Iterator[ForeignKeyConstraint]:
    """Yield each reference once. If the dialects declare it with different foreign keys, yield the one with more columns."""
    keys = sorted(table.foreign_key_constraints, key=lambda key: tuple(key.column_keys))
    for key in keys:
        wider = [other for other in keys if other.referred_table is key.referred_table]
        if not any(set(key.column_keys) < set(other.column_keys) for other in wider):
            yield key


def _relation(key: ForeignKeyConstraint) -> str:
    """Draw a foreign key: parent left, child right. A nullable key has an optional parent; a primary key at most one child."""
    parent = "|o" if any(column.nullable for column in key.columns) else "||"
    child = "o|" if set(key.columns) == set(key.table.primary_key.columns) else "o{"
    return f'{_quoted(key.referred_table.name)} {parent}--{child} {_quoted(key.table.name)} : "{", ".join(key.column_keys)}"'


def _quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else f'"{name}"'


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
        found: dict[str, Any] = {
            "database": facts_in(work),
            "tables": {},
            "indexes": upkeep.index_facts(work.select),
            "blobs": {},
        }
        statuses: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        tables = ours.sorted_tables
        for done, table in enumerate(tables):
            if progress is not None:
                progress(table.name, done, len(tables))
            rows, large = _contents(work, upkeep, table)
            found["tables"][table.name] = {"domain": domain_of(table), "rows": rows, "bytes": None, **sizes.get(table.name, {})}
            if large:
                found["blobs"][table.name] = large
            for column in (one for one in table.columns if one.name in _STATUS and isinstance(one.type, EnumText)):
                statuses[domain_of(table)][table.name] = _distribution(work, column)
        return found | {"statuses": dict(statuses), "settings": upkeep.settings(work.select)}


def facts_in(work: UnitOfWork) -> dict[str, Any]:
    """The database's own facts with its revision, as `stats` has them, without reading tables."""
    revision = work.select(select(version_table.c.version_num)).scalar()
    return {**operations_of(work.runtime.dialect).facts(work.select), "revision": revision, "head": HEAD}


def tables_in(work: UnitOfWork) -> dict[str, dict[str, Any]]:
    """Domain, rows and bytes by table, and what else the database knows of each, as `stats` has them: every table is scanned."""
    sizes = operations_of(work.runtime.dialect).table_facts(work.select)
    return {
        table.name: {
            "domain": domain_of(table),
            "rows": work.select(select(func.count()).select_from(table)).scalar(),
            "bytes": None,
            **sizes.get(table.name, {}),
        }
        for table in ours.sorted_tables
    }


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


def _distribution(work: UnitOfWork, column: Column[Any]) -> dict[str, Any]:
    counts: Sequence[Any] = work.select(select(column, func.count()).group_by(column).order_by(column)).fetchall()
    by_status = {str(word): count for word, count in counts if word is not None}
    return {"by_status": by_status, "null": sum(count for word, count in counts if word is None)}
