"""The mark of persist's own write transactions in a strict file made at revision 0028, whose triggers look for it.

The mark is the value of `strict` in `_meta`: it is set first and taken back last in a transaction, so that no other connection
ever sees it. Triggers made later look for the mark of persist's connections (persist/db/schema/raw_writes.py).
"""

from sqlalchemy import literal_column, select, update

from persist.db.changes.driver_statements import StatementRunner
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.schema.raw_writes import WRITER
from persist.db.schema.row_guards import MARKED, UNMARKED
from persist.db.statements.prepared import Statement
from persist.db.statements.schema_version import STRICT

_meta = table_of(Meta)
_THIS = _meta.c.key == literal_column(f"'{STRICT}'")
_MARK = Statement(update(_meta).where(_THIS).values(value=literal_column(f"'{MARKED}'")))
_UNMARK = Statement(update(_meta).where(_THIS).values(value=literal_column(f"'{UNMARKED}'")))
LEFT = Statement(
    select(_meta.c.key).where((_meta.c.key == WRITER) | (_THIS & (_meta.c.value == literal_column(f"'{MARKED}'")))).limit(1)
)
"""Finds, in a snapshot, the key of a mark that somebody left, so that nobody is refused or noted any more."""


def mark(work: StatementRunner) -> None:
    """Mark a write transaction as persist's, as its first statement."""
    work.run(_MARK)


def unmark(work: StatementRunner) -> None:
    """Take the mark back, at the end of the transaction, or of a verb in a host's own transaction."""
    work.run(_UNMARK)
