"""Commands that move rows and files: copy, export, import, and `persist blobs`."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from persist.blobs.repository import OCTETS, BlobReader
from persist.blobs.schemas import Blob
from persist.blobs.sharing import SharedBlobStore
from persist.cli.database import Database, as_json, on_database, place_of, quiet
from persist.cli.nouns import Answer, Noun, Table, answers, is_silent, table, told
from persist.cli.output import Progress, columns, inline, instant, say, say_json, size
from persist.errors import InvalidValue, NotFound
from persist.maintenance import CopyReport, ExportReport, ImportReport, copy_resumably
from persist.maintenance import copy as copy_store
from persist.maintenance import export as export_store
from persist.maintenance import import_ as import_file
from persist.maintenance.exporting import opened
from persist.schema import migrate
from persist.store.store import Store
from persist.store.transaction import Transaction

blobs = Noun("blobs")
BLOBS = Table[Blob](
    "No blobs.",
    ("SHA-256", "SIZE", "TYPE", "PUT (UTC)"),
    lambda blob: (blob.sha256, size(blob.size), blob.media_type, blob.put_at),
    name=lambda blob: blob.sha256,
)


blobs.lists("List blobs, the one put last first.", BLOBS, lambda tx: tx.blobs.list, quiet="Print the digests alone.")


@blobs.reads("show", "Print what is known of a blob.", quiet="Print the digest alone.")
@click.argument("digest", metavar="SHA-256")
def show(tx: Transaction, digest: str) -> Answer:
    """Print what is known of a blob, without its bytes. With --json: an object."""
    blob = found_in(tx, digest)
    facts = [("sha-256", blob.sha256), ("size", size(blob.size)), ("type", inline(blob.media_type))]
    instants = [("created", f"{instant(blob.created_at)} UTC"), ("put", f"{instant(blob.put_at)} UTC")]
    return Answer(blob, columns([*facts, *instants]), [blob.sha256])


def found_in(tx: Transaction, digest: str) -> Blob:
    """The blob. Raises NotFound for any other text, too."""
    try:
        return tx.blobs.get(digest)
    except InvalidValue:
        raise NotFound("blob", digest) from None


@blobs.command(short_help="Write the bytes of a blob.")
@click.argument("digest", metavar="SHA-256")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), default="-", metavar="[FILE]")
@on_database
@click.option("--force", is_flag=True, help="Overwrite the file.")
def get(digest: str, file: Path, database: Database, force: bool) -> None:
    """Write the bytes of a blob to FILE, which only its owner can read, or to standard output."""
    with database.open(read_only=True) as store:
        pieces = store.blobs.open(digest)
        with opened(store, sys.stdout.buffer if str(file) == "-" else file, force) as target:
            _write(target, pieces)


@blobs.command(short_help="Store a file, and print its digest.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path), metavar="FILE")
@on_database
@click.option("--type", "media_type", default=OCTETS, show_default=True, help="The media type, such as image/png.")
@click.option("--repair", is_flag=True, help="Write the bytes anew, even if those there have the right size.")
@answers(None)
def put(file: Path, database: Database, media_type: str, repair: bool) -> Answer:
    """Store a file, or standard input for -, and print its digest. Equal bytes are stored once."""
    with database.open_existing() as store:
        blob = store.blobs.put(sys.stdin.buffer if str(file) == "-" else file, media_type, repair=repair)
    return told(blob, blob.sha256)


@blobs.command(short_help="List the databases that keep bodies in the same place.")
@on_database
@click.option("--forget", metavar="NAME", help="Take a database that is gone, or was copied elsewhere, out of the register.")
@answers(None)
def databases(database: Database, forget: str | None) -> Answer:
    """List the databases that are registered where this one keeps bodies. While there are others, no body is removed there.

    With --json: an array of objects.
    """
    with database.open_existing() as store:
        place: SharedBlobStore | None = store.runtime.blob_store
        if place is None:
            raise InvalidValue("blobs", "bodies are in the database: PERSIST_BLOBS names no other place.")
        if forget is not None:
            place.forget(forget)
        found = place.databases()
    return Answer(
        [{**one._asdict(), "since": None if one.since is None else one.since.isoformat()} for one in found],
        table(
            ("NAME", "DATABASE", "SINCE (UTC)", "THIS"),
            ((one.name, one.database, one.since, "*" if one.own else "") for one in found),
        ),
    )


def _write(target: IO[bytes], pieces: BlobReader) -> None:
    for piece in pieces:
        target.write(piece)
    target.flush()


F = TypeVar("F", bound=Callable[..., Any])
_STREAM = Path("-")
LEAVE_UNKNOWN = click.option("--leave-unknown", is_flag=True, help="Leave columns and tables x_… that persist does not know.")
_SCOPES = ("run_id", "instance_id", "workspace_id")


def _whose(command: F) -> F:
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
@answers("Print nothing, and no progress.")
def copy(
    source: str,
    target: str,
    source_schema: str | None,
    target_schema: str | None,
    resumable: bool,
    leave_unknown: bool,
    **scopes: str | None,
) -> Answer:
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
        Progress("Copying", unit="rows", left=left, quiet=is_silent()) as progress,
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
    rows, tables = sum(report.tables.values()), sum(map(bool, report.tables.values()))
    proven = same(report, "both databases hold the same")
    copied = f"Copied {rows:,} {'row' if rows == 1 else 'rows'} of {tables} tables; {proven}."
    return told(as_said(report), *_tables(report.tables, report.checksums), copied, *others(report))


def as_said(report: CopyReport) -> dict[str, Any]:
    """The report of a copy as JSON."""
    tables = {name: {"rows": rows, "checksum": report.checksums[name]} for name, rows in report.tables.items()}
    unknown = {"carried": dict(report.carried), "left_unknown": dict(report.left_unknown)}
    left = {"left_out": list(report.left_out), "computed": list(report.computed)}
    return {"tables": tables, **left, **unknown, "filled": dict(report.filled), "bodies_outside": report.bodies_outside}


def same(report: CopyReport, equal: str) -> str:
    """What was proven: that both are equal only if nothing was left and nothing was filled."""
    whole = not (report.left_out or report.left_unknown or report.filled or report.computed or report.bodies_outside)
    return equal if whole else "what was copied was read back and is the same"


def others(report: CopyReport) -> Iterator[str]:
    """What a copy did with what is not persist's, and with cells that held nothing."""
    yield from _unknown("Copied", report)
    if report.left_out:
        yield f"Not copied, because they are not persist's: {', '.join(map(inline, report.left_out))}."
    if report.bodies_outside:
        yield (
            f"Outside of both databases: {report.bodies_outside:,} bodies of blobs. Open the copy with the same PERSIST_BLOBS"
            " before the other one deletes any: it registers there."
        )


