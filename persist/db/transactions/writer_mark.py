"""The mark of persist's own write transactions in a strict file, whose triggers refuse to change some tables without it.

The mark is the value of `strict` in `_meta`: it is set first and taken back last in a transaction, so that no other connection
ever sees it. An SQL function of persist's connections would not do: triggers that call one fail in a shell without a reason.
"""

from sqlalchemy import literal_column, select, update

from persist.db.changes.driver_statements import StatementRunner
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.schema.row_guards import MARKED, UNMARKED
from persist.db.statements.prepared import Statement
from persist.db.statements.schema_version import STRICT

_meta = table_of(Meta)
_THIS = _meta.c.key == literal_column(f"'{STRICT}'")
_MARK = Statement(update(_meta).where(_THIS).values(value=literal_column(f"'{MARKED}'")))
_UNMARK = Statement(update(_meta).where(_THIS).values(value=literal_column(f"'{UNMARKED}'")))
_FOUND = Statement(select(_meta.c.value).where(_THIS))


def mark(work: StatementRunner) -> None:
    """Mark a write transaction as persist's, as its first statement."""
    work.run(_MARK)


def unmark(work: StatementRunner) -> None:
    """Take the mark back, at the end of the transaction, or of a verb in a host's own transaction."""
    work.run(_UNMARK)


def is_marked(work: StatementRunner) -> bool:
    """Whether the mark is there; in a snapshot only if somebody left it."""
    row = work.row(_FOUND)
    return row is not None and row[0] == MARKED
