"""What an import accepts of blobs: the bytes themselves, in the file, and names of these alone.

Otherwise a file could name the bytes of somebody else by their digest, or put other bytes where somebody's are to be.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from sqlalchemy import Table

from persist.blobs.models import blobs, pieces


class HeldBodies:
    """The blobs whose bytes the lines of a file held so far."""

    def __init__(self, tables: Iterable[Table]) -> None:
        """`tables`: those whose rows may name a blob, among others."""
        self._links = {
            table: key.parent.name
            for table in tables
            for key in table.foreign_keys
            if table is not pieces and key.column is blobs.c.sha256
        }
        self._held: set[str | None] = set()
        self._growing: dict[str | None, Any] = {}
        """What was hashed of bodies in pieces, by the digests that they are to have."""

    def wrong_with(self, table: Table, row: Mapping[str, Any]) -> str | None:
        """What is wrong with this row, in the order of the file; None if nothing is."""
        digest = row.get("sha256")
        if table is blobs and row.get("complete", True):
            if row.get("body") is None:
                self._growing[digest] = sha256()
            elif sha256(row["body"]).hexdigest() != digest:
                return _other_bytes(digest)
            else:
                self._held.add(digest)
        elif table is pieces and digest in self._growing:
            self._growing[digest].update(row.get("body") or b"")
        elif table in self._links and not self._holds(named := row.get(self._links[table])):
            return f"the bytes of the blob {named} are not in the file."
        return None

    def wrong_at_end(self) -> str | None:
        """What is wrong with a body in pieces, once all lines were read."""
        return next((_other_bytes(digest) for digest in [*self._growing] if not self._holds(digest)), None)

    def _holds(self, digest: str | None) -> bool:
        if digest in self._growing and self._growing[digest].hexdigest() == digest:
            self._held.add(digest)
            del self._growing[digest]
        return digest in self._held


def _other_bytes(digest: str | None) -> str:
    return f"the bytes of the blob {digest} are missing or have another digest."
