"""persist keeps the durable state of AI-agent systems: what runs, what was said, what it cost, where to resume."""

from typing import TYPE_CHECKING, Any

from persist.aio import AsyncStore
from persist.chat.recorder import Recorder
from persist.db.cursor import Page
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
    UnsupportedEngine,
    WrongOwner,
)
from persist.metadata import include_name
from persist.settings import Settings
from persist.store import Store
from persist.transaction import Transaction

if TYPE_CHECKING:
    from persist.migrate import check, current, upgrade

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
    "UnsupportedEngine",
    "WrongOwner",
    "check",
    "current",
    "include_name",
    "upgrade",
]


def __getattr__(name: str) -> Any:
    # Alembic costs 80 ms to import; a program that only opens a current store never pays it
    if name in ("check", "current", "upgrade"):
        from persist import migrate

        return getattr(migrate, name)
    raise AttributeError(f"module 'persist' has no attribute {name!r}")
