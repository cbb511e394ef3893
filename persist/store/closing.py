"""What a store still writes when it is closed."""

import logging
from collections.abc import Callable

from persist.db.transactions.runtime import Runtime
from persist.errors import PersistError
from persist.lazy_imports import lazy_modules
from persist.store.transaction import TransactionBlock, work_of

with lazy_modules(globals()):
    from persist.conversations.storage import progression_folding as folding

log = logging.getLogger("persist")


def fold_progressions(runtime: Runtime, begin: Callable[[], TransactionBlock]) -> None:
    """Update the published arrays of progressions that the store appended to; their members are durable in any case."""
    if not any(runtime.own_writes.values()) or not folding.has_lagging(runtime):
        return
    try:
        with begin() as tx:
            folding.fold_lagging(work_of(tx))
    except PersistError as error:
        log.warning("progressions are left unfolded: %s", error)
