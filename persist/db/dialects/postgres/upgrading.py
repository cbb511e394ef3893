"""An upgrade on Postgres: one short transaction of what blocks writers, then long steps without one, which the catalog tells."""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, text, update
from sqlalchemy.schema import CreateIndex, DropIndex

from persist.db.dialects.upgrade_steps import Step, StepKind
from persist.db.schema.base import SCHEMA_TOKEN, table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements.schema_version import is_distributed, version_table

ONE_SCHEMA = (
    "SELECT pg_advisory_xact_lock_shared(CAST(:everything AS BIGINT)), pg_advisory_xact_lock(1885696627, hashtext(:schema))"
)
"""Waits for who creates, upgrades or drops that schema. Older releases take `everything`, so old and new code wait, too."""

ONE_SCHEMA_NOW = (
    "SELECT pg_try_advisory_xact_lock_shared(CAST(:everything AS BIGINT))"
    " AND pg_try_advisory_xact_lock(1885696627, hashtext(:schema))"
)
"""Takes the locks of ONE_SCHEMA; false if another process holds one."""

EVERYTHING = 0x7065727369737430
"""Any constant."""


_meta = table_of(Meta)
_REACHED = "upgrade_reached"
"""The key of `_meta` for the revision up to which the first phase was done; there only between the phases."""

_POLL_SECONDS = 0.1
_JOINED_SECONDS = 30.0
"""How long an upgrade inside of a caller's transaction waits for another one, in which time the caller's locks are held."""
_ATTEMPT_MS = 1000
"""How long the first phase waits for a lock before it lets go of those it has: writers queue behind it."""
_ATTEMPTS = 60
_LOCKED_OUT = {"55P03", "40P01"}  # lock not available, deadlock

# Some settings end a transaction that waits for its client as long as an index takes. The others let the server notice within a
# minute that the client's machine is gone, and then end the lock.
_PATIENT = """
    SELECT set_config(name, CASE WHEN name LIKE 'tcp%count' THEN '3' WHEN name LIKE 'tcp%' THEN '15' ELSE '0' END, true)
    FROM pg_catalog.pg_settings
    WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout',
        'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count')"""
_TIMEOUTS = "SELECT name FROM pg_catalog.pg_settings WHERE name IN ('lock_timeout', 'statement_timeout') AND setting <> '0'"
_INDEX = """
    SELECT i.indisvalid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relname = :name"""
_UNCHECKED = """
    SELECT 1 FROM pg_catalog.pg_constraint n JOIN pg_catalog.pg_class c ON c.oid = n.conrelid
    JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
    WHERE s.nspname = :schema AND c.relname = :table AND n.conname = :name AND NOT n.convalidated"""


@contextmanager
def upgrade_lock(engine: Engine, schema: str) -> Iterator[Connection]:
    """Be the only upgrade of the schema in the block; the connection's transaction holds the lock until it ends.

    Neither the waiting nor the transaction holds a snapshot: an index that is being made, here or by another upgrade, waits for
    older snapshots. A lock of the session would not do: a pooler may pass the session on to another client.
    """
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        while not _locked(connection, schema):
            connection.rollback()
            time.sleep(_POLL_SECONDS)
        connection.execute(text(_PATIENT))
        yield connection


def lock_in(connection: Connection, schema: str) -> None:
    """Take the lock of the schema's upgrades in a caller's transaction, which holds it until it ends. Another one is awaited."""
    deadline = time.monotonic() + _JOINED_SECONDS
    while not _locked(connection, schema):
        if time.monotonic() > deadline:  # fails with the server's own error, unless it is free just now
            connection.execute(text("SET LOCAL lock_timeout = '100ms'"))
            connection.execute(text(ONE_SCHEMA), {"everything": EVERYTHING, "schema": schema})
            return
        time.sleep(_POLL_SECONDS)


def _locked(connection: Connection, schema: str) -> bool:
    return bool(connection.execute(text(ONE_SCHEMA_NOW), {"everything": EVERYTHING, "schema": schema}).scalar())


def attempts() -> Iterator["Attempt"]:
    """Yield attempts until one ends without being locked out; each is the context of a block."""
    for left in reversed(range(_ATTEMPTS)):
        attempt = Attempt(last=left == 0)
        yield attempt
        if not attempt.locked_out:
            return
        time.sleep(_POLL_SECONDS)


@dataclass
class Attempt:
    """A block that other writers may lock out, which is then left without an error, except by the last one."""

    last: bool
    locked_out: bool = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        state = getattr(getattr(error, "orig", None), "sqlstate", None)
        self.locked_out = not self.last and state in _LOCKED_OUT
        return self.locked_out


def prepare_transaction(connection: Connection, schema: str, *, apart: bool) -> Sequence[Any]:
    """Set how long the transaction waits for locks, make the schema and name no other; returns the settings to restore."""
    found = connection.execute(text("SELECT current_setting('search_path'), current_setting('lock_timeout')")).one()
    connection.execute(text(f"SET LOCAL lock_timeout = '{_ATTEMPT_MS}ms'" if apart else "SET LOCAL lock_timeout = '30s'"))
    known = connection.execute(text("SELECT 1 FROM pg_namespace WHERE nspname = :schema"), {"schema": schema})
    if known.first() is None:  # looked for first: IF NOT EXISTS wants the privilege even when it exists
        connection.execute(text(f'CREATE SCHEMA "{schema}"'))
    connection.execute(text(f'SET LOCAL search_path = "{schema}"'))
    return found


