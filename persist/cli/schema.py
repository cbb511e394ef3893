"""Commands about the tables: upgrade, current, check, adopt, grants, alembic-ini."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from persist.cli.database import Database, as_json, on_named_database, place_of, quiet
from persist.cli.output import Paint, inline, say, say_json, size
from persist.cli.progress import Progress
from persist.db.dialects.roles import RoleKind
from persist.errors import NotFound
from persist.lazy_imports import lazy_module
from persist.schema import migrate, upgrade_plan
from persist.schema.adopt import AdoptReport
from persist.schema.adopt import adopt as take_over
from persist.schema.grants import grant_script, tenant_removal_script, tenant_script
from persist.schema.metadata import HEAD

if TYPE_CHECKING:
    from persist.cli import tenants
else:
    tenants = lazy_module("persist.cli.tenants")


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
        _show_plan(upgrade_plan.plan(database.url, schema=database.schema), as_json=as_json)
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


def _show_plan(plan: upgrade_plan.Plan, *, as_json: bool) -> None:
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


@click.command(short_help="Take over a database file of another program.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--url", envvar="PERSIST_DATABASE_URL", help="The same as FILE, or sqlite:///FILE; without both PERSIST_DATABASE_URL."
)
@click.option("--no-backup", is_flag=True, help="Put no copy beside the file first.")
@click.option("--dry-run", is_flag=True, help="Change a copy in a temporary folder, and tell what was done to it.")
@as_json
@quiet("Print the path of the backup alone.")
def adopt(file: Path | None, url: str | None, no_backup: bool, dry_run: bool, as_json: bool, quiet: bool) -> None:
    """Make FILE, a SQLite file that another program wrote, one that persist works with.

    A copy is put beside it first. Then missing tables, columns and indexes are added in one transaction; rows that a new rule
    would refuse are settled and reported. Tables, columns and rows that persist does not know stay as they are. Adopting twice
    is harmless, and so is an interruption: the file is as it was, and adopt can be run again.
    """
    given = file if file is not None else url
    if given is None:
        raise click.UsageError("Which file? Name it, give --url FILE, or set PERSIST_DATABASE_URL.")
    left = "The file is as it was." if dry_run else "The file is adopted wholly or not at all; the same command can be run again."
    with Progress("Adopting:", left=left, quiet=quiet or as_json) as progress:
        report = take_over(place_of(given), backup=not no_backup, dry_run=dry_run, progress=progress)
    if as_json:
        backup = None if report.backup_path is None else str(report.backup_path)
        say_json({**asdict(report), "path": str(report.path), "backup_path": backup, "dry_run": dry_run})
    elif quiet:
        if report.backup_path is not None:
            say(inline(str(report.backup_path)))
    else:
        for line in _adopted(report, Paint(), dry_run=dry_run):
            say(line)


def _adopted(report: AdoptReport, paint: Paint, *, dry_run: bool) -> Iterator[str]:
    path = inline(str(report.path))
    if not report.adopted:
        yield f"{path} needs no adopting: persist made or adopted it before. It is at {report.revision}."
        return
    done = "Nothing was changed. This would be done to" if dry_run else f"Adopted, at revision {report.revision}:"
    yield paint(f"{done} {path}", bold=True)
    if report.backup_path is not None:
        yield f"  backup   {inline(str(report.backup_path))}"
    if report.run_id is not None:
        yield f"  run      {inline(report.run_id)}"
    added = (("tables", report.added_tables), ("columns", report.added_columns), ("indexes", report.added_indexes))
    for what, names in added:
        yield f"  {what:<8} {len(names)} added"
        yield from (f"             {inline(name)}" for name in names)
    for name in report.rebuilt:
        yield f"  rebuilt  {name}"
    if report.moved:
        yield f"  members  {report.moved:,} places of progressions became rows"
    for settled in report.settled:
        yield f"  settled  {settled.table}, {settled.count:,} rows: {inline(settled.rule)}"
    for notice in report.notices:
        yield paint(f"  look at  {notice.subject}, {notice.count:,} rows: {inline(notice.message)}", fg="yellow")


@click.command(short_help="Print the SQL that gives a role its rights; no database.")
@click.option(
    "--role",
    "kind",
    type=click.Choice([str(kind) for kind in RoleKind]),
    help="What the role is for; all but subagent if left out.",
)
@click.option("--name", metavar="NAME", help="The role's name; persist_app and so on if left out.")
@click.option("--tenant", metavar="NAME", help="A role that sees its own rows alone, in a schema that tenants share.")
@click.option("--remove", is_flag=True, help="Delete the rows of --tenant, whose role may be gone, instead.")
@click.option("--owner", metavar="NAME", help="The role that runs `persist upgrade`; persist_owner if left out.")
@click.option("--schema", default="persist", show_default=True, metavar="NAME", help="The schema of the tables.")
def grants(kind: str | None, name: str | None, tenant: str | None, remove: bool, owner: str | None, schema: str) -> None:
    """Print the SQL that makes roles of Postgres and gives them their rights, for psql. Running it again is harmless.

    Run the owner's part before the first upgrade and the others after it, that of subagents after each upgrade. The first line
    lets psql end with an error where a statement fails; another program than psql leaves it out. The owner's part also hands
    over what another role made in the schema. What roles may do is in docs/operations.md.
    """
    if tenant is not None:
        if kind is not None or name is not None:
            raise click.UsageError("--tenant is a role of its own: leave out --role and --name.")
        script = tenant_removal_script(tenant, schema=schema) if remove else tenant_script(tenant, owner=owner, schema=schema)
        _print(script)
        return
    if remove:
        raise click.UsageError("--remove needs --tenant.")
    if name is not None and kind is None:
        raise click.UsageError("--name needs --role.")
    kinds = [one for one in RoleKind if one is not RoleKind.SUBAGENT] if kind is None else [RoleKind(kind)]
    _print("\n".join(grant_script(one, role=name, owner=owner, schema=schema) for one in kinds))


def _print(script: str) -> None:
    """Print a script for psql, which goes on after a statement that fails, and exits with 0, unless it is told to stop."""
    say("\\set ON_ERROR_STOP on\n" + script.rstrip("\n"))
