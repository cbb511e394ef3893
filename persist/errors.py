"""Every failure of persist is a `PersistError`, with fields, and also the built-in exception a caller would catch.

    PersistError
    ├── NotFound, its UnknownTenant (LookupError) kind, id
    ├── Conflict (RuntimeError)                   constraint
    │   └── BudgetExceeded                        key, period, cost_usd_micros, tokens
    ├── TransitionError (RuntimeError)            subject, current, requested
    │   └── RunHeld                               run_id, host, pid, since, seen_at
    ├── LeaseLost (RuntimeError)                  run_id, token, kind
    ├── EffectUnknown (RuntimeError)              run_id, key, attempts
    ├── InvalidValue (ValueError)                 path, reason
    │   ├── RecursionLimitExceeded                depth, limit
    │   ├── PayloadTooLarge                       path, size, limit
    │   └── StreamProtocolError                   index, chunk_type
    ├── NotPermitted (PermissionError)            reason
    ├── TransactionError (RuntimeError)
    │   ├── ReadOnlyTransaction                   verb
    │   ├── TransactionOpen, WrongOwner           what
    │   └── TransactionAborted
    ├── StoreError (RuntimeError)
    │   ├── StoreForked, StoreInUse
    │   ├── Closed                                what
    │   ├── UnsupportedEngine                     found, reason
    │   └── StoreCorrupt                          path, reason
    │       ├── BlobUnreadable                    sha256, reason
    │       └── UnreadableRow                     table, key, column, reason
    ├── SchemaError (RuntimeError)
    │   ├── SchemaOutdated, SchemaTooNew, SchemaUnknown    found, known (and command, or place)
    │   ├── UnmanagedDatabase                     tables
    │   ├── CopyUnfinished                        command
    │   └── MigrationFailed                       path, from_version, to_version, revision, step
    ├── StoreBusy (OSError)                       waited, reason
    │   └── EventLogSwitched
    ├── StoreFull (OSError)                       path
    └── Unavailable (OSError)                     outcome ("rolled back" | "unknown")

No driver or SQLAlchemy exception leaves the public API; the original is kept as `__cause__`.
"""

import copyreg
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

_SHOWN = 200
_LONGEST_NAME = 32_767  # what Windows takes, which takes the longest


def shown(value: Any, maximum: int = _SHOWN) -> str:
    """What a message says of a value that a caller gave: short, cut in the middle, and never a failure of its own."""
    if type(value) in (str, bytes) and len(value) > 2 * maximum:
        value = value[:maximum] + value[-maximum:]  # a repr of all of it would take as much again
    try:
        text = repr(value)
    except Exception:  # too deep, a number of too many digits, or a class that fails
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= maximum else f"{text[: maximum // 2]}…{text[-(maximum // 2) :]}"


def named(name: object) -> str:
    """What a message says of a path, URL or id: all of it, since names often differ only at the end."""
    return shown(name, _LONGEST_NAME)


class PersistError(Exception):
    """The root of every exception that persist raises on purpose. It can be pickled, so it survives a process pool."""

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), {**self.__dict__, "args": self.args}  # type: ignore[attr-defined]  # not in its stub


class NotFound(PersistError, LookupError):
    """No row (or file) of that kind has that id."""

    def __init__(self, kind: str, id: str) -> None:
        self.kind, self.id = kind, id
        super().__init__(f"There is no {kind} {named(id)}.")


class UnknownTenant(NotFound):
    """No server has a tenant of that name (`id`), and none was created."""


class Conflict(PersistError, RuntimeError):
    """The write contradicts what is stored: a unique key, a foreign key, or another owner's running work."""

    def __init__(self, message: str, *, constraint: str | None = None) -> None:
        self.constraint = constraint
        super().__init__(message)


class BudgetExceeded(Conflict):
    """A budget of `key` is used up until its period ends; nothing was begun."""

    def __init__(self, key: str, period: str, cost_usd_micros: int, tokens: int) -> None:
        self.key, self.period, self.cost_usd_micros, self.tokens = key, str(period), cost_usd_micros, tokens
        super().__init__(f"The budget {named(key)} ({period}) is used up: ${cost_usd_micros / 1e6:,.4f}, {tokens:,} tokens.")


class TransitionError(PersistError, RuntimeError):
    """A status cannot follow the one that is stored; nothing was changed."""

    def __init__(self, subject: str, current: str, requested: str) -> None:
        self.subject, self.current, self.requested = subject, current, requested
        super().__init__(f"The {subject} is {current} and cannot become {requested}.")