def restore(connection: Connection, settings: Sequence[Any]) -> None:
    """Restore the settings that `prepare_transaction` returned: the transaction may be a caller's, which goes on."""
    restored = "SELECT set_config('search_path', :path, true), set_config('lock_timeout', :timeout, true)"
    connection.execute(text(restored), {"path": settings[0], "timeout": settings[1]})


@dataclass(frozen=True)
class Marks:
    """The version marks before an upgrade, and the revision that an unfinished one has reached."""

    version: str | None = None
    noted: str | None = None
    reached: str | None = None


def marks_in(connection: Connection, schema: str) -> Marks:
    """The version marks of a schema; none where there are no tables of persist."""
    there = "SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = :schema AND tablename = ANY(:names)"
    asked = {"schema": schema, "names": [version_table.name, _meta.name]}
    if connection.execute(text(there), asked).scalar() != 2:
        return Marks()
    version = _run(connection, schema, select(version_table.c.version_num)).scalar()
    rows = _run(connection, schema, select(_meta.c.key, _meta.c.value).where(_meta.c.key.in_(["schema_version", _REACHED])))
    noted = {row[0]: row[1] for row in rows}
    return Marks(version, noted.get("schema_version"), noted.get(_REACHED))


def go_on_after(connection: Connection, schema: str, marks: Marks) -> None:
    """Let Alembic begin after the revision that an unfinished upgrade has reached."""
    if marks.reached is not None:
        _run(connection, schema, update(version_table).values(version_num=marks.reached))


def stay_at(connection: Connection, schema: str, marks: Marks, reached: str) -> None:
    """Leave the database at the old revision, with a note that the first phase is done up to another one."""
    _mark(connection, schema, marks.version, marks.noted)
    _run(connection, schema, insert(_meta).values(key=_REACHED, value=reached))


def arrive_at(connection: Connection, schema: str, version: str) -> None:
    """Note the new revision, once all is done."""
    _mark(connection, schema, version, version)


def _mark(connection: Connection, schema: str, version: str | None, noted: str | None) -> None:
    _run(connection, schema, update(version_table).values(version_num=version))
    _run(connection, schema, update(_meta).where(_meta.c.key == "schema_version").values(value=noted))
    _run(connection, schema, delete(_meta).where(_meta.c.key == _REACHED))


def _run(connection: Connection, schema: str, statement: Any) -> Any:
    return connection.execute(statement, execution_options={"schema_translate_map": {SCHEMA_TOKEN: schema}})


def leave_indexes_of(tables: Collection[str], alembic: Any) -> None:
    """Let revisions neither make nor drop an index of these tables: a later step does. `alembic`: the implementation in use."""
    for name in ("create_index", "drop_index"):
        setattr(alembic, name, _unless_on(tables, getattr(alembic, name)))


def leave_triggers(connection: Connection, alembic: Any) -> None:
    """On a distributed server, which refuses them, let revisions make no triggers."""
    if not connection.execute(select(is_distributed())).scalar():
        return
    execute = alembic.execute

    def done(statement: Any, *given: Any, **options: Any) -> None:
        if not str(statement).startswith("CREATE TRIGGER"):
            execute(statement, *given, **options)

    alembic.execute = done


def _unless_on(tables: Collection[str], operation: Any) -> Any:
    def done(index: Any, **options: Any) -> None:
        if index.table.name not in tables:
            operation(index, **options)

    return done


def unfinished(connection: Connection, schema: str, steps: Sequence[Step]) -> list[Step]:
    """The steps that the catalog does not show as done."""
    return [step for step in steps if _open(connection, schema, step)]


def _open(connection: Connection, schema: str, step: Step) -> bool:
    asked = {"schema": schema, "name": step.name}
    if step.kind == StepKind.VALIDATE:
        return connection.execute(text(_UNCHECKED), {**asked, "table": step.table}).first() is not None
    valid = connection.execute(text(_INDEX), asked).scalar()
    return valid is not None if step.kind == StepKind.DROP_INDEX else valid is not True


def perform(connection: Connection, schema: str, step: Step, *, writers_go_on: bool) -> None:
    """Do a step that is not done yet. `writers_go_on`: on a connection without a transaction, while others write."""
    if step.kind == StepKind.VALIDATE:
        connection.exec_driver_sql(f'ALTER TABLE "{schema}"."{step.table}" VALIDATE CONSTRAINT "{step.name}"')
        return
    index = step.operation.to_index()
    index.dialect_kwargs["postgresql_concurrently"] = writers_go_on
    here = {"schema_translate_map": {None: schema}}
    if connection.execute(text(_INDEX), {"schema": schema, "name": step.name}).first() is not None:
        # to be dropped, or what a killed upgrade has left, which serves no query and costs every writer
        # IF EXISTS: Citus shows such an index on the coordinator where the tenant's node has none
        connection.execute(DropIndex(index, if_exists=True), execution_options=here)
    if step.kind == StepKind.CREATE_INDEX:
        connection.execute(CreateIndex(index), execution_options=here)


@contextmanager
def without_timeouts(connection: Connection) -> Iterator[None]:
    """Let statements on a connection without a transaction take as long as they need; a role's own limits are restored."""
    names = [str(name) for (name,) in connection.execute(text(_TIMEOUTS))]
    for name in names:
        connection.exec_driver_sql(f"SET {name} = 0")
    yield
    for name in names:
        connection.exec_driver_sql(f"RESET {name}")
