"""persist keeps the durable state of AI-agent systems: what runs, what was said, what it cost, where to resume."""

from typing import TYPE_CHECKING

from persist.errors import (
    Closed,
    Conflict,
    InvalidValue,
    LeaseLost,
    MigrationFailed,
    NotFound,
    NotPermitted,
    PayloadTooLarge,
    PersistError,
    ReadOnlyTransaction,
    RecursionLimitExceeded,
    SchemaOutdated,
    SchemaTooNew,
    SchemaUnknown,
    StoreBusy,
    StoreCorrupt,
    StoreForked,
    StoreFull,
    StoreInUse,
    StreamProtocolError,
    TransactionAborted,
    TransactionOpen,
    TransitionError,
    Unavailable,
    UnmanagedDatabase,
    UnreadableRow,
    UnsupportedEngine,
    WrongOwner,
)
from persist.later import offers

if TYPE_CHECKING:
    from persist.aio import AsyncStore
    from persist.chat.recorder import Recorder
    from persist.db.cursor import Page
    from persist.metadata import include_name
    from persist.migrate import check, current, upgrade
    from persist.settings import Settings
    from persist.store import Store
    from persist.transaction import Transaction

__version__ = "0.1.0"

__all__ = [
    "AsyncStore",
    "Closed",
    "Conflict",
    "InvalidValue",
    "LeaseLost",
    "MigrationFailed",
    "NotFound",
    "NotPermitted",
    "Page",
    "PayloadTooLarge",
    "PersistError",
    "ReadOnlyTransaction",
    "Recorder",
    "RecursionLimitExceeded",
    "SchemaOutdated",
    "SchemaTooNew",
    "SchemaUnknown",
    "Settings",
    "Store",
    "StoreBusy",
    "StoreCorrupt",
    "StoreForked",
    "StoreFull",
    "StoreInUse",
    "StreamProtocolError",
    "Transaction",
    "TransactionAborted",
    "TransactionOpen",
    "TransitionError",
    "Unavailable",
    "UnmanagedDatabase",
    "UnreadableRow",
    "UnsupportedEngine",
    "WrongOwner",
    "check",
    "current",
    "include_name",
    "upgrade",
]


__getattr__ = offers(
    __name__,
    {
        "AsyncStore": "persist.aio",
        "Page": "persist.db.cursor",
        "Recorder": "persist.chat.recorder",
        "Settings": "persist.settings",
        "Store": "persist.store",
        "Transaction": "persist.transaction",
        "check": "persist.migrate",
        "current": "persist.migrate",
        "include_name": "persist.metadata",
        "upgrade": "persist.migrate",
    },
)