def _unknown(done: str, report: CopyReport | ExportReport | ImportReport) -> Iterator[str]:
    if report.carried:
        yield f"{done} with them, though persist does not know it: {_counted(report.carried)}."
    if not isinstance(report, ImportReport) and report.filled:
        yield f"Held nothing, and got a value, because other databases must hold one: {_counted(report.filled)}."
    if not isinstance(report, ImportReport) and report.computed:
        yield f"Not {done.lower()}, because databases compute it: {', '.join(map(inline, report.computed))}."
    if report.left_unknown:
        yield f"Left, as asked: {_counted(report.left_unknown)}."


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


def _tables(tables: Mapping[str, int], checksums: Mapping[str, str]) -> Iterable[str]:
    rows = [(name, f"{count:,}", checksums[name]) for name, count in tables.items() if count]
    width = max(len("ROWS"), *(len(count) for _, count, _ in rows)) if rows else 0
    head = ("TABLE", "ROWS".rjust(width), "CHECKSUM")
    return table(head, ((name, n.rjust(width), sum) for name, n, sum in rows)) if rows else ()


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
        say_json({**facts, "filled": dict(report.filled), "computed": report.computed})
    elif not quiet:
        what = "Exported" if report.kind is None else f"Exported a {report.kind}:"
        say(f"{what} {_rows(report.tables)}.", err=streams)
        for line in _unknown("Exported", report):
            say(line, err=streams)
        if report.files:
            count = f"{len(report.files):,} {'file' if len(report.files) == 1 else 'files'}"
            say(f"Not in it: {count} that bindings name, beside the database; --json names them.", err=streams)


@click.command("import", short_help="Write the rows of an export.")
@click.argument("file", type=click.Path(path_type=Path))
@on_database
@LEAVE_UNKNOWN
@_whose
@answers("Print nothing.")
def import_(database: Database, file: Path, leave_unknown: bool, **scopes: str | None) -> Answer:
    """Write the rows of FILE, which `persist export` wrote; - is standard input. All of them, or nothing.

    A row that is there already is an error. A SQLite file is made if it is not there; on Postgres run `persist upgrade` first.
    """
    streams = file == _STREAM
    if not streams and not file.exists():
        raise NotFound("file", str(file))  # before a database is made for it
    source = sys.stdin.buffer if streams else file
    progress = Progress("Importing", unit="rows", left="An import that is not complete is undone.", quiet=is_silent())
    with progress, database.open(read_only=False) as store:
        report = import_file(store, source, scopes=_given(scopes), progress=progress, leave_unknown=leave_unknown)
        progress.finish()
    unknown = {"carried": dict(report.carried), "left_unknown": dict(report.left_unknown)}
    said = {"session_id": report.session_id, "tables": report.tables, "log_off": report.log_off, **unknown}
    lines = [f"Imported {_rows(report.tables)}.", *_unknown("Imported", report)]
    return Answer(said, lines, notes=[] if report.log_off is None else [f"Note: {report.log_off}."])


def _rows(tables: Mapping[str, int]) -> str:
    rows = sum(tables.values())
    return f"{rows:,} {'row' if rows == 1 else 'rows'} of {len(tables)} {'table' if len(tables) == 1 else 'tables'}"
