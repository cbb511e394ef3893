"""`persist stats`, `backup`, `checkpoint` and `vacuum` of a database; `erd` and `completion`, which need none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.shell_completion import ShellComplete, get_completion_class

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.failures import Failed
from persist.cli.nouns import known, table
from persist.cli.output import inline, say, say_json, size
from persist.cli.progress import Progress
from persist.maintenance.backups import backup as copy_file
from persist.maintenance.diagram import erd as diagram
from persist.maintenance.operations import MODES
from persist.maintenance.operations import checkpoint as checkpoint_store
from persist.maintenance.operations import vacuum as vacuum_store
from persist.maintenance.overview import database_facts
from persist.maintenance.overview import stats as stats_of

_NAMED = 5
_SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Sizes, rows, statuses and settings of a database.")
@on_named_database
@click.option("--all", "everything", is_flag=True, help="Empty tables, too.")
@as_json
@quiet("Print the tables alone, one a line: name, rows, bytes.")
def stats(database: Database, everything: bool, as_json: bool, quiet: bool) -> None:
    """Print sizes, rows, large values, statuses and settings; on Postgres dead rows and unused indexes, too.

    It reads every table once. "large values" are texts, JSON and blobs, as they are stored. With --json: an object with
    `database`, `tables`, `indexes`, `blobs`, `statuses` and `settings`; sizes are in bytes.
    """
    with database.open(read_only=True) as store, Progress("Reading", left="", quiet=quiet or as_json) as progress:
        found = progress.run(lambda: stats_of(store, progress=progress))
    if as_json:
        say_json(found)
    elif quiet:
        for name, facts in found["tables"].items():
            say(f"{name} {facts['rows']} {'-' if facts['bytes'] is None else facts['bytes']}")
    else:
        for line in _stats(found, everything=everything):
            say(line)


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