class RunHeld(TransitionError):
    """A program's run is not resumed: process `pid` on `host`, not known to be gone, runs it since `since`; last `seen_at`."""

    def __init__(self, run_id: str, current: str, host: str, pid: int | None, *seen: datetime | None) -> None:
        super().__init__(f"program run {run_id}", current, "running")
        self.run_id, self.host, self.pid, (self.since, self.seen_at) = run_id, host, pid, seen
        instants = "".join(
            f", {word} {at:%Y-%m-%d %H:%M:%S} UTC" for word, at in zip(("since", "seen at"), seen, strict=True) if at
        )
        self.args = (f"Process {pid or '?'} on {named(host)} runs the program run {named(run_id)}{instants}.",)


class LeaseLost(PersistError, RuntimeError):
    """A write under a lease that is over, or on what another worker holds. `kind` and `run_id` say whose; `token` None: none."""

    def __init__(self, run_id: str, token: int | None, reason: str, *, kind: str = "workflow run") -> None:
        self.run_id, self.token, self.kind = run_id, token, kind
        super().__init__(f"{kind} {run_id!r}: {reason}")


class EffectUnknown(PersistError, RuntimeError):
    """A side effect of a run began before, and nobody knows whether it happened."""

    def __init__(self, run_id: str, key: str, attempts: int) -> None:
        self.run_id, self.key, self.attempts = run_id, key, attempts
        began = f"The effect {named(key)} of workflow run {named(run_id)} began before, and nobody knows how it ended"
        super().__init__(f"{began}: look whether it happened and complete it with its result, or begin it again with retry=True.")


class InvalidValue(PersistError, ValueError):
    """A value is outside the documented domain; `path` says where, `reason` says why. Nothing was written."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}" if path else reason)


class PayloadTooLarge(InvalidValue):
    """A value is over its cap; `reason` says where large values of that kind belong."""

    def __init__(self, path: str, size: int, limit: int, *, advice: str = "") -> None:
        self.size, self.limit = size, limit
        super().__init__(path, f"{size} bytes is over the limit of {limit}." + (f" {advice}" if advice else ""))


class RecursionLimitExceeded(InvalidValue):
    """A statement of a program would be nested deeper than the limit; nothing was written."""

    def __init__(self, depth: int, limit: int) -> None:
        self.depth, self.limit = depth, limit
        super().__init__("parent_id", f"the statement would be nested {depth} deep, and the limit is {limit}.")


class StreamProtocolError(InvalidValue):
    """A chunk cannot follow the ones before it (a delta without its start). What came before is kept and stored."""

    def __init__(self, index: int, chunk_type: str, reason: str) -> None:
        self.index, self.chunk_type = index, chunk_type
        super().__init__(f"chunk {index} ({chunk_type})", reason)


class NotPermitted(PersistError, PermissionError):
    """The database or the file system refuses access."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class TransactionError(PersistError, RuntimeError):
    """A transaction is used in a way its state does not allow."""


class ReadOnlyTransaction(TransactionError):
    """A writing verb was called under `read()` or on a read-only store, before any statement ran."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        super().__init__(f"{verb} writes, and this transaction is read-only; use store.begin() of a writable store.")


class TransactionOpen(TransactionError):
    """The caller is inside of a transaction of this store already, and would wait for its end."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} was called inside an open transaction of the same owner; use that transaction instead.")


class TransactionAborted(TransactionError):
    """An earlier error doomed the transaction: leaving it rolls back, and no further verb runs."""

    def __init__(self) -> None:
        super().__init__("An earlier error doomed this transaction; leave it, then begin a new one.")


class WrongOwner(TransactionError):
    """A transaction is used by two threads or tasks at the same time, or by another event loop than its own."""

    def __init__(self, what: str = "the transaction") -> None:
        self.what = what
        super().__init__(f"{what} is in use: one thread or task at a time uses it, and on one event loop only.")


class StoreError(PersistError, RuntimeError):
    """The store itself cannot be used this way."""


class StoreForked(StoreError):
    """The process forked after the store was opened; connections are not shared across a fork."""

    def __init__(self, reason: str = "This store was opened before fork(); open a new one in the child process.") -> None:
        super().__init__(reason)


class StoreInUse(StoreError):
    """Another owner still has a transaction open."""

    def __init__(self, reason: str = "A transaction of another thread or task is still open.") -> None:
        super().__init__(reason)


class Closed(StoreError):
    """A store, transaction or recorder is used after its end."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"The {what} is closed.")


class UnsupportedEngine(StoreError):
    """The URL or engine names a database, driver or mode that persist does not run on."""

    def __init__(self, found: str, reason: str) -> None:
        self.found, self.reason = found, reason
        super().__init__(f"{found}: {reason}")


class StoreCorrupt(StoreError):
    """The database file is damaged, or not a database."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")


