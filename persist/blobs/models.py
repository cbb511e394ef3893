"""The tables of blobs. A table whose rows name a blob has a foreign key to `blobs`: a named blob cannot be deleted.

The bytes never change and are found by their digest, so that neither table is part of the event log.
"""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.schema.base import SCHEMA_TOKEN, Base, table_of
from persist.db.schema.column_types import Bool, EpochMs, Int64, Label


class BlobRow(Base):
    """One blob. A small body is in `body`; a larger one is in pieces, or in the store's folder or bucket (`outside`).

    `complete`: all of the body is there; a large one is put in several transactions, and nobody sees it before the last.
    `named`: a row of persist has named it. When none does any more, it is garbage; what only a host put may wait to be named.
    """

    __tablename__ = "blobs"
    sha256: Mapped[str] = mapped_column(Label(), primary_key=True)
    media_type: Mapped[str] = mapped_column(Label())
    size: Mapped[int] = mapped_column(Int64())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    put_at: Mapped[datetime] = mapped_column(EpochMs())
    complete: Mapped[bool] = mapped_column(Bool())
    named: Mapped[bool] = mapped_column(Bool())
    outside: Mapped[bool] = mapped_column(Bool())
    body: Mapped[bytes | None] = mapped_column(LargeBinary())

    __table_args__ = (Index("ix_blobs_put_at_sha256", "put_at", "sha256"),)


class BlobPieceRow(Base):
    """A piece of a large body. All pieces but the last are of one size, so that a range is found by its position."""

    __tablename__ = "blob_pieces"
    sha256: Mapped[str] = mapped_column(Label(), ForeignKey(f"{SCHEMA_TOKEN}.blobs.sha256", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    body: Mapped[bytes] = mapped_column(LargeBinary())


blobs = table_of(BlobRow)
pieces = table_of(BlobPieceRow)

# An import keeps a row whose key is there: under one digest there can only be one body.
for _table in (blobs, pieces):
    _table.info["unlogged"] = _table.info["by_digest"] = True
