"""The checks that `persist doctor` runs after the file's integrity: catalog, version marks, cells and each domain's rules."""

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from sqlalchemy import Index, column, func, insert, select, type_coerce, update
from sqlalchemy.schema import CreateIndex
from sqlalchemy.types import NullType

from persist.db.dialects.backends import operations_of
from persist.db.dialects.interface import Catalogs, Definition, Problem, Severity
from persist.db.operations.upkeep import Checkup
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements.schema_version import is_newer, version_table
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.db.values.arguments import Progress
from persist.db.values.frozen import Value
from persist.domains import upkeeps
from persist.errors import (
    InvalidValue,
    PersistError,
    ReadOnlyTransaction,
    SchemaOutdated,
    SchemaTooNew,
    SchemaUnknown,
    StoreCorrupt,
    UnmanagedDatabase,
)
from persist.maintenance.erasure_marks import checkup as of_erasures
from persist.maintenance.quarantine import goes_with_parent, set_aside, set_incomplete_aside, set_orphans_aside
from persist.maintenance.transactions import looking
from persist.maintenance.unreadable import bad_rows, key_text
from persist.schema.metadata import HEAD, metadata
from persist.store.store import Store
from persist.store.transaction import work_of

# The findings of `persist doctor`, one for each problem, sorted by severity.

MAX_PER_CODE = 100
_ORDER = list(Severity)


class Finding(Value):
    """A problem found by doctor. `code` is for programs, `message` for people. `subject`: table, file or id. `fixed`: mended."""

    code: str
    severity: Severity
    subject: str
    message: str
    fixed: bool = False


def finding_of(trouble: Problem, *, fixed: bool = False, failed: str | None = None) -> Finding:
    """Return the finding for a problem. `failed`: why its repair failed."""
    message = trouble.message if failed is None else f"{trouble.message} It could not be fixed: {failed}"
    return Finding(code=trouble.code, severity=trouble.severity, subject=trouble.subject, message=message, fixed=fixed)


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by severity, the most severe first."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


def capped(troubles: Iterable[Problem], *, fix: bool) -> list[Problem]:
    """The first hundred problems of each code, and a count of the others; with `fix` also every repairable one."""
    kept: list[Problem] = []
    seen: Counter[str] = Counter()
    last: dict[str, Problem] = {}
    for trouble in troubles:
        seen[trouble.code] += 1
        last[trouble.code] = trouble
        if seen[trouble.code] <= MAX_PER_CODE or (fix and trouble.repair is not None):
            kept.append(trouble)
    listed = Counter(trouble.code for trouble in kept)
    for code, count in (seen - listed).items():
        kept.append(Problem(code, last[code].severity, "…", f"and {count:,} more of this kind."))
    return kept


# Compares the catalog that the models expect with the database's catalog. The functions here run no statements.


def drift(catalogs: Catalogs, *, extras: bool = True) -> Iterator[Problem]:
    """Yield what is missing or different in the database, and with `extras` also what is unknown.

    An error is what statements need, and a unique index: without it rows may be duplicated. An index may have another name, and
    tables that another program made may differ in types and constraints.
    """
    expected, found = catalogs.expected, catalogs.found
    tables = {table: found.get((kind, table, name)) for kind, table, name in expected if kind == "table"}
    others = {
        table for table, there in tables.items() if there is not None and there.detail != expected["table", table, ""].detail
    }
    for table, there in tables.items():
        if there is None:
            yield Problem("table_missing", Severity.ERROR, f"table {table}", "it is not there.")
    for (kind, table, name), definition in expected.items():
        if kind == "table" or tables[table] is None or _under_another_name(catalogs, kind, table, name):
            continue
        for trouble in _compared(kind, table, name, definition, found.get((kind, table, name))):
            yield _of_others(trouble) if table in others or (others and not expected["table", table, ""].detail) else trouble
    if extras:
        yield from _extras(catalogs)
    if catalogs.names_only:
        message = "this role may not make a schema to compare with: only the names of columns and indexes were looked at."
        yield Problem("catalog_by_name", Severity.INFO, "catalog", message)


def _under_another_name(catalogs: Catalogs, kind: str, table: str, name: str) -> bool:
    """Whether the database has an index that differs from the expected one only in its name."""
    wanted = catalogs.expected[kind, table, name].essential
    if "index" not in kind or not wanted or catalogs.found.get((kind, table, name)) == catalogs.expected[kind, table, name]:
        return False
    return any(
        definition.essential.replace(other, name, 1) == wanted
        for (of_kind, of_table, other), definition in catalogs.found.items()
        if (of_kind, of_table) == (kind, table)
    )


def _of_others(trouble: Problem) -> Problem:
    """Lower a warning to INFO for a table that another program created. Errors and problems of indexes keep their severity."""
    if trouble.severity != Severity.WARNING or trouble.code.startswith("index_"):
        return trouble
    return replace(trouble, severity=Severity.INFO, message=f"{trouble.message} Another program made the table.")


