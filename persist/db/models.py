"""`_meta`: facts about the database itself, by key (`schema_version` is the revision its rows are written for)."""

from sqlalchemy.orm import Mapped, mapped_column

from persist.db.base import Base
from persist.db.types import Label


class Meta(Base):
    """One fact: a key and its value as text."""

    __tablename__ = "_meta"
    key: Mapped[str] = mapped_column(Label(), primary_key=True)
    value: Mapped[str] = mapped_column(Label())
