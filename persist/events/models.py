"""The tables of the event log: the events, a head row for each stream, and the places of consumers."""

from datetime import datetime
from typing import Any

from sqlalchemy import Sequence, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.changes.journal import LogTables
from persist.db.schema.base import ONE_TREE, Base, flag_default, table_of
from persist.db.schema.column_types import LONG_LABEL_BYTES, Bool, EpochMs, Int64, Json, Label
from persist.events.schemas import ALL


class EventRow(Base):
    """One event. `seq` counts in its stream, without a gap; `position` orders all streams. `actor`: None if unnamed."""

    __tablename__ = "event_log"
    position: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    stream_id: Mapped[str] = mapped_column(Label(LONG_LABEL_BYTES))
    seq: Mapped[int] = mapped_column(Int64())
    type: Mapped[str] = mapped_column(Label())
    at: Mapped[datetime] = mapped_column(EpochMs())
    actor: Mapped[str | None] = mapped_column(Label())
    data: Mapped[Any] = mapped_column(Json(), nullable=False)

    __table_args__ = (UniqueConstraint("stream_id", "seq"),)


class EventHeadRow(Base):
    """The last `seq` given in a stream; in the row of `*`, which stands for all streams, the last position.

    `first_seq`: the oldest `seq` not trimmed, or the next one if all are. In the row of `*`, `logging`: whether the log is on;
    `settled`: not NULL while positions come from the sequence `event_positions`, and then no running transaction has one of the
    positions up to it. `seq` counts the positions while `settled` is NULL.
    """

    __tablename__ = "event_heads"
    stream_id: Mapped[str] = mapped_column(Label(LONG_LABEL_BYTES), primary_key=True)
    seq: Mapped[int] = mapped_column(Int64())
    first_seq: Mapped[int] = mapped_column(Int64(), server_default="1")
    logging: Mapped[bool] = mapped_column(Bool(), server_default=flag_default(True))
    settled: Mapped[int | None] = mapped_column(Int64(), info={"of_this_database": True})

    __table_args__ = (ONE_TREE,)


class EventConsumerRow(Base):
    """One consumer of the log. It has acknowledged the events up to `position`, and gets those of `types_json` (NULL: all).

    The events up to `lease_position` are handed out until `lease_expires_at`. `lease_token` grows with every lease.
    """

    __tablename__ = "event_consumers"
    name: Mapped[str] = mapped_column(Label(), primary_key=True)
    position: Mapped[int] = mapped_column(Int64())
    lease_token: Mapped[int] = mapped_column(Int64(), server_default="0")
    lease_position: Mapped[int | None] = mapped_column(Int64())
    lease_expires_at: Mapped[datetime | None] = mapped_column(EpochMs())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    acknowledged_at: Mapped[datetime | None] = mapped_column(EpochMs())
    types_json: Mapped[Any | None] = mapped_column(Json(list, str))


event_log = table_of(EventRow)
event_heads = table_of(EventHeadRow)
event_consumers = table_of(EventConsumerRow)

event_positions = Sequence("event_positions", metadata=Base.metadata)
"""Gives the positions on Postgres. SQLite, which has one writer, has no sequences and counts them in the row of `*`."""

LOG_TABLES = LogTables(event_log, event_heads, ALL, event_positions.name)
