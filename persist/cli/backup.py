"""`persist backup`: a copy of a SQLite file, made while others write to it."""

from pathlib import Path

import click

from persist.cli.database import Database, as_json, on_database, quiet
from persist.cli.output import inline, say, say_json
from persist.cli.progress import Progress
from persist.cli.sizes import size
from persist.maintenance.backups import backup as copy_file


@click.command(short_help="Copy a SQLite file while others write to it.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@on_database
@click.option("--force", is_flag=True, help="Overwrite FILE, unless somebody has it open.")
@as_json
@quiet("Print nothing.")
def backup(file: Path, database: Database, force: bool, as_json: bool, quiet: bool) -> None:
    """Copy the database into FILE, as it is now, while others write to it.

    FILE appears whole and checked, or not at all, and opens as a store. Files beside the database, such as attachments of a
    run, are not in it. On Postgres this says which pg_dump to run. With --json: an object with `path`, `pages` and `bytes`.
    """
    left = f"{inline(str(file))} was not written."
    progress = Progress("Copying", unit="pages", left=left, quiet=quiet or as_json)
    with progress, database.open(read_only=True) as store:
        report = copy_file(store, file, progress=progress.count, overwrite=force)
        progress.finish()
    if as_json:
        say_json({"path": str(report.path), "pages": report.pages, "bytes": report.bytes})
    elif not quiet:
        say(f"Copied {size(report.bytes)} to {inline(str(report.path))}.")
