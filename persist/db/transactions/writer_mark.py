"""The mark of persist's own write transactions in a strict file, whose triggers refuse to change some tables without it.

The mark is a row of `_meta` that is written first and deleted last in a transaction, so that no other connection ever sees it. A
setting of the connection would not do: triggers that call an SQL function of persist's would fail in a shell without a reason.
"""

from sqlalchemy import delete, select

from persist.db.changes.driver_statements import StatementRunner
from persist.db.expressions.upsert import insert_missing
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.schema.row_guards import WRITER
from persist.db.statements.prepared import Statement, param

_meta = table_of(Meta)
_MARK = Statement(insert_missing(_meta, "key"))
_UNMARK = Statement(delete(_meta).where(_meta.c.key == param("row_key")))
_FOUND = Statement(select(_meta.c.key).where(_meta.c.key == param("row_key")))


def mark(work: StatementRunner) -> None:
    """Mark a write transaction as persist's, as its first statement."""
    work.run(_MARK, key=WRITER, value="1")


def unmark(work: StatementRunner) -> None:
    """Delete the mark, at the end of the transaction, or of a verb in a host's own transaction."""
    work.run(_UNMARK, row_key=WRITER)


def is_marked(work: StatementRunner) -> bool:
    """Whether the mark is there; in a snapshot only if somebody left it."""
    return work.row(_FOUND, row_key=WRITER) is not None
