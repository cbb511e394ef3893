"""`persist blobs`: files and other large bytes, listed, written out and put in."""

import sys
from pathlib import Path
from typing import IO, Any

import click

from persist.blobs.reader import BlobReader
from persist.blobs.repository import OCTETS
from persist.blobs.schemas import Blob
from persist.blobs.sharing import SharedBlobStore
from persist.cli.database import Database, on_database
from persist.cli.nouns import Answer, Noun, Table, answers, pages, table, told
from persist.cli.output import columns, inline, instant, size
from persist.db.files.private_files import private_opener
from persist.errors import Conflict, InvalidValue, NotFound
from persist.store.transaction import Transaction

blobs = Noun("blobs", "List files and large bytes, write them out, put them in.")
BLOBS = Table[Blob](
    "No blobs.",
    ("SHA-256", "SIZE", "TYPE", "PUT (UTC)"),
    lambda blob: (blob.sha256, size(blob.size), blob.media_type, blob.put_at),
    name=lambda blob: blob.sha256,
)


@blobs.reads("ls", "List blobs, the one put last first.", quiet="Print the digests alone.")
@pages()
def ls(tx: Transaction, **wanted: Any) -> Answer:
    """List blobs, the one put last first. With --json: an object with `items` and `cursor`, null on the last page."""
    return BLOBS.page(tx.blobs.list(**wanted))


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
        if str(file) == "-":
            _write(sys.stdout.buffer, pieces)
            return
        try:
            with open(file, "wb" if force else "xb", opener=private_opener) as target:
                _write(target, pieces)
        except FileExistsError:
            raise Conflict(f"{file} exists already; nothing was written. --force overwrites it.") from None


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
