"""`persist stats`, `backup`, `checkpoint`, `vacuum`, `prune`, `maintain` and `erase` of a database; `erd` and `completion`."""

import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import ShellComplete, get_completion_class

from persist.cli.database import Database, on_database, on_named_database, to_age
from persist.cli.nouns import Answer, answers, is_silent, known, table, told
from persist.cli.output import Progress, inline, instant, say, size
from persist.cli.root import Failed
from persist.maintenance import EraseReport, MaintenanceReport, PruneReport, prunable
from persist.maintenance import erase as erase_in
from persist.maintenance import maintain as maintain_store
from persist.maintenance import prune as prune_store
from persist.maintenance.backups import MODES
from persist.maintenance.backups import backup as copy_file
from persist.maintenance.backups import checkpoint as checkpoint_store
from persist.maintenance.backups import vacuum as vacuum_store
from persist.maintenance.describing import database_facts
from persist.maintenance.describing import erd as diagram
from persist.maintenance.describing import stats as stats_of


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
@answers("Print nothing.")
def prune(what: str, database: Database, older_than: timedelta, keep: int, dry_run: bool, yes: bool) -> Answer:
    """Delete what is over and older than --older-than, with everything that belongs to it.

    WHAT is agent_tasks, app_sessions, blobs, chat, checkpoints, conversations, histories, messaging, programs, replay_streams,
    telemetry, transcripts, usage or workflows, or one table of these, such as status_log. Nothing goes that still runs, waits for
    somebody or is active. An interrupted prune is simply run again.
    """

    def left() -> str:
        if dry_run or not progress.done:
            return "Nothing was deleted."
        return f"{progress.done:,} rows are deleted; run it again to go on."

    progress = Progress("Deleting", unit="rows", left=left, quiet=dry_run or is_silent())
    with progress, database.open_existing() as store:
        if asks() and not (yes or dry_run):
            trial = prune_store(store, what, older_than=older_than, keep=keep, dry_run=True)
            _agreed(_pruned(trial), "Delete them?" if trial.total else None, "Nothing was deleted.")
        report = prune_store(store, what, older_than=older_than, keep=keep, dry_run=dry_run, progress=progress.count)
        progress.finish()
    return _pruned(report)


@click.command(short_help="Fold, trim, prune what settings say, and tidy up.")
@on_named_database
@click.option("--dry-run", is_flag=True, help="Change nothing; the counts are those of a real run.")
@answers("Print nothing but errors.")
def maintain(database: Database, dry_run: bool) -> Answer:
    """Do what a job should do every hour or night; safe beside writers, and beside another one.

    Folds text that dead writers left unfolded, removes their turns, trims the windows of telemetry to their sizes, and prunes
    the domains for which a setting says how long to keep: PERSIST_CHAT_KEEP_DAYS, PERSIST_CHAT_KEEP_LAST and so on. Without
    such a setting it deletes nothing else. Exit code 1 if a step failed; the others are done all the same.
    """
    left = "Nothing was changed." if dry_run else "Steps that are done stay done; run it again for the rest."
    with Progress("Maintaining:", left=left, quiet=is_silent()) as progress, database.open_existing() as store:
        report = maintain_store(store, dry_run=dry_run, progress=progress)
        progress.finish()
    failures = "; ".join(f"{step.name}: {step.error}" for step in report.steps if step.error is not None)
    return Answer(
        {**report.model_dump(mode="json"), "failed": report.failed},
        table(("STEP", "TABLE", "ROWS"), _steps(report)),
        notes=["Nothing was changed."] if dry_run else (),
        failed=Failed(failures) if report.failed else None,
    )


def asks() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def _agreed(trial: Answer, question: str | None, otherwise: str) -> None:
    """Tell on standard error what would be done, and ask. Raises Failed for a no."""
    for line in (*trial.lines, *trial.notes):
        say(line, err=True)
    if question is not None and not click.confirm(question, err=True):
        raise Failed(otherwise)


def _counted(report: PruneReport | EraseReport, notes: Iterable[str]) -> Answer:
    counts = table(("TABLE", "ROWS"), report.tables.items()) if report.tables else ()
    return Answer({**report.model_dump(mode="json"), "total": report.total}, counts, notes=notes)


def _pruned(report: PruneReport) -> Answer:
    verb = "Would delete" if report.dry_run else "Deleted"
    notes = [f"{verb} {report.total:,} rows of {report.what} from before {instant(report.before)} UTC."]
    notes += [f"Left what {count:,} rows of {inline(name)} need: delete these first." for name, count in report.kept.items()]
    if report.files:
        notes.append(f"{len(report.files):,} files that they name stay where they are; --json lists them.")
    return _counted(report, notes)


