"""`persist prune`, `maintain` and `erase`: what goes by age, what a job runs every night, and all of a person."""

import sys
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path

import click

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet, to_age
from persist.cli.failures import Failed
from persist.cli.nouns import table
from persist.cli.output import inline, instant, say, say_json
from persist.cli.progress import Progress
from persist.maintenance import EraseReport, MaintenanceReport, PruneReport, prunable
from persist.maintenance import erase as erase_in
from persist.maintenance import maintain as maintain_store
from persist.maintenance import prune as prune_store


@click.command(short_help="Delete what is over and old.")
@click.argument("what", type=click.Choice(prunable()), metavar="WHAT")
@on_database
@click.option(
    "--older-than",
    callback=to_age,
    metavar="AGE",
    required=True,
    help="90m, 12h, 30d, 2w: how long ago it ended or was last used.",
)
@click.option("--keep", type=click.IntRange(0), default=0, help="The newest so many stay, however old.")
@click.option("--dry-run", is_flag=True, help="Delete nothing; the counts are those of a real run.")
@click.option("--yes", is_flag=True, help="Do not ask, on a terminal.")
@as_json
@quiet("Print nothing.")
def prune(
    what: str, database: Database, older_than: timedelta, keep: int, dry_run: bool, yes: bool, as_json: bool, quiet: bool
) -> None:
    """Delete what is over and older than --older-than, with everything that belongs to it.

    WHAT is agent_tasks, app_sessions, blobs, chat, checkpoints, conversations, histories, messaging, programs, replay_streams,
    telemetry, transcripts, usage or workflows, or one table of these, such as status_log. Nothing goes that still runs, waits for
    somebody or is active. An interrupted prune is simply run again.
    """

    def left() -> str:
        if dry_run or not progress.done:
            return "Nothing was deleted."
        return f"{progress.done:,} rows are deleted; run it again to go on."

    progress = Progress("Deleting", unit="rows", left=left, quiet=quiet or as_json or dry_run)
    with progress, database.open_existing() as store:
        if asks() and not (yes or dry_run):
            trial = prune_store(store, what, older_than=older_than, keep=keep, dry_run=True)
            _show(trial, err=True)
            if trial.total and not click.confirm("Delete them?", err=True):
                raise Failed("Nothing was deleted.")
        report = prune_store(store, what, older_than=older_than, keep=keep, dry_run=dry_run, progress=progress.count)
        progress.finish()
    if as_json:
        say_json({**report.model_dump(mode="json"), "total": report.total})
    elif not quiet:
        _show(report)


@click.command(short_help="Fold, trim, prune what settings say, and tidy up.")
@on_named_database
@click.option("--dry-run", is_flag=True, help="Change nothing; the counts are those of a real run.")
@as_json
@quiet("Print nothing but errors.")
def maintain(database: Database, dry_run: bool, as_json: bool, quiet: bool) -> None:
    """Do what a job should do every hour or night; safe beside writers, and beside another one.

    Folds text that dead writers left unfolded, removes their turns, trims the windows of telemetry to their sizes, and prunes
    the domains for which a setting says how long to keep: PERSIST_CHAT_KEEP_DAYS, PERSIST_CHAT_KEEP_LAST and so on. Without
    such a setting it deletes nothing else. Exit code 1 if a step failed; the others are done all the same.
    """
    left = "Nothing was changed." if dry_run else "Steps that are done stay done; run it again for the rest."
    with Progress("Maintaining:", left=left, quiet=quiet or as_json) as progress, database.open_existing() as store:
        report = maintain_store(store, dry_run=dry_run, progress=progress)
        progress.finish()
    if as_json:
        say_json({**report.model_dump(mode="json"), "failed": report.failed})
    elif not quiet:
        _table(("STEP", "TABLE", "ROWS"), _steps(report))
        if dry_run:
            say("Nothing was changed.", err=True)
    if report.failed:
        raise Failed("; ".join(f"{step.name}: {step.error}" for step in report.steps if step.error is not None))


def asks() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def _show(report: PruneReport, *, err: bool = False) -> None:
    """The rows of each table, then what they are in one sentence."""
    if report.tables:
        _table(("TABLE", "ROWS"), report.tables.items(), err=err)
    verb = "Would delete" if report.dry_run else "Deleted"
    say(f"{verb} {report.total:,} rows of {report.what} from before {instant(report.before)} UTC.", err=True)
    for name, count in report.kept.items():
        say(f"Left what {count:,} rows of {inline(name)} need: delete these first.", err=True)
    if report.files:
        say(f"{len(report.files):,} files that they name stay where they are; --json lists them.", err=True)


def _steps(report: MaintenanceReport) -> Iterable[tuple[str, str, str]]:
    for step in report.steps:
        if step.error is not None:
            yield step.name, "failed", "-"
        for name, count in step.tables.items():
            yield step.name, name, f"{count:,}"
        if not step.tables and step.error is None:
            yield step.name, "-", "0"


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]], *, err: bool = False) -> None:
    for line in table(head, rows):
        say(line, err=err)


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
            _show_erased(trial, err=True)
            if not click.confirm("Erase them? Nothing brings them back.", err=True):
                raise Failed("Nothing was erased.")
        report = of_whom(store, dry_run=dry_run, progress=progress)
        progress.finish()
    if as_json:
        say_json({**report.model_dump(mode="json"), "total": report.total})
    elif not quiet:
        _show_erased(report)


def _show_erased(report: EraseReport, *, err: bool = False) -> None:
    """The rows of each table, what else went and what stays, then one sentence."""
    if report.tables:
        _table(("TABLE", "ROWS"), report.tables.items(), err=err)
    for reason, count in report.kept.items():
        say(f"Kept {count:,} of {inline(reason)}.", err=True)
    verb = "Would erase" if report.dry_run else "Erased"
    say(f"{verb} {report.total:,} rows, {report.events:,} events and {report.files:,} files.", err=True)
