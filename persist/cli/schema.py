"""Commands about the tables: upgrade, current, check, adopt, grants, alembic-ini; and `persist tenants`."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from persist.cli.database import Database, as_json, on_named_database, place_of, quiet
from persist.cli.moving import LEAVE_UNKNOWN, as_said, others, same
from persist.cli.nouns import Answer, Noun, answers, is_silent, told
from persist.cli.output import Paint, Progress, inline, say, say_json, size
from persist.cli.root import Failed
from persist.errors import NotFound, UnknownTenant
from persist.schema import migrate
from persist.schema.adopt import AdoptReport
from persist.schema.adopt import adopt as take_over
from persist.schema.grants import grant_script, tenant_removal_script, tenant_script
from persist.schema.metadata import HEAD
from persist.schema.subagent_roles import RoleKind
from persist.tenants.placing import UpgradeOutcome, UpgradeReport, UpgradeStatus
from persist.tenants.tenants import Tenants

F = TypeVar("F", bound=Callable[..., Any])


def _on_server(command: F) -> F:
    """--url; the command receives `tenants`."""

    def run(*args: Any, url: str | None, **rest: Any) -> Any:
        with on_server(url) as tenants:
            return command(*args, tenants=tenants, **rest)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__dict__.update(command.__dict__)
    help = "FOLDER, sqlite:///FOLDER or postgresql://…; without it PERSIST_DATABASE_URL."
    return click.option("--url", envvar="PERSIST_DATABASE_URL", help=help)(run)  # type: ignore[return-value]  # click's options


def on_server(url: str | Path | None) -> Tenants:
    """The tenants of the server that the command was given."""
    if url is None:
        raise click.UsageError("Which server? Give --url FOLDER or postgresql://…, or set PERSIST_DATABASE_URL.")
    return Tenants(place_of(url))


tenants = Noun("tenants", "Tenants: a schema each in a Postgres database, or a file each in a folder.")


@tenants.command(short_help="List tenants by name.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="Go on after a page: the cursor that it ended with.")
@_on_server
@answers("Print the names alone.")
def ls(tenants: Tenants, limit: int, after: str | None) -> Answer:
    """List tenants by name. With --json: an object with `items` and `cursor`."""
    page = tenants.list(limit=limit, after=after)
    names = [tenant.name for tenant in page.items]
    notes = ["No tenants."] if not names else [] if page.cursor is None else [f"More: --after {page.cursor}"]
    return Answer({"items": [{"name": name} for name in names], "cursor": page.cursor}, names, names, notes)


@tenants.command(short_help="Create a tenant.")
@click.argument("name")
@_on_server
@answers("Print nothing.")
def create(name: str, tenants: Tenants) -> Answer:
    """Create the tenant NAME: lower-case letters a to z, digits and underscores, at most 63. Exit code 1 if there is one."""
    tenant = tenants.create(name)
    return told({"name": tenant.name}, f"Created {tenant.name}.")


@tenants.command(short_help="Delete a tenant with all its data.")
@click.argument("name")
@_on_server
@click.option("--yes", metavar="NAME", help="Do not ask: the name of the tenant once more.")
@answers("Print nothing.", json=False)
def drop(name: str, tenants: Tenants, yes: str | None) -> Answer:
    """Delete the tenant NAME with all its data, and whatever else is in its schema. It asks for the name once more."""
    if not tenants.exists(name):
        raise UnknownTenant("tenant", name)
    if yes is None:
        if not sys.stdin.isatty():
            raise click.UsageError(f"To drop {inline(name)} without being asked, repeat its name: --yes {inline(name)}")
        yes = click.prompt(f"This deletes all data of {inline(name)}. Its name once more", err=True)
    tenants.drop(name, confirm=yes)
    return told(None, f"Dropped {name}.")


@tenants.command(short_help="Copy a tenant to another server, and compare.")
@click.argument("name")
@click.argument("to", metavar="URL")
@_on_server
@LEAVE_UNKNOWN
@click.option("--as", "new_name", metavar="NAME", help="The name of the copy, if it is another one.")
@answers("Print nothing.")
def copy(name: str, to: str, tenants: Tenants, new_name: str | None, leave_unknown: bool) -> Answer:
    """Copy the tenant NAME to the server at URL, FOLDER, sqlite:///FOLDER or postgresql://…, then compare every table.

    The copy must not be there, or be without rows. One that failed or was killed cannot be opened; run it again, or drop it.
    """
    left = f"A copy that is not complete cannot be opened: run this again, or drop {inline(new_name or name)} there."
    with Progress("Copying", unit="rows", left=left, quiet=is_silent()) as progress:
        report = tenants.copy(name, _url_of(to), new_name=new_name, progress=progress.of_rows, leave_unknown=leave_unknown)
    rows = sum(report.tables.values())
    copied = f"Copied {rows:,} {'row' if rows == 1 else 'rows'} of {name}; {same(report, 'both hold the same')}."
    return told(as_said(report), copied, *others(report))


def _url_of(given: str) -> str:
    place = place_of(given)
    return f"sqlite:///{place.as_posix()}" if isinstance(place, Path) else place


def upgrade_every(url: str | Path | None, parallel: int, *, as_json: bool, quiet: bool) -> None:
    """Upgrade all tenants of a server: `persist upgrade --all-schemas`. Exit code 1 if one of them failed."""

    def tell(outcome: UpgradeOutcome) -> None:
        if not quiet and not as_json and outcome.status is UpgradeStatus.UPGRADED:
            say(f"{outcome.tenant}: upgraded from {outcome.found}")
        elif not as_json and outcome.status is UpgradeStatus.FAILED:
            say(f"{outcome.tenant}: {inline(outcome.error or '')}", err=True)

    left = "Tenants that are upgraded stay so; run it again for the rest."
    with Progress("Upgrading", left=left, quiet=quiet or as_json) as progress, on_server(url) as tenants:
        report = tenants.upgrade_all(parallel=parallel, progress=tell)
        progress.finish()
    if as_json:
        say_json({"items": map(_item, report.outcomes), "cursor": None})
    elif not quiet:
        say(_summary(report))
    if report.failed:
        raise Failed(f"{len(report.failed)} of {len(report.outcomes)} tenants could not be upgraded, and are as they were.")


def _item(outcome: UpgradeOutcome) -> dict[str, str | None]:
    return {"name": outcome.tenant, "status": outcome.status.value, "from": outcome.found, "error": outcome.error}


def _summary(report: UpgradeReport) -> str:
    counts = ", ".join(f"{report.count(status)} {status.value}" for status in UpgradeStatus)
    return f"{len(report.outcomes)} tenants: {counts}."


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
        upgrade_every(database.url, parallel, as_json=as_json, quiet=quiet)
        return
    if plan:
        _show_plan(migrate.plan(database.url, schema=database.schema), as_json=as_json)
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


def _show_plan(plan: migrate.Plan, *, as_json: bool) -> None:
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
@answers("Print the revision alone.")
def current(database: Database) -> Answer:
    """Print the revision a database is at."""
    found = migrate.current(database.url, schema=database.schema)
    json = {"revision": found, "head": HEAD}
    if found is None:
        return told(json, "none (there are no tables of persist here; `persist upgrade` creates them)")
    return Answer(json, [f"{found} ({'head' if found == HEAD else f'this version of persist is at {HEAD}'})"], [found])


@click.command(short_help="Fail unless a database is up to date.")
@on_named_database
@answers("Print nothing when all is well.")
def check(database: Database) -> Answer:
    """Fail, with exit code 1, unless a database is at the revision of this version."""
    migrate.check(database.url, schema=database.schema)
    return told({"revision": HEAD, "head": HEAD}, f"Up to date, at {HEAD}.")


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
@answers("Print the path of the backup alone.")
def adopt(file: Path | None, url: str | None, no_backup: bool, dry_run: bool) -> Answer:
    """Make FILE, a SQLite file that another program wrote, one that persist works with.

    A copy is put beside it first. Then missing tables, columns and indexes are added in one transaction; rows that a new rule
    would refuse are settled and reported. Tables, columns and rows that persist does not know stay as they are. Adopting twice
    is harmless, and so is an interruption: the file is as it was, and adopt can be run again.
    """
    given = file if file is not None else url
    if given is None:
        raise click.UsageError("Which file? Name it, give --url FILE, or set PERSIST_DATABASE_URL.")
    left = "The file is as it was." if dry_run else "The file is adopted wholly or not at all; the same command can be run again."
    with Progress("Adopting:", left=left, quiet=is_silent()) as progress:
        report = take_over(place_of(given), backup=not no_backup, dry_run=dry_run, progress=progress)
    backup = None if report.backup_path is None else str(report.backup_path)
    said = {**asdict(report), "path": str(report.path), "backup_path": backup, "dry_run": dry_run}
    return Answer(said, _adopted(report, Paint(), dry_run=dry_run), [] if backup is None else [inline(backup)])


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
        yield f"  settled  {inline(settled.table)}, {settled.count:,} rows: {inline(settled.rule)}"
    for notice in report.notices:
        yield paint(f"  look at  {inline(notice.subject)}, {notice.count:,} rows: {inline(notice.message)}", fg="yellow")


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