def _steps(report: MaintenanceReport) -> Iterable[tuple[str, str, str]]:
    for step in report.steps:
        if step.error is not None:
            yield step.name, "failed", "-"
        for name, count in step.tables.items():
            yield step.name, name, f"{count:,}"
        if not step.tables and step.error is None:
            yield step.name, "-", "0"


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
@answers("Print nothing.")
def erase(
    database: Database,
    owner: str | None,
    session_id: str | None,
    user_id: str | None,
    namespace: str | None,
    session_logs: Path | None,
    dry_run: bool,
    yes: bool,
) -> Answer:
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
    progress = Progress("Erasing:", left=left, quiet=is_silent())
    of_whom = partial(
        erase_in, owner=owner, session_id=session_id, user_id=user_id, namespace=namespace, session_logs=session_logs
    )
    with progress, database.open_existing() as store:
        if not (yes or dry_run):
            trial = _erased(of_whom(store, dry_run=True))
            _agreed(trial, "Erase them? Nothing brings them back.", "Nothing was erased.")
        report = of_whom(store, dry_run=dry_run, progress=progress)
        progress.finish()
    return _erased(report)


def _erased(report: EraseReport) -> Answer:
    kept = [f"Kept {count:,} of {inline(reason)}." for reason, count in report.kept.items()]
    verb = "Would erase" if report.dry_run else "Erased"
    return _counted(report, [*kept, f"{verb} {report.total:,} rows, {report.events:,} events and {report.files:,} files."])


_NAMED = 5
_SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Sizes, rows, statuses and settings of a database.")
@on_named_database
@click.option("--all", "everything", is_flag=True, help="Empty tables, too.")
@answers("Print the tables alone, one a line: name, rows, bytes.")
def stats(database: Database, everything: bool) -> Answer:
    """Print sizes, rows, large values, statuses and settings; on Postgres dead rows and unused indexes, too.

    It reads every table once. "large values" are texts, JSON and blobs, as they are stored. With --json: an object with
    `database`, `tables`, `indexes`, `blobs`, `statuses` and `settings`; sizes are in bytes.
    """
    with database.open(read_only=True) as store, Progress("Reading", left="", quiet=is_silent()) as progress:
        found = progress.run(lambda: stats_of(store, progress=progress))
    tables = found["tables"].items()
    names = (f"{name} {facts['rows']} {'-' if facts['bytes'] is None else facts['bytes']}" for name, facts in tables)
    return Answer(found, _stats(found, everything=everything), names)


def _stats(found: dict[str, Any], *, everything: bool) -> Iterator[str]:
    yield from known(_database(found))
    yield ""
    head, *rows = _tables(found, everything=everything)
    yield from table(head, rows)
    statuses = list(_statuses(found))
    if statuses:
        yield ""
        yield from table(("STATUSES", ""), statuses)


