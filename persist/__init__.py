"""persist keeps the durable state of AI-agent systems: what runs, what was said, what it cost, where to resume."""

from persist.errors import (
    BlobUnreadable,
    BudgetExceeded,
    Closed,
    Conflict,
    CopyUnfinished,
    EffectUnknown,
    InvalidValue,
    LeaseLost,
    MigrationFailed,
    NotFound,
    NotPermitted,
    PayloadTooLarge,
    PersistError,
    ReadOnlyTransaction,
    RecursionLimitExceeded,
    RunHeld,
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
    UnknownTenant,
    UnmanagedDatabase,
    UnreadableRow,
    UnsupportedEngine,
    WrongOwner,
)
from persist.lazy_imports import lazy_names

with lazy_names(globals()):
    from persist.chat.recording.recorder import Recorder
    from persist.db.values.pages import Page
    from persist.schema.metadata import include_name
    from persist.schema.migrate import check, current, upgrade
    from persist.settings import Settings
    from persist.store.async_store import AsyncStore
    from persist.store.store import Store
    from persist.store.transaction import Transaction
    from persist.tenants.async_tenants import AsyncTenants
    from persist.tenants.tenants import Tenants

__version__ = "0.1.0"

__all__ = [
    "AsyncStore",
    "AsyncTenants",
    "BlobUnreadable",
    "BudgetExceeded",
    "Closed",
    "Conflict",
    "CopyUnfinished",
    "EffectUnknown",
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
    "RunHeld",
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
    "Tenants",
    "Transaction",
    "TransactionAborted",
    "TransactionOpen",
    "TransitionError",
    "Unavailable",
    "UnknownTenant",
    "UnmanagedDatabase",
    "UnreadableRow",
    "UnsupportedEngine",
    "WrongOwner",
    "check",
    "current",
    "include_name",
    "upgrade",
]
