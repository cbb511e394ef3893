"""The tables of blobs. A named blob cannot be deleted; bytes never change, so that neither table is in the event log."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.schema.base import SCHEMA_TOKEN, Base, table_of
from persist.db.schema.column_types import Bool, EpochMs, Int64, Label


class BlobRow(Base):
    """One blob: small in `body`, larger in pieces, or `outside`. `complete`: all of it is there. `named`: a row has named it."""

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
