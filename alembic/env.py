"""Runs the revisions: one transaction for the whole upgrade, one upgrade at a time, on both databases."""

import os
import warnings

from alembic import context
from sqlalchemy import BLANK_SCHEMA, Connection, MetaData, create_engine, event, text
from sqlalchemy.exc import SAWarning

from persist.db.dialects.from_url import check_schema
from persist.db.dialects.postgres.schema_locks import EVERYTHING, ONE_SCHEMA
from persist.db.schema.base import SCHEMA_TOKEN, VERSION_TABLE
from persist.schema.metadata import metadata

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


def run(connection: Connection) -> None:
    postgres = connection.dialect.name == "postgresql"
    schema = schema_name() if postgres else None
    context.configure(
        connection=connection,
        target_metadata=unqualified(connection.dialect.name),
        version_table=VERSION_TABLE,
        version_table_schema=schema,
        include_name=include_name,
        transaction_per_migration=False,
        transactional_ddl=True,
        on_version_apply=lambda step, **_: config.attributes.get("applied", []).append(step.up_revision_id),
    )
    with context.begin_transaction():
        if postgres:
            found = connection.execute(text("SELECT current_setting('search_path'), current_setting('lock_timeout')")).one()
            connection.execute(text("SET LOCAL lock_timeout = '30s'"))
            # before CREATE SCHEMA, which two upgrades at once do not survive
            connection.execute(text(ONE_SCHEMA), {"everything": EVERYTHING, "schema": schema})
            known = connection.execute(text("SELECT 1 FROM pg_namespace WHERE nspname = :schema"), {"schema": schema})
            if known.first() is None:  # looked for first: IF NOT EXISTS wants the privilege even when it exists
                connection.execute(text(f'CREATE SCHEMA "{schema}"'))
            connection.execute(text(f'SET LOCAL search_path = "{schema}"'))
        before = config.attributes.get("before")
        if before is not None:
            before(connection)
        context.run_migrations()
        after = config.attributes.get("after")
        if after is not None:
            after(connection)
        if postgres:  # the transaction may be a host's, which goes on
            restored = "SELECT set_config('search_path', :path, true), set_config('lock_timeout', :timeout, true)"
            connection.execute(text(restored), {"path": found[0], "timeout": found[1]})


def connect(url: str) -> None:
    driver = "postgresql+psycopg://"
    engine = create_engine(url.replace("postgresql://", driver, 1).replace("postgres://", driver, 1))
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def _on_connect(driver, _record):  # type: ignore[no-untyped-def]  # the driver's own type
            driver.isolation_level = None
            driver.execute("PRAGMA busy_timeout=30000")
            driver.execute("PRAGMA foreign_keys=ON")

        @event.listens_for(engine, "begin")
        def _on_begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    try:
        with engine.begin() as connection, warnings.catch_warnings():
            # Alembic cannot compare indexes over expressions on SQLite, and says so of each, twice; our tests compare them
            warnings.filterwarnings("ignore", "Skipped unsupported reflection of expression-based index", SAWarning)
            warnings.filterwarnings("ignore", "autogenerate skipping metadata-specified expression-based index", UserWarning)
            run(connection)
    finally:
        engine.dispose()


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


given = config.attributes.get("connection")
if given is not None:
    run(given)
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
