"""Runs the revisions: one upgrade at a time, in one transaction; on Postgres indexes of older tables are made after it.

Who gives a connection, with a transaction of its own, has everything done in that one.
"""

import os
import sys
import warnings
from pathlib import Path

from alembic import context
from alembic.runtime.migration import MigrationInfo
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import BLANK_SCHEMA, Connection, Engine, MetaData, create_engine, event
from sqlalchemy.exc import SAWarning

from persist.db.dialects.backends import check_schema
from persist.db.dialects.postgres import upgrading
from persist.db.dialects.postgres.urls import is_server, server_url
from persist.db.dialects.sqlite import connections
from persist.db.dialects.upgrade_steps import Step, StepKind, afterwards, existing_tables
from persist.db.schema.base import SCHEMA_TOKEN, VERSION_TABLE
from persist.schema.metadata import metadata
from persist.schema.migrate import steps_between

config = context.config
options = context.get_x_argument(as_dictionary=True)


def schema_name() -> str:
    named = config.attributes.get("schema") or options.get("schema") or os.environ.get("PERSIST_SCHEMA_NAME") or SCHEMA_TOKEN
    return check_schema(str(named))


def unqualified(dialect: str) -> MetaData:
    """The models without their schema token: revisions and autogenerate name no schema, the search path does."""
    target = MetaData(naming_convention=metadata.naming_convention)
    for table in metadata.sorted_tables:
        copy = table.to_metadata(target, schema=None, referred_schema_fn=lambda *_: BLANK_SCHEMA)
        # primary keys that include the scope column on Postgres only are declared once per dialect; keep this dialect's
        for constraint in [one for one in copy.constraints if one.info.get("dialect", dialect) != dialect]:
            copy.constraints.remove(constraint)
        others = {index.name for index in table.indexes if index.info.get("dialect", dialect) != dialect}
        copy.indexes = {index for index in copy.indexes if index.name not in others}
        if dialect == "sqlite":  # which has no identities, and older versions of Alembic would propose them
            for column in copy.columns:
                if column.identity is not None:
                    column.identity = column.server_default = None
    return target


def include_name(name: str | None, type_: str, parents: object) -> bool:
    # a host's tables are not persist's: never propose to drop them
    return f"{SCHEMA_TOKEN}.{name}" in metadata.tables if type_ == "table" else True


def moves() -> bool:
    """Whether the command is one that changes the revision, such as upgrade, and not `current` or `check`."""
    try:
        context.get_revision_argument()
    except KeyError:
        return False
    return True


def command_name() -> str | None:
    """What somebody typed after `alembic`; None for a program that calls Alembic."""
    typed = getattr(config.cmd_opts, "cmd", None)
    return None if typed is None else typed[0].__name__


def tell(line: str) -> None:
    """A line for somebody who typed `alembic upgrade`."""
    if command_name() == "upgrade":
        print(line, file=sys.stderr, flush=True)


def tell_the_end(steps: list[tuple[str, str]]) -> None:
    """From where to where the database came by these steps."""
    if steps:
        tell(f"Upgraded from {steps[0][0]} to {steps[-1][1]}.")
    else:
        tell("No revision was missing.")


told: list[tuple[str, str]] = []


def configure(connection: Connection, schema: str | None, stamps: list[bool]) -> None:
    def applied(step: MigrationInfo, **_: object) -> None:
        stamps.append(step.is_stamp)
        config.attributes.get("applied", []).append(step.up_revision_id)
        told.append((", ".join(step.down_revision_ids) or "nothing", step.up_revision_id))
        tell(f"  {step.up_revision_id}  {step.up_revision.doc}")

    # only what compares with the models needs them here; what runs revisions needs the names of their constraints
    named = MetaData(naming_convention=metadata.naming_convention) if moves() else unqualified(connection.dialect.name)
    context.configure(
        connection=connection,
        target_metadata=named,
        version_table=VERSION_TABLE,
        version_table_schema=schema,
        include_name=include_name,
        transaction_per_migration=False,
        transactional_ddl=True,
        on_version_apply=applied,
    )


def call(hook: str, connection: Connection) -> None:
    """Call what the caller wants done in the transaction, `before` or `after` the revisions."""
    function = config.attributes.get(hook)
    if function is not None:
        function(connection)


def run(connection: Connection) -> None:
    """Everything in the transaction of the connection, or in one that is begun here."""
    if connection.dialect.name == "postgresql":
        first_phase(connection, schema_name(), apart=False)
        return
    configure(connection, None, [])
    with context.begin_transaction():
        call("before", connection)
        context.run_migrations()
        call("after", connection)


