"""Finds the problems of a store, and repairs those that can be repaired without losing data."""

from dataclasses import replace

from persist.db.dialects.backends import operations_of
from persist.db.dialects.findings import Problem, Severity
from persist.db.operations.upkeep import Checkup
from persist.db.transactions.verb_frame import Verb
from persist.db.values.progress import Progress
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
from persist.maintenance.checkups import CHECKUPS, ROWS
from persist.maintenance.findings import Finding, capped, finding_of, told
from persist.maintenance.snapshots import looking
from persist.store.store import Store
from persist.store.transaction import work_of

_CODES = {
    StoreCorrupt: "corrupt",
    SchemaOutdated: "schema_outdated",
    SchemaTooNew: "schema_newer",
    SchemaUnknown: "schema_unknown",
    UnmanagedDatabase: "unmanaged",
}
_OF_CELLS = (InvalidValue, StoreCorrupt, TypeError, ValueError, LookupError, AttributeError)
"""Errors that a check may raise when it reads an unreadable cell."""


def doctor(store: Store, *, fix: bool = False, full: bool = False, progress: Progress | None = None) -> list[Finding]:
    """Return all problems of the store, the most severe first. The list is empty for a healthy store.

    `full`: also compare every index with its table, if the database can do so. `fix`: repair what is safe to repair: fold text
    and progressions, correct the version mark, create missing indexes, move sequences past the highest id, delete turns
    whose process is dead, and move to the quarantine unreadable rows and rows that should have gone with their parent. No row
    with information is deleted. A damaged file is not written to. Raises ReadOnlyTransaction if `fix` is set on a read-only
    store. `progress`: called with the subject of each check, how many are done, and how many there are.
    """
    if fix and store.runtime.read_only:
        raise ReadOnlyTransaction("doctor(fix=True)")
    store.runtime.check_process()
    store.runtime.refuse_inside_transaction("doctor()")
    tell = progress or _tell_nobody
    checks = 1 + len(CHECKUPS)
    tell("the file", 0, checks)
    damage = _guarded(
        store, "the file", lambda work: operations_of(work.runtime.dialect).integrity(work.select, full=full), fix=False
    )
    if damage:
        return told(finding_of(trouble) for trouble in damage)
    found: list[Finding] = []
    cells = False
    for done, (subject, checkup) in enumerate(CHECKUPS.items(), 1):
        tell(subject, done, checks)
        for trouble in _guarded(store, subject, checkup, fix=fix, cells=cells):
            found.append(repaired(store, trouble) if fix and trouble.repair is not None else finding_of(trouble))
        cells = cells or (subject == ROWS and not all(finding.fixed for finding in found if finding.code == "unreadable"))
    return told(found)


def _tell_nobody(what: str, done: int, total: int) -> None:
    """For those who do not want to know how far it is."""


def finding_of_error(error: PersistError) -> Finding | None:
    """Return the finding for an error raised while a database was opened. None if the error is not about the database."""
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    if code is None:
        return None
    return Finding(code=code, severity=Severity.ERROR, subject="database", message=str(error))


def _guarded(store: Store, subject: str, checkup: Checkup, *, fix: bool, cells: bool = False) -> list[Problem]:
    """Run a check and return its problems; its failure is a problem too, unless unreadable `cells` are known already."""
    try:
        with looking(store, "doctor()") as work:
            return capped(checkup(work), fix=fix)
    except Exception as error:
        if cells and isinstance(error, _OF_CELLS):
            return []
        if not isinstance(error, PersistError):
            raise
        code = "corrupt" if isinstance(error, StoreCorrupt) else "unreadable"
        return [Problem(code, Severity.ERROR, subject, f"{error}")]


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
