"""`persist checkpoint` and `persist vacuum`."""

import click

from persist.cli.database import Database, as_json, on_named_database, quiet
from persist.cli.failures import Failed
from persist.cli.output import say, say_json
from persist.cli.progress import Progress
from persist.cli.sizes import size
from persist.maintenance.operations import MODES
from persist.maintenance.operations import checkpoint as checkpoint_store
from persist.maintenance.operations import vacuum as vacuum_store
from persist.maintenance.overview import database_facts


@click.command(short_help="Move SQLite's write-ahead log into the file.")
@on_named_database
@click.option(
    "--mode",
    type=click.Choice(MODES, case_sensitive=False),
    default="TRUNCATE",
    show_default=True,
    help="PASSIVE waits for nobody; FULL for writers; RESTART for readers, too; TRUNCATE empties the log file then.",
)
@as_json
@quiet("Print nothing.")
def checkpoint(database: Database, mode: str, as_json: bool, quiet: bool) -> None:
    """Move SQLite's write-ahead log into the file. SQLite does so by itself, unless a reader stays for long.

    Exit code 1 if somebody was in the way. With --json: an object with `busy`, `log` and `checkpointed`, in pages.
    """
    with database.open_current() as store:
        busy, log, moved = checkpoint_store(store, mode)
    if as_json:
        say_json({"busy": busy, "log": log, "checkpointed": moved})
    elif not quiet and not busy:
        say("Checkpointed; the log is empty." if mode.upper() == "TRUNCATE" else f"Checkpointed {moved:,} of {log:,} pages.")
    if busy:
        raise Failed(f"Somebody was in the way: {max(moved, 0):,} of {max(log, 0):,} pages are checkpointed; try again.")


@click.command(short_help="Give free space back.")
@on_named_database
@as_json
@quiet("Print nothing.")
def vacuum(database: Database, as_json: bool, quiet: bool) -> None:
    """Give free space back: on SQLite rewrite the file, on Postgres VACUUM (ANALYZE) every table of persist.

    A SQLite file is locked while it is rewritten, and needs its own size again on the disk. With --json: an object with
    `before` and `after`, in bytes.
    """
    left = "No row is lost; run it again."
    with Progress("Vacuuming", left=left, quiet=quiet or as_json) as progress, database.open_current() as store:
        before = database_facts(store)["bytes"]
        progress.run(lambda: vacuum_store(store))
        progress.finish()
        after = database_facts(store)["bytes"]
    if as_json:
        say_json({"before": before, "after": after})
    elif not quiet:
        say(f"Vacuumed: {size(before)}, now {size(after)}.")