def _database(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    database = found["database"]
    path = database.get("path") or database.get("database") or ":memory:"
    where = f"{path}, schema {database['schema']}" if database.get("schema") else path
    yield "database", f"{inline(where)} ({database['dialect']} {inline(database['version'])})"
    behind = "" if database["revision"] == database["head"] else f" (this version of persist is at {database['head']})"
    yield "revision", f"{database['revision']}{behind}"
    if "pages" in database:
        yield "size", f"{size(database['bytes'])}: {database['pages']:,} pages, {database['free_pages']:,} of them free"
        yield "log", size(database["wal_bytes"])
    else:
        yield "size", f"{size(database['bytes'])} of {size(database['database_bytes'])} in the database"
    yield "settings", ", ".join(f"{name} {inline(str(value))}" for name, value in found["settings"].items())
    unused = [index for index in found["indexes"] if index.get("scans") == 0 and not index["unique"]]
    if unused:
        unused.sort(key=lambda index: (-index["bytes"], index["name"]))
        named = ", ".join(f"{inline(index['name'])} {size(index['bytes'])}" for index in unused[:_NAMED])
        yield "unused", f"{len(unused):,} indexes without a scan: {named}{', …' if len(unused) > _NAMED else ''}"


def _tables(found: dict[str, Any], *, everything: bool) -> Iterator[tuple[str, ...]]:
    server = any("dead_rows" in facts for facts in found["tables"].values())
    yield ("TABLE", "DOMAIN", "ROWS", "SIZE", "LARGE VALUES", *(("DEAD ROWS", "VACUUMED (UTC)") if server else ()))
    total_rows = total_size = total_large = 0
    ordered = sorted(found["tables"].items(), key=lambda item: (-(item[1]["bytes"] or 0), -item[1]["rows"], item[0]))
    for name, facts in ordered:
        large = sum(found["blobs"].get(name, {}).values())
        total_rows, total_size, total_large = total_rows + facts["rows"], total_size + (facts["bytes"] or 0), total_large + large
        if facts["rows"] or facts.get("dead_rows") or everything:
            more = (f"{facts['dead_rows']:,}", (facts["last_vacuum"] or "never")[:19].replace("T", " ")) if server else ()
            yield (name, facts["domain"], f"{facts['rows']:,}", size(facts["bytes"]), size(large) if large else "-", *more)
    known = any(facts["bytes"] is not None for facts in found["tables"].values())
    blank = ("", "") if server else ()
    yield ("total", "", f"{total_rows:,}", size(total_size if known else None), size(total_large) if total_large else "-", *blank)


def _statuses(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for tables in found["statuses"].values():
        for name, counts in tables.items():
            words = [f"{inline(word)} {count:,}" for word, count in counts["by_status"].items()]
            if counts["null"]:
                words.append(f"without one {counts['null']:,}")
            if words:
                yield name, ", ".join(words)


@click.command(short_help="Copy a SQLite file while others write to it.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@on_database
@click.option("--force", is_flag=True, help="Overwrite FILE, unless somebody has it open.")
@answers("Print nothing.")
def backup(file: Path, database: Database, force: bool) -> Answer:
    """Copy the database into FILE, as it is now, while others write to it.

    FILE appears whole and checked, or not at all, and opens as a store. Files beside the database, such as attachments of a
    run, are not in it. On Postgres this says which pg_dump to run. With --json: an object with `path`, `pages` and `bytes`.
    """
    left = f"{inline(str(file))} was not written."
    progress = Progress("Copying", unit="pages", left=left, quiet=is_silent())
    with progress, database.open(read_only=True) as store:
        report = copy_file(store, file, progress=progress.count, overwrite=force)
        progress.finish()
    facts = {"path": str(report.path), "pages": report.pages, "bytes": report.bytes}
    return told(facts, f"Copied {size(report.bytes)} to {inline(str(report.path))}.")


@click.command(short_help="Move SQLite's write-ahead log into the file.")
@on_named_database
@click.option(
    "--mode",
    type=click.Choice(MODES, case_sensitive=False),
    default="TRUNCATE",
    show_default=True,
    help="PASSIVE waits for nobody; FULL for writers; RESTART for readers, too; TRUNCATE empties the log file then.",
)
@answers("Print nothing.")
def checkpoint(database: Database, mode: str) -> Answer:
    """Move SQLite's write-ahead log into the file. SQLite does so by itself, unless a reader stays for long.

    Exit code 1 if somebody was in the way. With --json: an object with `busy`, `log` and `checkpointed`, in pages.
    """
    with database.open_current() as store:
        busy, log, moved = checkpoint_store(store, mode)
    facts = {"busy": busy, "log": log, "checkpointed": moved}
    if busy:
        failed = f"Somebody was in the way: {max(moved, 0):,} of {max(log, 0):,} pages are checkpointed; try again."
        return Answer(facts, failed=Failed(failed))
    return told(
        facts, "Checkpointed; the log is empty." if mode.upper() == "TRUNCATE" else f"Checkpointed {moved:,} of {log:,} pages."
    )


@click.command(short_help="Give free space back.")
@on_named_database
@answers("Print nothing.")
def vacuum(database: Database) -> Answer:
    """Give free space back: on SQLite rewrite the file, on Postgres VACUUM (ANALYZE) every table of persist.

    A SQLite file is locked while it is rewritten, and needs its own size again on the disk. With --json: an object with
    `before` and `after`, in bytes.
    """
    left = "No row is lost; run it again."
    with Progress("Vacuuming", left=left, quiet=is_silent()) as progress, database.open_current() as store:
        before = database_facts(store)["bytes"]
        progress.run(lambda: vacuum_store(store))
        progress.finish()
        after = database_facts(store)["bytes"]
    return told({"before": before, "after": after}, f"Vacuumed: {size(before)}, now {size(after)}.")


@click.command(short_help="Print the tables as a Mermaid diagram; no database.")
@click.option("--domain", metavar="NAME", help="The tables of one domain alone, such as chat.")
def erd(domain: str | None) -> None:
    """Print the tables and who refers to whom as a Mermaid diagram, for a page of docs. No database is needed."""
    say(diagram(domain=domain).rstrip("\n"))


@click.command(short_help="Print a script for the shell's tab key; no database.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that lets SHELL complete the names of commands and options: bash 4.4 or newer, zsh or fish.

    For bash `eval "$(persist completion bash)"` in ~/.bashrc, for zsh the same in ~/.zshrc, for fish
    `persist completion fish > ~/.config/fish/completions/persist.fish`.
    """
    found = get_completion_class(shell)
    assert found is not None, "click has each of them"
    script = found(ctx.find_root().command, {}, "persist", "_PERSIST_COMPLETE")
    say(ShellComplete.source(script).strip("\n"))  # its own method first starts a bash, to look at its version