def _compared(kind: str, table: str, name: str, wanted: Definition, there: Definition | None) -> Iterator[Problem]:
    what, subject = _noun(kind), _subject(kind, table, name)
    if there is None:
        severity = Severity.ERROR if kind in ("column", "unique index") else Severity.WARNING
        said = "" if kind != "index" else " Queries that need it are slow."
        yield Problem(f"{what}_missing", severity, subject, f"it is not there.{said}")
    elif there.essential != wanted.essential:
        message = f"it is {there.essential or 'without a type'}, and should be {wanted.essential}."
        yield Problem(f"{what}_changed", Severity.WARNING, subject, message)
    elif there.detail != wanted.detail:
        message = f"it is {there.detail or 'without NOT NULL and default'}, and should be {wanted.detail or 'without these'}."
        yield Problem(f"{what}_changed", Severity.INFO, subject, message)


def _extras(catalogs: Catalogs) -> Iterator[Problem]:
    ours = {table for kind, table, _ in catalogs.expected if kind == "table"}
    for kind, table, name in catalogs.found:
        if (kind, table, name) in catalogs.expected or table not in ours:
            continue
        message = f"this {_noun(kind)} is not of this version of persist."
        yield Problem(f"{_noun(kind)}_unknown", Severity.INFO, _subject(kind, table, name), message)


def _noun(kind: str) -> str:
    return kind.removeprefix("unique ")


def _subject(kind: str, table: str, name: str) -> str:
    if kind == "column":
        return f"column {table}.{name}"
    return f"index {name}" if kind != "constraint" else f"constraint {name} of {table}"


_meta = table_of(Meta)
ROWS = "rows"
"""The name of the check that reads every cell. If this check finds unreadable cells, later checks may fail because of them."""
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
        index = indexes.get(trouble.subject.partition(" ")[2]) if trouble.code == "index_missing" else None
        yield trouble if index is None else replace(trouble, repair=partial(_create, index=index))


def check_rows(work: UnitOfWork) -> Iterator[Problem]:
    """Report every cell that persist cannot read. The repair sets its row aside, unless verbs give it as it is."""
    for row in bad_rows(work):
        stays = row.table is _meta or all(cell.word for cell in row.cells)
        repair = None if stays else partial(set_aside, table=row.table, key=row.key)
        for cell in row.cells:
            yield Problem("unreadable", Severity.ERROR, row.name, cell.reason, repair)


def check_missing_values(work: UnitOfWork) -> Iterator[Problem]:
    """Report columns that are empty in other programs' tables, but not in persist's. Reads give None."""
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
    """Report rows that refer to a missing row, or lack what they consist of. Repairs set aside what is of no use without it."""
    for table, parent, count in operations_of(work.runtime.dialect).orphans(work.select, metadata.sorted_tables):
        message = f"rows that refer to a row of {parent} that is not there: {count:,}."
        goes_with_it = any(goes_with_parent(key) and key.referred_table.name == parent for key in table.foreign_key_constraints)
        repair = partial(set_orphans_aside, table=table) if goes_with_it else None
        yield Problem("foreign_key", Severity.ERROR, f"table {table.name}", message, repair)
    for find in filter(None, (upkeep.incomplete for upkeep in upkeeps().values())):
        for table, key, lack in find(work):
            subject = f"{table.name} {key_text(table, list(key.values()))}"
            repair = partial(set_incomplete_aside, table=table, key=key, cause=lack)
            yield Problem("incomplete", Severity.ERROR, subject, lack, repair)


_OF_DOMAINS = {name.replace("_", " "): check for name, upkeep in upkeeps().items() if (check := upkeep.checkup) is not None}
CHECKUPS: dict[str, Checkup] = {
    "the schema's version": check_marks,
    "the catalog": check_catalog,
    ROWS: check_rows,
    "missing values": check_missing_values,
    "foreign keys": check_references,
    "the surroundings": lambda work: operations_of(work.runtime.dialect).surroundings(work.select, metadata.sorted_tables),
    **dict(sorted({**_OF_DOMAINS, "erasures": of_erasures}.items())),
}
"""Every check by its subject, in the order in which the checks run. A domain with a check of its own has an entry."""


def _restamp(work: UnitOfWork) -> None:
    if not work.select(update(_meta).where(_MARK).values(value=HEAD)).rowcount:
        work.select(insert(_meta).values(key="schema_version", value=HEAD))


def _create(work: UnitOfWork, *, index: Index) -> None:
    work.select(CreateIndex(index, if_not_exists=True))


# Finds the problems of a store, and repairs those that can be repaired without losing data.