def first_phase(connection: Connection, schema: str, *, apart: bool) -> tuple[str, list[Step]] | None:
    """On Postgres: the revisions, and with `apart` without what takes long on large tables.

    Returns the revision that was reached and the steps to be done afterwards; None where all is done.
    """
    stamps: list[bool] = []
    config.attributes.get("applied", []).clear()
    told.clear()
    configure(connection, schema, stamps)
    scripts = ScriptDirectory.from_config(config)
    rest = None
    with context.begin_transaction():
        if moves() and not apart:
            upgrading.lock_in(connection, schema)  # before CREATE SCHEMA, which two upgrades at once do not survive
        settings = upgrading.prepare_transaction(connection, schema, apart=apart)
        call("before", connection)
        marks = upgrading.marks_in(connection, schema) if moves() else upgrading.Marks()
        upgrading.go_on_after(connection, schema, marks)
        upgrading.leave_triggers(connection, context.get_context().impl)
        if apart:
            coming = steps_between(scripts, marks.version, scripts.get_current_head(), "postgresql")
            upgrading.leave_indexes_of(existing_tables(coming), context.get_context().impl)
        context.run_migrations()
        now = upgrading.marks_in(connection, schema).version
        if now is not None and moves() and not any(stamps):
            steps = steps_between(scripts, marks.version, now, "postgresql")
            for step in steps:  # tables that were made just now are empty
                if step.kind == StepKind.VALIDATE and not step.existing:
                    upgrading.perform(connection, schema, step, writers_go_on=False)
            left = upgrading.unfinished(connection, schema, afterwards(steps))
            if left and apart:
                upgrading.stay_at(connection, schema, marks, now)
                rest = now, left
            else:
                for step in left:
                    upgrading.perform(connection, schema, step, writers_go_on=False)
                upgrading.arrive_at(connection, schema, now)
        call("after", connection)
        upgrading.restore(connection, settings)
    return rest


def in_phases(engine: Engine) -> None:
    """On Postgres: one short transaction, then what takes long on large tables, while others write."""
    schema = schema_name()
    if not moves():
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
            first_phase(connection, schema, apart=False)
        return
    with upgrading.upgrade_lock(engine, schema) as holder:
        for attempt in upgrading.attempts():
            with attempt, engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
                rest = first_phase(connection, schema, apart=True)
        if rest is not None:
            reached, steps = rest
            with (
                engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
                upgrading.without_timeouts(connection),
            ):
                for step in steps:
                    config.attributes["step"] = step
                    for attempt in upgrading.attempts():  # upgrades of two schemas at once may wait for each other's snapshots
                        with attempt:
                            upgrading.perform(connection, schema, step, writers_go_on=True)
            upgrading.arrive_at(holder, schema, reached)
        holder.commit()


def connect(url: str) -> None:
    engine = create_engine(server_url(url).set(drivername="postgresql+psycopg") if is_server(url) else url)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def _on_connect(driver, _record):  # type: ignore[no-untyped-def]  # the driver's own type
            driver.isolation_level = None
            driver.execute("PRAGMA busy_timeout=30000")
            driver.execute("PRAGMA foreign_keys=ON")

        @event.listens_for(engine, "begin")
        def _on_begin(connection: Connection) -> None:
            connections.begin_patiently(connection.connection.driver_connection)

    try:
        with warnings.catch_warnings():
            # Alembic cannot compare indexes over expressions on SQLite, and says so of each, twice; our tests compare them
            warnings.filterwarnings("ignore", "Skipped unsupported reflection of expression-based index", SAWarning)
            warnings.filterwarnings("ignore", "autogenerate skipping metadata-specified expression-based index", UserWarning)
            if engine.dialect.name == "postgresql":
                in_phases(engine)
            else:
                with engine.begin() as connection:
                    run(connection)
    finally:
        engine.dispose()
    tell_the_end(told)


def offline(url: str) -> None:
    dialect = "postgresql" if url.startswith("postgres") else "sqlite"
    schema = schema_name() if dialect == "postgresql" else None
    context.configure(
        dialect_name=dialect,
        version_table=VERSION_TABLE,
        version_table_schema=schema,
        literal_binds=True,
        transaction_per_migration=False,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        if schema:
            context.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            context.execute(f'SET LOCAL search_path = "{schema}"')
        context.run_migrations()


def is_of_a_host() -> bool:
    """Whether the ini is one that `persist alembic-ini` printed, or the revisions are those inside the wheel."""
    return config.get_main_option("revision_environment") is not None or Path(__file__).parent.name == "_migrations"


def lists_all() -> bool:
    """Whether the command is a `history` that asks for nothing of a database."""
    asked = config.cmd_opts
    return command_name() == "history" and not (asked.indicate_current or "current" in (asked.rev_range or ""))


if command_name() == "downgrade":
    raise CommandError("persist's schema only grows: restore a backup instead of downgrading.")
if command_name() in ("revision", "merge") and is_of_a_host():
    raise CommandError(
        "persist's history is its own, and its upgrades bring revisions along: keep yours in a history of your own,"
        " which `alembic init migrations` begins."
    )
given, engine = config.attributes.get("connection"), config.attributes.get("engine")
if given is not None:
    run(given)
elif engine is not None:
    in_phases(engine)
elif lists_all():
    connect("sqlite://")
else:
    url = (
        config.attributes.get("url")
        or options.get("url")
        or os.environ.get("PERSIST_DATABASE_URL")
        or config.get_main_option("sqlalchemy.url")
        or "sqlite:///state.db"
    )
    if context.is_offline_mode():
        offline(url)
    else:
        connect(url)
