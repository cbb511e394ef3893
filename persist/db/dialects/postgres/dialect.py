"""Postgres through psycopg 3: a separate schema, READ COMMITTED writes, snapshot reads, no session state."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import URL, Engine, create_engine

from persist.db.dialects.connections import QUIET
from persist.db.dialects.errors import READ_ONLY, Errors, public_text, refused_write
from persist.db.dialects.interface import Dialect
from persist.db.dialects.postgres.catalog import PostgresTables
from persist.db.dialects.postgres.connections import PostgresConnections, connection_timeouts
from persist.db.dialects.postgres.event_guards import SQLSTATE
from persist.db.dialects.postgres.operations import PostgresTransactions
from persist.db.dialects.postgres.raw_writes import REREADER
from persist.db.dialects.postgres.shared_pool import NO_SCHEMA, SharedEventLog, SharedPool
from persist.db.dialects.postgres.urls import driver
from persist.db.dialects.postgres.wakeups import PostgresEventLog
from persist.db.expressions.locking import LOCK_TIMEOUT_SECONDS
from persist.db.values.json import from_jsonb
from persist.errors import (
    EventLogSwitched,
    InvalidValue,
    NotFound,
    NotPermitted,
    PersistError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    Unavailable,
    UnsupportedEngine,
)

_ENDS_CONNECTION = frozenset(("25P03", "25P04"))
"""SQLSTATEs of a connection that the server ends: its transaction was idle, or open, for too long."""

_ROLLED_BACK = _ENDS_CONNECTION | {"57014", READ_ONLY}
"""SQLSTATEs that a transaction has no more once it is committed; 57014 is that of a cancelled statement."""

_OF_A_NODE = re.compile(r'violates (?:unique|foreign key|check|not-null|exclusion) constraint "(?P<name>[^"]*?)(?:_\d+)?"$')
"""What a node of Citus says in a COPY: the coordinator passes it on as an internal error, with the node's constraint."""

_OPTION = re.compile(
    r"connection is bad: (?:.* failed: )?(?:invalid (?:\w+ value|port number|integer value)|could not parse network address"
    r"|definition of service)|bad value for connect_timeout"
)
"""What libpq and psycopg say, in English, of an option's value that they refuse before they ask a server."""


def translation(
    psycopg: Any, database: str, distrust_sessions: Callable[[], None]
) -> Callable[[BaseException], PersistError | None]:
    """Make the function that translates driver errors. `distrust_sessions`: called when a session refuses what it should not."""

    def translate(error: BaseException) -> PersistError | None:
        found = driver_error_of(psycopg, error)
        if found is None:
            return None
        if found.state == READ_ONLY or _is_of_old_columns(found):
            distrust_sessions()
        return translate_error(found, database)

    return translate


def retryable(error: PersistError) -> bool:
    """Whether a retry of the whole transaction may succeed: after a lost connection only if it is known to be rolled back."""
    return isinstance(error, StoreBusy) or (isinstance(error, Unavailable) and error.outcome == "rolled back")


def tells_rollback(error: BaseException) -> bool:
    """Whether the error is the server's word that the transaction is rolled back."""
    return getattr(getattr(error, "orig", None) or error, "sqlstate", None) in _ROLLED_BACK


@dataclass(frozen=True, slots=True)
class DriverError:
    """What the error of any driver says.

    state       the SQLSTATE, '' if the driver itself raised the error
    text        the server's message, or the driver's
    constraint  the name of the constraint that was violated
    bad_data    whether the driver refused a value
    lost        whether the connection is lost, if there is no SQLSTATE
    """

    state: str
    text: str
    constraint: str | None
    bad_data: bool
    lost: bool


def driver_error_of(psycopg: Any, error: Any) -> DriverError | None:
    """What an error of psycopg says, or of asyncpg under a host's connection; None for any other error."""
    if isinstance(error, psycopg.Error):
        text = public_text(error.diag.message_primary or str(error), error.sqlstate or "") or type(error).__name__
        lost = isinstance(error, psycopg.OperationalError) or type(error) is psycopg.DatabaseError  # raised by libpq itself
        return DriverError(error.sqlstate or "", text, error.diag.constraint_name, isinstance(error, psycopg.DataError), lost)
    if not type(error).__module__.startswith(("asyncpg.", "sqlalchemy.dialects.postgresql.asyncpg")):
        return None
    cause = error.__cause__ or error  # SQLAlchemy wraps asyncpg's errors
    state = getattr(cause, "sqlstate", None) or getattr(error, "sqlstate", None) or ""
    lost = type(error).__name__ in ("InterfaceError", "ConnectionDoesNotExistError", "InternalClientError")
    bad_data = type(cause).__name__ == "DataError"
    text = public_text(str(cause), state) or type(cause).__name__
    return DriverError(state, text, getattr(cause, "constraint_name", None), bad_data, lost)