_CODES = {
    StoreCorrupt: "corrupt",
    SchemaOutdated: "schema_outdated",
    SchemaTooNew: "schema_newer",
    SchemaUnknown: "schema_unknown",
    UnmanagedDatabase: "unmanaged",
}
_OF_CELLS = (InvalidValue, StoreCorrupt, TypeError, ValueError, LookupError, AttributeError)
"""Errors that a check may raise when it reads an unreadable cell."""


def doctor(
    store: Store, *, fix: bool = False, full: bool = False, progress: Progress | None = None, seconds: float | None = None
) -> list[Finding]:
    """Return all problems of the store, the most severe first. The list is empty for a healthy store.

    `full`: also compare every index with its table, if the database can do so. `fix`: repair what is safe to repair: fold text
    and progressions, correct the version mark, create missing indexes, move sequences past the highest id, delete turns
    whose process is dead, and move to the quarantine unreadable rows and rows that should have gone with their parent. No row
    with information is deleted. A damaged file is not written to. Raises ReadOnlyTransaction if `fix` is set on a read-only
    store. `progress`: called with the subject of each check, how many are done, and how many there are. `seconds`: when to stop;
    a finding then says which checks were left out.
    """
    if fix and store.runtime.read_only:
        raise ReadOnlyTransaction("doctor(fix=True)")
    store.runtime.check_process()
    store.runtime.refuse_inside_transaction("doctor()")
    tell = progress or (lambda *_: None)
    until = None if seconds is None else time.monotonic() + seconds
    checks = 1 + len(CHECKUPS)
    tell("the file", 0, checks)
    integrity = operations_of(store.runtime.dialect).integrity
    damage = _guarded(store, "the file", lambda work: integrity(work.select, full=full), fix=False, until=until)
    left_out = [] if damage is not None else ["the file"]
    if damage:
        return by_severity(finding_of(trouble) for trouble in damage)
    found: list[Finding] = []
    cells = False
    for done, (subject, checkup) in enumerate(CHECKUPS.items(), 1):
        tell(subject, done, checks)
        troubles = _guarded(store, subject, checkup, fix=fix, cells=cells, until=until)
        if troubles is None:
            left_out.append(subject)
        for trouble in troubles or ():
            found.append(repaired(store, trouble) if fix and trouble.repair is not None else finding_of(trouble))
        cells = cells or (subject == ROWS and not all(finding.fixed for finding in found if finding.code == "unreadable"))
    if left_out:
        message = f"the time was over before these were looked at: {', '.join(left_out)}."
        found.append(finding_of(Problem("not_examined", Severity.INFO, "doctor", message)))
    return by_severity(found)


def finding_of_error(error: PersistError) -> Finding | None:
    """Return the finding for an error raised while a database was opened. None if the error is not about the database."""
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    return None if code is None else Finding(code=code, severity=Severity.ERROR, subject="database", message=str(error))


def _guarded(
    store: Store, subject: str, checkup: Checkup, *, fix: bool, cells: bool = False, until: float | None = None
) -> list[Problem] | None:
    """Run a check and return its problems; its failure is a problem too, unless unreadable `cells` are known already.

    Return None if it did not end by the instant `until`: what it found by then may be due to its interruption.
    """
    if until is not None and time.monotonic() > until:
        return None
    try:
        with looking(store, "doctor()") as work, _interrupted(work, until):
            found = capped(checkup(work), fix=fix)
    except Exception as error:
        if until is not None and time.monotonic() > until:
            return None
        if cells and isinstance(error, _OF_CELLS):
            return []
        if not isinstance(error, PersistError):
            raise
        code = "corrupt" if isinstance(error, StoreCorrupt) else "unreadable"
        return [Problem(code, Severity.ERROR, subject, f"{error}")]
    return None if until is not None and time.monotonic() > until else found


_AGAIN = 0.05
"""Seconds between two interruptions: one may come between two statements."""


@contextmanager
def _interrupted(work: UnitOfWork, until: float | None) -> Iterator[None]:
    """Interrupt what is read in the block from the instant `until` on."""
    if until is None:
        yield
        return
    ended = threading.Event()

    def interrupt() -> None:
        wait = max(0.0, until - time.monotonic())
        while not ended.wait(wait):
            work.interrupt()
            wait = _AGAIN

    interrupting = threading.Thread(target=interrupt, name="persist-doctor", daemon=True)
    interrupting.start()
    try:
        yield
    finally:
        ended.set()
        interrupting.join()


def repaired(store: Store, trouble: Problem) -> Finding:
    """Repair a problem in a transaction of its own; return the finding, which says whether that failed."""
    assert trouble.repair is not None
    try:
        with store.begin() as tx, Verb(work_of(tx), "doctor(fix=True)", writes=True):
            said = trouble.repair(work_of(tx))
    except PersistError as error:
        return finding_of(trouble, failed=str(error))
    done = replace(trouble, message=f"{trouble.message} {said}") if isinstance(said, str) else trouble
    return finding_of(done, fixed=True)
