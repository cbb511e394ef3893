"""`persist erase`: everything of a person goes, and a report says what."""

from functools import partial
from pathlib import Path

import click

from persist.cli.database import Database, as_json, on_named_database, quiet
from persist.cli.failures import Failed
from persist.cli.output import Paint, columns, inline, say, say_json
from persist.cli.progress import Progress
from persist.cli.prune import asks
from persist.maintenance import EraseReport
from persist.maintenance import erase as erase_in


@click.command(short_help="Erase all that belongs to a person.")
@on_named_database
@click.option("--owner", help="Who owns chats and tasks, or is the user of conversations, applications and chat platforms.")
@click.option("--session", "session_id", metavar="ID", help="A session, conversation, thread, run or instance with this id.")
@click.option("--user", "user_id", metavar="ID", help="The user of conversations, applications and chat platforms.")
@click.option("--namespace", help="Memories of this namespace (labels joined with dots) and below, and histories of this scope.")
@click.option(
    "--session-logs",
    type=click.Path(path_type=Path),
    metavar="HOME",
    help="Also delete the logs of erased sessions below HOME/projects.",
)
@click.option("--dry-run", is_flag=True, help="Erase nothing; the counts are those of a real run.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
@quiet("Print nothing.")
def erase(
    database: Database,
    owner: str | None,
    session_id: str | None,
    user_id: str | None,
    namespace: str | None,
    session_logs: Path | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Erase all that belongs to a person, in every domain and in the log of events.

    Several options add up. An erasure that was interrupted goes on when this command or `persist maintain` runs. The report is
    signed with PERSIST_REPORT_KEY; keep the JSON of it. On a terminal it asks first; without one it needs --yes.
    """
    if all(value is None for value in (owner, session_id, user_id, namespace)):
        raise click.UsageError("Who is to be erased? Give --owner, --session, --user or --namespace.")
    if not (yes or dry_run or asks()):
        raise click.UsageError("There is no terminal to ask on: give --yes to erase, or --dry-run.")
    unfinished = "What was erased stays erased; this command, or once it has begun `persist maintain`, goes on with the rest."
    left = "Nothing was erased." if dry_run else unfinished
    progress = Progress("Erasing:", left=left, quiet=quiet or as_json)
    of_whom = partial(
        erase_in, owner=owner, session_id=session_id, user_id=user_id, namespace=namespace, session_logs=session_logs
    )
    with progress, database.open_existing() as store:
        if not (yes or dry_run):
            trial = of_whom(store, dry_run=True)
            _show(trial, err=True)
            if not click.confirm("Erase them? Nothing brings them back.", err=True):
                raise Failed("Nothing was erased.")
        report = of_whom(store, dry_run=dry_run, progress=progress)
        progress.finish()
    if as_json:
        say_json({**report.model_dump(mode="json"), "total": report.total})
    elif not quiet:
        _show(report)


def _show(report: EraseReport, *, err: bool = False) -> None:
    """The rows of each table, what else went and what stays, then one sentence."""
    if report.tables:
        first, *lines = columns([("TABLE", "ROWS"), *((inline(name), f"{count:,}") for name, count in report.tables.items())])
        say(Paint()(first, bold=True), err=err)
        for line in lines:
            say(line, err=err)
    for reason, count in report.kept.items():
        say(f"Kept {count:,} of {inline(reason)}.", err=True)
    verb = "Would erase" if report.dry_run else "Erased"
    say(f"{verb} {report.total:,} rows, {report.events:,} events and {report.files:,} files.", err=True)
