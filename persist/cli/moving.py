"""Commands that move rows: copy, export, import."""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from persist.cli.database import Database, as_json, on_database, place_of, quiet
from persist.cli.nouns import table
from persist.cli.output import inline, say, say_json
from persist.cli.progress import Progress
from persist.errors import NotFound
from persist.maintenance import CopyReport, ExportReport, ImportReport, copy_resumably
from persist.maintenance import copy as copy_store
from persist.maintenance import export as export_store
from persist.maintenance import import_ as import_file
from persist.schema import migrate
from persist.store.store import Store

F = TypeVar("F", bound=Callable[..., Any])

_STREAM = Path("-")
LEAVE_UNKNOWN = click.option("--leave-unknown", is_flag=True, help="Leave columns and tables x_… that persist does not know.")
_SCOPES = ("run_id", "instance_id", "workspace_id")


def _whose(command: F) -> F:
    """--run-id, --instance-id, --workspace-id."""
    for scope in reversed(_SCOPES):
        what = scope.removesuffix("_id")
        help = f"Whose the rows are that belong to the file itself, if it does not say: the {what}."
        command = click.option(f"--{what}-id", scope, metavar="ID", help=help)(command)
    return command


def _given(scopes: Mapping[str, str | None]) -> dict[str, str]:
    return {scope: id for scope, id in scopes.items() if id is not None}


@click.command("copy", short_help="Copy everything into an empty database, and compare.")
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option(
    "--source-schema", metavar="NAME", help="The schema of SRC on Postgres: PERSIST_SCHEMA_NAME, or persist without it."
)
@click.option("--target-schema", metavar="NAME", help="The same of DST.")
@LEAVE_UNKNOWN
@click.option("--resumable", is_flag=True, help="Copy in many transactions; the same command goes on after an interruption.")
@_whose
@as_json
@quiet("Print nothing, and no progress.")
def copy(
    source: str,
    target: str,
    source_schema: str | None,
    target_schema: str | None,
    resumable: bool,
    leave_unknown: bool,
    as_json: bool,
    quiet: bool,
    **scopes: str | None,
) -> None:
    """Copy every row of SRC into DST, then read DST back and compare: rows and a checksum of each table.

    Both are FILE, sqlite:///FILE or postgresql://…. DST is made if it is not there, and must be without rows. It is one
    transaction: a copy that failed or was killed left DST empty, and can be run again. Writers may go on in SRC; what they write
    after the copy began is not in it.

    With --resumable no transaction is long, and DST cannot be opened until the copy is complete. After an interruption the same
    command goes on. At its end DST is what SRC was when the comparison of the two began.
    """
    given = _given(scopes)
    left = (
        "What was copied stays; the same command goes on."
        if resumable
        else "A copy that is not complete is undone: DST is without rows."
    )
    with (
        Progress("Copying", unit="rows", left=left, quiet=quiet or as_json) as progress,
        Store.open(place_of(source), schema=source_schema, read_only=True) as reading,
    ):
        if resumable:
            report = copy_resumably(
                reading,
                place_of(target),
                schema=target_schema,
                progress=progress.of_rows,
                scopes=given,
                leave_unknown=leave_unknown,
            )
            progress.finish()
        else:
            with _target(place_of(target), target_schema) as writing:
                report = copy_store(reading, writing, progress=progress.of_rows, scopes=given, leave_unknown=leave_unknown)
                progress.finish()
    if as_json:
        say_json(as_said(report))
    elif not quiet:
        _show_tables(report.tables, report.checksums)
        rows, tables = sum(report.tables.values()), sum(map(bool, report.tables.values()))
        proven = same(report, "both databases hold the same")
        say(f"Copied {rows:,} {'row' if rows == 1 else 'rows'} of {tables} tables; {proven}.")
        say_others(report)


def as_said(report: CopyReport) -> dict[str, Any]:
    """The report of a copy as JSON."""
    tables = {name: {"rows": rows, "checksum": report.checksums[name]} for name, rows in report.tables.items()}
    unknown = {"carried": dict(report.carried), "left_unknown": dict(report.left_unknown)}
    return {"tables": tables, "left_out": list(report.left_out), **unknown, "filled": dict(report.filled)}


def same(report: CopyReport, equal: str) -> str:
    """What was proven: that both are equal only if nothing was left and nothing was filled."""
    whole = not (report.left_out or report.left_unknown or report.filled)
    return equal if whole else "what was copied was read back and is the same"


def say_others(report: CopyReport) -> None:
    """Say what a copy did with what is not persist's, and with cells that held nothing."""
    _say_unknown("Copied", report)
    if report.left_out:
        say(f"Not copied, because they are not persist's: {', '.join(map(inline, report.left_out))}.")


