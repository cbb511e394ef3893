"""What a server's errors mean, in our words."""

from typing import Any

from persist.db.dialects import guards
from persist.errors import (
    Conflict,
    EventLogSwitched,
    InvalidValue,
    NotFound,
    NotPermitted,
    PersistError,
    ReadOnlyTransaction,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    Unavailable,
    UnsupportedEngine,
)


def meaning(psycopg: Any, error: Any, database: str) -> PersistError:
    """Our error for one of the driver's."""
    state: str = error.sqlstate or ""
    text = (error.diag.message_primary or str(error).strip().partition("\n")[0] or type(error).__name__).rstrip(".")
    if state == guards.SQLSTATE:
        return EventLogSwitched()
    if state.startswith("23"):
        return Conflict(f"The database refuses the write: {text}.", constraint=error.diag.constraint_name)
    if state in ("40001", "40P01", "55P03"):
        return StoreBusy(5.0 if state == "55P03" else 0.0, text)
    if state == "53100":
        return StoreFull(database)
    if state == "25006":
        return ReadOnlyTransaction("the statement")
    if state in ("XX001", "XX002"):
        return StoreCorrupt(database, text)
    if state.startswith("42501") or state.startswith("28"):
        return NotPermitted(text + ".")
    if state == "3D000":
        return NotFound("database", database)
    if state in ("26000", "42P05"):
        advice = 'open the store with pooler="transaction", or the engine with prepare_threshold=None.'
        return UnsupportedEngine("a pooler that shares sessions", f"{text}; {advice}")
    if state.startswith("54"):  # a limit of the server, such as the length of what an index can hold
        return InvalidValue("value", text + ".")
    if state.startswith("22") or isinstance(error, psycopg.DataError):
        return InvalidValue("value", text + ".")
    lost = isinstance(error, psycopg.OperationalError) or type(error) is psycopg.DatabaseError  # libpq's own
    if state.startswith(("08", "57", "53")) or (not state and lost):
        return Unavailable(text)
    return StoreError(text + ".")