class BlobUnreadable(StoreCorrupt):
    """The bytes of a blob are missing, or do not match its digest."""

    def __init__(self, sha256: str, reason: str) -> None:
        self.sha256 = sha256
        super().__init__(f"blob {sha256}", f"{reason}; `persist doctor` says which blobs are damaged.")
        self.reason = reason


class UnreadableRow(StoreCorrupt):
    """One row holds a value that persist did not write and cannot read. `key`: as far as it is known."""

    committed = False
    """Whether the verb's changes are stored, and only its answer could not be read; nothing was changed otherwise."""

    def __init__(self, table: str, key: Sequence[Any] | None, column: str, reason: str) -> None:
        self.table, self.key, self.column = table, None if key is None else tuple(key), column
        known = None if not self.key else self.key[0] if len(self.key) == 1 else self.key
        row = f"a row of {table}" if known is None else f"row {shown(known)} of {table}"
        remedy = "" if reason.startswith("it holds nothing") else ", `persist doctor --fix` sets it aside"
        super().__init__(f"{row}, {column}", f"{reason}; `persist doctor` names it{remedy}.")
        self.reason = reason


class SchemaError(PersistError, RuntimeError):
    """The tables of the database do not fit this version of persist."""


class SchemaOutdated(SchemaError):
    """The database is older than the code; `command` upgrades it."""

    def __init__(self, found: str | None, known: str, command: str) -> None:
        self.found, self.known, self.command = found, known, command
        super().__init__(f"The schema is at {found or 'no revision'} and this version needs {known}; run: {command}")


class SchemaTooNew(SchemaError):
    """The database was migrated by a newer persist; it was left untouched."""

    def __init__(self, found: str, known: str) -> None:
        self.found, self.known = found, known
        super().__init__(f"The schema is at {found}, newer than {known}, the newest this version knows; upgrade persist.")


class SchemaUnknown(SchemaError):
    """What the database notes as its version is no revision that persist ever had; it was left untouched."""

    def __init__(self, found: object, known: str, place: str) -> None:
        self.found, self.known, self.place = shown(found), known, place
        why = f"{place} is {self.found}, which is no revision; this version knows them up to {known}"
        super().__init__(f"{why}. Nothing was changed: correct what was noted, or restore a backup.")


class UnmanagedDatabase(SchemaError):
    """Tables with our names exist without our version table; nothing was changed. `reason` replaces the message's first half."""

    def __init__(self, tables: Sequence[str], *, reason: str | None = None) -> None:
        self.tables = list(tables)
        shown = ", ".join(self.tables[:5]) + (", …" if len(self.tables) > 5 else "")
        why = reason or f"Tables named like persist's exist without a persist schema version ({shown})"
        super().__init__(f"{why}; nothing was changed.")


class CopyUnfinished(SchemaError):
    """The database is the target of a resumable copy that has not ended; `command` continues the copy."""

    def __init__(self, command: str) -> None:
        self.command = command
        super().__init__(f"A copy into this database is under way; run {command} to continue it, or empty the database.")


class MigrationFailed(SchemaError):
    """A revision failed, and the database is as it was; or `step` after all of them did, and old code can be used as before."""

    def __init__(
        self, path: str, from_version: str | None, to_version: str, revision: str | None, cause: str, step: str | None = None
    ) -> None:
        self.path, self.from_version, self.to_version, self.revision, self.step = path, from_version, to_version, revision, step
        what = f"and the next upgrade goes on with it ({step})" if step else "nothing was changed"
        at = f" at revision {revision}" if revision else ""
        super().__init__(f"{path}: upgrading from {from_version or 'no revision'} to {to_version} failed{at}, {what}: {cause}")


class StoreBusy(PersistError, OSError):
    """Another connection held the write lock for too long; nothing was written, try again."""

    def __init__(self, waited: float, reason: str = "another connection holds the write lock") -> None:
        self.waited, self.reason = waited, reason
        super().__init__(f"Gave up after {waited:.1f} s: {reason}.")


class EventLogSwitched(StoreBusy):
    """Somebody switched the database's log of events on since the last transaction; nothing was written, try again."""

    def __init__(self) -> None:
        super().__init__(0.0, "the log of events was switched on meanwhile, and from now on it is kept here too; try again")


class StoreFull(PersistError, OSError):
    """The disk or the database is full; nothing was written."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path}: no space left; nothing was written.")


class Unavailable(PersistError, OSError):
    """The database cannot be reached, or the connection was lost; `outcome` says what became of the transaction."""

    def __init__(self, reason: str, *, outcome: Literal["rolled back", "unknown"] = "rolled back") -> None:
        self.outcome: Literal["rolled back", "unknown"] = outcome
        tail = "; it is unknown whether the transaction was committed" if outcome == "unknown" else ""
        super().__init__(f"{reason}{tail}.")