def _say_unknown(done: str, report: CopyReport | ExportReport | ImportReport, *, err: bool = False) -> None:
    if report.carried:
        say(f"{done} with them, though persist does not know it: {_counted(report.carried)}.", err=err)
    if not isinstance(report, ImportReport) and report.filled:
        say(f"Held nothing, and got a value, because other databases must hold one: {_counted(report.filled)}.", err=err)
    if report.left_unknown:
        say(f"Left, as asked: {_counted(report.left_unknown)}.", err=err)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{inline(name)} ({count:,})" for name, count in sorted(counts.items()))


def _target(url: str | Path, schema: str | None) -> Store:
    """A database without tables gets them; one that has some is not changed before it was looked at."""
    found = None
    with suppress(NotFound):  # a new file; what else is not there fails when it is opened
        found = migrate.current(url, schema=schema)
    if found is None:
        migrate.upgrade(url, schema=schema)
    return Store.open(url, schema=schema, migrate=False)


def _show_tables(tables: Mapping[str, int], checksums: Mapping[str, str]) -> None:
    rows = [(name, f"{count:,}", checksums[name]) for name, count in tables.items() if count]
    if rows:
        width = max(len("ROWS"), *(len(count) for _, count, _ in rows))
        for line in table(("TABLE", "ROWS".rjust(width), "CHECKSUM"), ((name, n.rjust(width), sum) for name, n, sum in rows)):
            say(line)


@click.command("export", short_help="Write everything, or one session, as JSON Lines.")
@click.argument("file", type=click.Path(path_type=Path))
@on_database
@click.option(
    "--session",
    "session_id",
    metavar="ID",
    help="Of a chat, conversation, messaging session, workflow or program run, thread, transcript.",
)
@click.option("-f", "--force", is_flag=True, help="Overwrite FILE.")
@LEAVE_UNKNOWN
@as_json
@quiet("Print nothing.")
def export(
    database: Database, file: Path, session_id: str | None, force: bool, leave_unknown: bool, as_json: bool, quiet: bool
) -> None:
    """Write everything, or one session with what belongs to it, to FILE as JSON Lines; - is standard output.

    FILE gets its name when it is whole, and is readable for its owner alone. With - what is said goes to standard error.
    """
    streams = file == _STREAM
    target = sys.stdout.buffer if streams else file
    left = "What was written is not complete." if streams else f"{inline(str(file))} was not written."
    progress = Progress("Exporting", unit="rows", left=left, quiet=quiet or as_json)
    with progress, database.open(read_only=True) as store:
        report = export_store(
            store, target, session_id=session_id, overwrite=force, progress=progress, leave_unknown=leave_unknown
        )
        progress.finish()
    if streams:
        sys.stdout.buffer.flush()
    if as_json and not streams:
        unknown = {"carried": dict(report.carried), "left_unknown": dict(report.left_unknown)}
        facts = {"kind": report.kind, "tables": report.tables, "files": report.files, **unknown}
        say_json({**facts, "filled": dict(report.filled)})
    elif not quiet:
        what = "Exported" if report.kind is None else f"Exported a {report.kind}:"
        say(f"{what} {_rows(report.tables)}.", err=streams)
        _say_unknown("Exported", report, err=streams)
        if report.files:
            count = f"{len(report.files):,} {'file' if len(report.files) == 1 else 'files'}"
            say(f"Not in it: {count} that bindings name, beside the database; --json names them.", err=streams)


@click.command("import", short_help="Write the rows of an export.")
@click.argument("file", type=click.Path(path_type=Path))
@on_database
@LEAVE_UNKNOWN
@_whose
@as_json
@quiet("Print nothing.")
def import_(database: Database, file: Path, leave_unknown: bool, as_json: bool, quiet: bool, **scopes: str | None) -> None:
    """Write the rows of FILE, which `persist export` wrote; - is standard input. All of them, or nothing.

    A row that is there already is an error. A SQLite file is made if it is not there; on Postgres run `persist upgrade` first.
    """
    streams = file == _STREAM
    if not streams and not file.exists():
        raise NotFound("file", str(file))  # before a database is made for it
    source = sys.stdin.buffer if streams else file
    progress = Progress("Importing", unit="rows", left="An import that is not complete is undone.", quiet=quiet or as_json)
    with progress, database.open(read_only=False) as store:
        report = import_file(store, source, scopes=_given(scopes), progress=progress, leave_unknown=leave_unknown)
        progress.finish()
    if as_json:
        unknown = {"carried": dict(report.carried), "left_unknown": dict(report.left_unknown)}
        say_json({"session_id": report.session_id, "tables": report.tables, "log_off": report.log_off, **unknown})
    elif not quiet:
        say(f"Imported {_rows(report.tables)}.")
        _say_unknown("Imported", report)
        if report.log_off is not None:
            say(f"Note: {report.log_off}.", err=True)


def _rows(tables: Mapping[str, int]) -> str:
    rows = sum(tables.values())
    return f"{rows:,} {'row' if rows == 1 else 'rows'} of {len(tables)} {'table' if len(tables) == 1 else 'tables'}"
