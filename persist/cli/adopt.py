"""`persist adopt`: taking over a database file that another program made."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from persist.cli.database import as_json, place_of, quiet
from persist.cli.output import Paint, inline, say, say_json
from persist.cli.progress import Progress
from persist.schema.adopt import AdoptReport
from persist.schema.adopt import adopt as take_over


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
        for line in _lines(report, Paint(), dry_run=dry_run):
            say(line)


def _lines(report: AdoptReport, paint: Paint, *, dry_run: bool) -> Iterator[str]:
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
