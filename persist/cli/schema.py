"""Commands about the tables: upgrade, current, check, alembic-ini."""

import click

from persist.cli.database import Database, as_json, on_named_database, quiet
from persist.cli.output import say, say_json
from persist.cli.progress import Progress
from persist.cli.sizes import size
from persist.errors import NotFound
from persist.lazy_imports import lazy_modules
from persist.schema import migrate, upgrade_plan
from persist.schema.metadata import HEAD

with lazy_modules(globals()):
    from persist.cli import tenants


@click.command(short_help="Create the tables, or bring them up to date.")
@on_named_database
@click.option("--all-schemas", is_flag=True, help="Every tenant of the server, several at a time; not --schema.")
@click.option(
    "--parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="With --all-schemas: how many at a time."
)
@as_json
@click.option("--plan", is_flag=True, help="Show what would be done, with locks and sizes, and change nothing.")
@quiet("Print nothing.")
def upgrade(database: Database, all_schemas: bool, parallel: int, as_json: bool, plan: bool, quiet: bool) -> None:
    """Create the tables, or bring them up to date. Tables of others are left alone; upgrading twice is harmless.

    On a Postgres server, what takes long on large tables is done last, while others write. If it is interrupted, upgrade again.

    With --all-schemas: each tenant is upgraded by itself. One that fails does not stop the others, and the exit code is 1 then.
    Running it again goes on where it was cut short.
    """
    if all_schemas:
        if plan:
            raise click.UsageError("--plan is of one schema: leave out --all-schemas.")
        tenants.upgrade_every(database.url, parallel, as_json=as_json, quiet=quiet)
        return
    if plan:
        _show(upgrade_plan.plan(database.url, schema=database.schema), as_json=as_json)
        return
    with Progress("Upgrading", left="Run it again: it goes on from what is committed.", quiet=quiet or as_json) as progress:
        try:
            before = migrate.current(database.url, schema=database.schema)
        except NotFound:
            before = None  # a new SQLite file; a Postgres database that does not exist fails below
        migrate.upgrade(database.url, schema=database.schema)
        progress.finish()
    if as_json:
        say_json({"from": before, "revision": HEAD})
    elif not quiet:
        say(f"Up to date already, at {HEAD}." if before == HEAD else f"Upgraded from {before or 'nothing'} to {HEAD}.")


def _show(plan: upgrade_plan.Plan, *, as_json: bool) -> None:
    if as_json:
        say_json(plan.as_json())
        return
    if plan.found == plan.revision:
        say(f"Up to date already, at {plan.revision}.")
        return
    say(f"From {plan.found or 'nothing'} to {plan.revision}:")
    phase = 0
    for step in plan.steps:
        if step.phase != phase:
            phase = step.phase
            say("In one transaction:" if phase == 1 else "Then, one by one, while others write:")
        bytes_ = "" if step.bytes is None else f" ({size(step.bytes)})"
        say(f"  {step.revision}  {step.step}{bytes_}")
        if not step.lock.startswith("none"):
            say(f"        locks {step.lock}")


@click.command(short_help="Print the revision a database is at.")
@on_named_database
@as_json
@quiet("Print the revision alone.")
def current(database: Database, as_json: bool, quiet: bool) -> None:
    """Print the revision a database is at."""
    found = migrate.current(database.url, schema=database.schema)
    if as_json:
        say_json({"revision": found, "head": HEAD})
    elif found is None:
        if not quiet:
            say("none (there are no tables of persist here; `persist upgrade` creates them)")
    elif quiet or found != HEAD:
        say(found if quiet else f"{found} (this version of persist is at {HEAD})")
    else:
        say(f"{found} (head)")


@click.command(short_help="Fail unless a database is up to date.")
@on_named_database
@as_json
@quiet("Print nothing when all is well.")
def check(database: Database, as_json: bool, quiet: bool) -> None:
    """Fail, with exit code 1, unless a database is at the revision of this version."""
    migrate.check(database.url, schema=database.schema)
    if as_json:
        say_json({"revision": HEAD, "head": HEAD})
    elif not quiet:
        say(f"Up to date, at {HEAD}.")


@click.command("alembic-ini", short_help="Print an alembic.ini for this installation.")
def alembic_ini() -> None:
    """Print an alembic.ini with which `alembic upgrade head` does what `persist upgrade` does."""
    say(migrate.ini_text().rstrip("\n"))
