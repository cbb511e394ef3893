"""Rewrites a file after an erasure, so that its free pages and its write-ahead log hold nothing of what was erased."""

from persist.db.dialects.backends import operations_of
from persist.errors import PersistError
from persist.maintenance.operations import checkpoint, vacuum
from persist.store.store import Store

_BUSY = "the write-ahead log: a reader keeps older pages of it, run `persist checkpoint` when it is gone"
_NOT_REWRITTEN = "the file: erased bytes were overwritten, but it could not be rewritten, run `persist vacuum`"


def rewrite(store: Store) -> dict[str, int]:
    """Rewrite the file, and return what could not be done, as EraseReport.kept says it. A server does this by itself."""
    if not operations_of(store.runtime.dialect).rewrites:
        return {}
    try:
        vacuum(store)
    except PersistError:
        return {_NOT_REWRITTEN: 1, **empty_log(store)}
    return empty_log(store)


def empty_log(store: Store) -> dict[str, int]:
    """Empty the write-ahead log of the file, and return what could not be done, as `rewrite` does."""
    if not operations_of(store.runtime.dialect).rewrites:
        return {}
    try:
        busy, _, _ = checkpoint(store, "TRUNCATE")
    except PersistError:
        busy = 1
    return {_BUSY: 1} if busy else {}