def _is_of_old_columns(error: DriverError) -> bool:
    """Whether a prepared statement has another result than before, since its table was altered, or made anew from a backup."""
    return error.state == "0A000" and error.text.startswith("cached plan must not change")


def translate_error(error: DriverError, database: str) -> PersistError:
    """The PersistError for a driver's error."""
    state, text = error.state, error.text.rstrip(".")
    if not state and _OPTION.match(text):
        return InvalidValue("url", text + ".")
    if state == SQLSTATE:
        return EventLogSwitched()
    refused = _OF_A_NODE.search(text) if state == "XX000" else None
    if refused is not None or state.startswith("23"):
        constraint = error.constraint if refused is None else refused["name"]
        return refused_write(text, constraint)
    if state in ("40001", "40P01", "55P03"):
        return StoreBusy(LOCK_TIMEOUT_SECONDS if state == "55P03" else 0.0, text)
    if state == "53100":
        return StoreFull(database)
    if state == READ_ONLY:  # where persist itself began a snapshot, ReadOnlyTransaction replaces it
        return Unavailable(f"The server takes no writes now: {text}")
    if _is_of_old_columns(error):
        return Unavailable(text)
    if state in ("XX001", "XX002"):
        return StoreCorrupt(database, text)
    if state.startswith("42501") or state.startswith("28"):
        return NotPermitted(text + ".")
    if state == "3D000":
        return NotFound("database", database)
    if state in ("26000", "42P05"):
        advice = 'open the store with pooler="transaction", or the engine with prepare_threshold=None.'
        return UnsupportedEngine("a pooler that shares sessions", f"{text}; {advice}")
    if state.startswith(("22", "54")) or error.bad_data:  # 54: a limit of the server, as for the size of an index row
        return InvalidValue("value", text + ".")
    if state.startswith(("08", "53", "57", "58000", "58030")) or state in _ENDS_CONNECTION or (not state and error.lost):
        return Unavailable(text)
    return StoreError(text + ".")


def postgres_dialect(url: URL, schema: str, *, pooler: str | None, read_only: bool) -> Dialect:
    """Create the dialect of a Postgres database, reached directly or through a transaction-mode pooler."""
    psycopg, pooled = driver(), pooler == "transaction"
    engine = _engine(url)
    connections = PostgresConnections(psycopg, engine, schema, owned=True, pooled=pooled)
    return _dialect(psycopg, connections, PostgresEventLog(engine, schema, pooled=pooled), schema, read_only=read_only)


def _engine(url: URL) -> Engine:
    url = url.set(drivername="postgresql+psycopg")
    # persist encodes statements by itself, whatever encoding the URL or the environment asks for
    arguments = {**connection_timeouts(url), "client_encoding": "utf8"}
    # without asking for the types of an extension that no column of persist has
    pool = {"pool_pre_ping": True, "pool_size": 5, "max_overflow": 24}
    return create_engine(url, **pool, **QUIET, connect_args=arguments, use_native_hstore=False)


def shared_pool(url: URL, *, pooler: str | None) -> SharedPool:
    """Create the pool of connections for the stores of many schemas of a database, without connecting."""
    return SharedPool(driver(), postgres_dialect(url, NO_SCHEMA, pooler=pooler, read_only=False))


def of_shared_pool(pool: SharedPool, schema: str) -> Dialect:
    """Create the dialect of one schema's store. What does not depend on the schema is the pool's."""
    connections = pool.of_schema(schema)
    event_log = SharedEventLog(pool, schema)
    return replace(
        pool.dialect,
        schema=schema,
        one_of_many=True,
        connections=connections,
        transactions=PostgresTransactions(pool.psycopg, connections, event_log),
        event_log=event_log,
        tables=PostgresTables(pool.engine.url, schema),
    )


def of_engine(engine: Engine, schema: str) -> Dialect:
    """Create the dialect for a caller's engine, whose pool and settings stay as they are."""
    import psycopg

    connections = PostgresConnections(psycopg, engine, schema, owned=False)
    return _dialect(psycopg, connections, PostgresEventLog(engine, schema, pooled=False), schema)


def _dialect(
    psycopg: Any, connections: PostgresConnections, event_log: PostgresEventLog, schema: str, *, read_only: bool = False
) -> Dialect:
    engine = connections.engine
    translate = translation(psycopg, engine.url.database or "the database", connections.distrust)
    return Dialect(
        name="postgresql",
        sqlalchemy_dialect=type(engine.dialect),
        schema=schema,
        read_only=read_only,
        one_file=False,
        one_writer=False,
        batches_rows=True,
        pipelines=True,
        autocommits_single_statement=True,
        rereader=REREADER,
        to_plain_json=from_jsonb,
        connections=connections,
        transactions=PostgresTransactions(psycopg, connections, event_log),
        errors=Errors("postgresql", translate, retryable, tells_rollback),
        event_log=event_log,
        tables=PostgresTables(engine.url, schema),
    )
