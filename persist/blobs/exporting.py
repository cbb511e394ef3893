"""What an export holds of blobs whose bodies are outside of the database: they are written as if they were inside."""

from collections.abc import Iterator, Sequence
from typing import Any

from persist.blobs.bodies import outside_of
from persist.blobs.content import INLINE, PIECE
from persist.blobs.models import blobs
from persist.db.transactions.runtime import Runtime

_PLACE = {column.name: index for index, column in enumerate(blobs.columns)}
_Row = tuple[Any, ...]


def brought_in(runtime: Runtime, rows: Sequence[_Row]) -> tuple[list[_Row], Iterator[_Row]]:
    """Rows of blobs in the published form, in which no body is outside, and the rows of their pieces, to follow them.

    Raises BlobUnreadable if a body is missing, or if the store was not opened with the place where it is.
    """
    found: list[_Row] = []
    large: list[str] = []
    for row in rows:
        if not row[_PLACE["outside"]] or not row[_PLACE["complete"]]:
            found.append(row)
            continue
        digest, size = row[_PLACE["sha256"]], row[_PLACE["size"]]
        inside = dict(zip(_PLACE, row, strict=True)) | {"outside": type(row[_PLACE["outside"]])(False)}
        if size <= INLINE:
            inside["body"] = b"".join(outside_of(runtime, digest).open(digest))
        else:
            large.append(digest)
        found.append(tuple(inside.values()))
    return found, _pieces(runtime, large)


def _pieces(runtime: Runtime, digests: Sequence[str]) -> Iterator[_Row]:
    for digest in digests:
        for position, piece in enumerate(_even(outside_of(runtime, digest).open(digest))):
            yield digest, position, piece


def _even(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes in pieces of one size, but for the last: a store may yield them in pieces of its own."""
    waiting = b""
    for chunk in chunks:
        waiting += chunk
        while len(waiting) >= PIECE:
            yield waiting[:PIECE]
            waiting = waiting[PIECE:]
    if waiting:
        yield waiting
