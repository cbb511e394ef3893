"""The query for unfolded deltas. It runs whenever a file is opened, so this module does not import the models of chat."""

from sqlalchemy import Column, MetaData, Table, Text, literal_column, select

from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.statements.prepared import Statement

_deltas = Table("chat_part_deltas", MetaData(schema=SCHEMA_TOKEN), Column("part_id", Text))
ANY_DELTA = Statement(select(literal_column("1")).select_from(_deltas).limit(1))
"""One row if any delta exists. It reads no column: other programs may have written values that cannot be read."""
