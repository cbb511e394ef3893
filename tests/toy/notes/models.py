"""The tables of notes."""

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.changes.journal import Streams
from persist.db.operations.upkeep import Aggregate
from persist.db.schema.base import SCHEMA_TOKEN, Base, table_of
from persist.db.schema.column_types import EpochMs, FreeText, Label


class NoteRow(Base):
    __tablename__ = "notes"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    owner: Mapped[str] = mapped_column(Label())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())


class NoteLineRow(Base):
    __tablename__ = "note_lines"
    note_id: Mapped[str] = mapped_column(Label(), ForeignKey(f"{SCHEMA_TOKEN}.notes.id"), primary_key=True)
    text: Mapped[str] = mapped_column(FreeText(), primary_key=True)


LINES, NOTES = table_of(NoteLineRow), Aggregate(table_of(NoteRow))
Streams("note", shared="notes").over(NOTES.root)
