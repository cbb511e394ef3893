"""`persist tenants`: list, create, drop and copy the tenants of a server."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from persist.cli.database import as_json, place_of, quiet
from persist.cli.failures import Failed
from persist.cli.moving import LEAVE_UNKNOWN, as_said, same, say_others
from persist.cli.nouns import Answer, Noun, answers, told
from persist.cli.output import inline, say, say_json
from persist.cli.progress import Progress
from persist.errors import UnknownTenant
from persist.tenants.schemas import UpgradeOutcome, UpgradeReport, UpgradeStatus
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


tenants = Noun(
    "tenants",
    "List, create, drop and copy tenants.",
    "Tenants: a schema each in a Postgres database, or a file each in a folder.",
)


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
@as_json
@quiet("Print nothing.")
def copy(name: str, to: str, tenants: Tenants, new_name: str | None, leave_unknown: bool, as_json: bool, quiet: bool) -> None:
    """Copy the tenant NAME to the server at URL, FOLDER, sqlite:///FOLDER or postgresql://…, then compare every table.

    The copy must not be there, or be without rows. One that failed or was killed cannot be opened; run it again, or drop it.
    """
    left = f"A copy that is not complete cannot be opened: run this again, or drop {inline(new_name or name)} there."
    with Progress("Copying", unit="rows", left=left, quiet=quiet or as_json) as progress:
        report = tenants.copy(name, _url_of(to), new_name=new_name, progress=progress.of_rows, leave_unknown=leave_unknown)
    if as_json:
        say_json(as_said(report))
    elif not quiet:
        rows = sum(report.tables.values())
        say(f"Copied {rows:,} {'row' if rows == 1 else 'rows'} of {name}; {same(report, 'both hold the same')}.")
        say_others(report)


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
