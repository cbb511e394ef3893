"""Tables outside of the domains: facts about the database itself, and quarantined rows."""

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.schema.base import Base
from persist.db.schema.column_types import FreeText, Int64, Label
from persist.db.schema.instants import EpochMs as EpochMs
from persist.db.schema.instants import EpochReal as EpochReal
from persist.db.schema.instants import EpochS as EpochS
from persist.db.schema.instants import Instant as Instant
from persist.db.schema.instants import IsoMs as IsoMs
from persist.db.schema.instants import Processor as Processor
from persist.db.schema.instants import SqlSeconds as SqlSeconds


class Meta(Base):
    """One fact about the database: a key and its value, as text. `schema_version` is the revision for which rows are written."""

    __tablename__ = "_meta"
    key: Mapped[str] = mapped_column(Label(), primary_key=True)
    value: Mapped[str] = mapped_column(Label())


class QuarantineRow(Base):
    """A row that was moved out of its table, as it cannot be read. Rows with one `group_id` are restored together."""

    __tablename__ = "quarantine"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    group_id: Mapped[str] = mapped_column(Label())
    position: Mapped[int] = mapped_column(Int64())
    table_name: Mapped[str] = mapped_column(Label())
    moved_at: Mapped[datetime] = mapped_column(EpochMs())
    row_key: Mapped[str] = mapped_column(FreeText())
    cause: Mapped[str] = mapped_column(FreeText())
    contents: Mapped[str] = mapped_column(FreeText())

    __table_args__ = (UniqueConstraint("group_id", "position"),)
