"""Whether a file holds pieces of text that nobody folded: asked whenever one is opened, so without the models of chat."""

from sqlalchemy import Column, MetaData, Table, Text, literal_column, select

from persist.db.base import SCHEMA_TOKEN
from persist.db.hot import Hot

_deltas = Table("chat_part_deltas", MetaData(schema=SCHEMA_TOKEN), Column("part_id", Text))

ANY_PIECES = Hot(select(literal_column("1")).select_from(_deltas).limit(1))
"""A row, if there are any: nothing of them is read, since others may have written what nobody can read."""
