"""`persist blobs`: files and other large bytes, listed, written out and put in."""

import sys
from pathlib import Path
from typing import IO

import click

from persist.blobs.reader import BlobReader
from persist.blobs.repository import OCTETS
from persist.blobs.schemas import Blob
from persist.blobs.sharing import SharedBlobStore
from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.groups import Group
from persist.cli.output import columns, inline, instant, say, say_json, say_json_list, say_table
from persist.cli.sizes import size
from persist.db.files.private_files import private_opener
from persist.errors import Conflict, InvalidValue, NotFound
from persist.store.transaction import Transaction


@click.group("blobs", cls=Group, short_help="List files and large bytes, write them out, put them in.")
def blobs() -> None:
    """List files and large bytes, write them out, put them in."""


@blobs.command(short_help="List blobs, the one put last first.")
@on_named_database
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
@as_json
@quiet("Print the digests alone.")
def ls(database: Database, limit: int, after: str | None, as_json: bool, quiet: bool) -> None:
    """List blobs, the one put last first. With --json: an object with `items` and `cursor`, null on the last page."""
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.blobs.list(limit=limit, after=after)
    if as_json:
        say_json_list((blob.model_dump(mode="json") for blob in page.items), page.cursor)
    elif quiet:
        for blob in page.items:
            say(blob.sha256)
    elif not page.items:
        say("No blobs.", err=True)
    else:
        rows = [(inline(one.sha256), size(one.size), inline(one.media_type), instant(one.put_at)) for one in page.items]
        say_table([("SHA-256", "SIZE", "TYPE", "PUT (UTC)"), *rows])
        if page.cursor is not None:
            say(f"There are more: add --after {page.cursor}", err=True)


@blobs.command(short_help="Print what is known of a blob.")
@click.argument("digest", metavar="SHA-256")
@on_database
@as_json
@quiet("Print the digest alone.")
def show(digest: str, database: Database, as_json: bool, quiet: bool) -> None:
    """Print what is known of a blob, without its bytes. With --json: an object."""
    with database.open(read_only=True) as store, store.read() as tx:
        blob = found_in(tx, digest)
    if as_json:
        say_json(blob.model_dump(mode="json"))
    elif quiet:
        say(blob.sha256)
    else:
        known = [("sha-256", blob.sha256), ("size", size(blob.size)), ("type", inline(blob.media_type))]
        for line in columns([*known, ("created", f"{instant(blob.created_at)} UTC"), ("put", f"{instant(blob.put_at)} UTC")]):
            say(line)


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
@as_json
def put(file: Path, database: Database, media_type: str, repair: bool, as_json: bool) -> None:
    """Store a file, or standard input for -, and print its digest. Equal bytes are stored once."""
    with database.open_existing() as store:
        blob = store.blobs.put(sys.stdin.buffer if str(file) == "-" else file, media_type, repair=repair)
    if as_json:
        say_json(blob.model_dump(mode="json"))
    else:
        say(blob.sha256)


@blobs.command(short_help="List the databases that keep bodies in the same place.")
@on_database
@click.option("--forget", metavar="NAME", help="Take a database that is gone, or was copied elsewhere, out of the register.")
@as_json
def databases(database: Database, forget: str | None, as_json: bool) -> None:
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
    if as_json:
        say_json([{**one._asdict(), "since": None if one.since is None else one.since.isoformat()} for one in found])
        return
    since = ["-" if one.since is None else instant(one.since) for one in found]
    rows = [(inline(one.name), inline(one.database), at, "*" if one.own else "") for one, at in zip(found, since, strict=True)]
    say_table([("NAME", "DATABASE", "SINCE (UTC)", "THIS"), *rows])


def _write(target: IO[bytes], pieces: BlobReader) -> None:
    for piece in pieces:
        target.write(piece)
    target.flush()
