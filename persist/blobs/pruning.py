"""Pruning of blobs: those that nothing names, and that were not put for some time."""

from collections.abc import Sequence

from sqlalchemy import Table

from persist.blobs.models import blobs, pieces
from persist.blobs.repository import is_named
from persist.db.operations.pruning import AgedRows, Below, Pruning


def prunings(tables: Sequence[Table]) -> tuple[Pruning, ...]:
    """The prunings of blobs, where these are all the tables whose rows may name one."""
    unnamed = AgedRows(
        blobs,
        blobs.c.put_at,
        blobs.c.sha256,
        may_go=~is_named(tables),
        below=(Below(pieces, lambda ids: pieces.c.sha256.in_(ids)),),
    )
    return (unnamed,)
