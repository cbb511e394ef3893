"""The checks that `persist doctor` runs after the file's integrity: catalog, version marks, cells and each domain's rules."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from sqlalchemy import Index, column, func, insert, select, type_coerce, update
from sqlalchemy.schema import CreateIndex
from sqlalchemy.types import NullType

from persist.db.dialects.backends import operations_of
from persist.db.dialects.findings import Problem, Severity
from persist.db.operations.upkeep import Checkup
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements.schema_version import is_newer, version_table
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.domains import upkeeps
from persist.maintenance.drift import drift, index_of
from persist.maintenance.erasure_marks import checkup as of_erasures
from persist.maintenance.setting_aside import set_aside, set_orphans_aside
from persist.maintenance.unreadable import bad_rows
from persist.schema.metadata import HEAD, metadata

_meta = table_of(Meta)
ROWS = "rows"
"""The name of the check that reads every cell. If it finds unreadable cells, the checks after it may fail because of them."""
_MARK = _meta.c.key == "schema_version"


def check_marks(work: UnitOfWork) -> Iterator[Problem]:
    """Check that the version table and `_meta.schema_version` agree, and that neither is newer than this package."""
    found = work.select(select(version_table.c.version_num)).scalar()
    noted = work.select(select(_meta.c.value).where(_MARK)).scalar()
    if newer := [mark for mark in (found, noted) if is_newer(mark)]:
        message = f"the database is at {newer[0]}, newer than {HEAD}, the newest this version knows; upgrade persist."
        yield Problem("schema_newer", Severity.INFO, "schema", message)
    elif noted != found:
        message = f"_meta says {noted or 'nothing'} of the schema's version, which is {found}."
        yield Problem("version_marks", Severity.WARNING, "schema", message, _restamp if found == HEAD else None)


def check_catalog(work: UnitOfWork) -> Iterator[Problem]:
    """Compare the database's catalog with the models. Unknown ones are reported only at this package's revision."""
    catalogs = operations_of(work.runtime.dialect).catalogs(work.select, metadata)
    current = work.select(select(version_table.c.version_num)).scalar() == HEAD
    tables = {table.name: table for table in metadata.sorted_tables}
    indexes = {str(index.name): index for table in metadata.sorted_tables for index in table.indexes}
    for trouble in drift(catalogs, extras=current):
        if trouble.code == "column_unknown":
            table, _, name = trouble.subject.removeprefix("column ").partition(".")
            values = work.select(select(func.count(column(name))).select_from(tables[table])).scalar()
            yield replace(trouble, message=f"{trouble.message} It holds {values:,} {'value' if values == 1 else 'values'}.")
            continue
        index = indexes.get(index_of(trouble) or "")
        yield trouble if index is None else replace(trouble, repair=partial(_create, index=index))


def check_rows(work: UnitOfWork) -> Iterator[Problem]:
    """Report every cell that persist cannot read. The repair moves its row to the quarantine, except for rows of `_meta`."""
    for row in bad_rows(work):
        repair = None if row.table is _meta else partial(set_aside, table=row.table, key=row.key)
        for cell in row.cells:
            yield Problem("unreadable", Severity.ERROR, row.name, cell.reason, repair)


def check_missing_values(work: UnitOfWork) -> Iterator[Problem]:
    """Report columns of other programs' tables that hold nothing where persist's own hold something. Reads give None."""
    there = work.whole_tables.names()
    for table in metadata.sorted_tables:
        names = sorted(work.whole_tables.may_lack(table)) if table.name in there else []
        if names:
            counts = [func.count() - func.count(type_coerce(table.c[name], NullType())) for name in names]
            found = zip(names, work.select(select(*counts).select_from(table)).one(), strict=True)
            if empty := ", ".join(f"{name} of {count:,}" for name, count in found if count):
                message = f"rows hold nothing where tables of persist hold something: {empty}. Reads give None."
                yield Problem("value_missing", Severity.INFO, f"table {table.name}", message)


def check_references(work: UnitOfWork) -> Iterator[Problem]:
    """Report rows whose foreign key refers to a missing row. The repair sets those aside that would have gone with it."""
    for table, parent, count in operations_of(work.runtime.dialect).orphans(work.select, metadata.sorted_tables):
        message = f"rows that refer to a row of {parent} that is not there: {count:,}."
        goes_with_it = any(
            key.ondelete == "CASCADE" and key.referred_table.name == parent for key in table.foreign_key_constraints
        )
        repair = partial(set_orphans_aside, table=table) if goes_with_it else None
        yield Problem("foreign_key", Severity.ERROR, f"table {table.name}", message, repair)


def check_surroundings(work: UnitOfWork) -> Iterator[Problem]:
    """Check the database's settings, the location of its file, invalid indexes and sequences."""
    yield from operations_of(work.runtime.dialect).surroundings(work.select, metadata.sorted_tables)


_OF_DOMAINS = {name.replace("_", " "): check for name, upkeep in upkeeps().items() if (check := upkeep.checkup) is not None}
CHECKUPS: dict[str, Checkup] = {
    "the schema's version": check_marks,
    "the catalog": check_catalog,
    ROWS: check_rows,
    "missing values": check_missing_values,
    "foreign keys": check_references,
    "the surroundings": check_surroundings,
    **dict(sorted({**_OF_DOMAINS, "erasures": of_erasures}.items())),
}
"""Every check by its subject, in the order in which the checks run. A domain with a check of its own has an entry."""


def _restamp(work: UnitOfWork) -> None:
    if not work.select(update(_meta).where(_MARK).values(value=HEAD)).rowcount:
        work.select(insert(_meta).values(key="schema_version", value=HEAD))


def _create(work: UnitOfWork, *, index: Index) -> None:
    work.select(CreateIndex(index, if_not_exists=True))
