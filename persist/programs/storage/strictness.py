"""Strict run files: nobody but this library writes the tables that are the virtual machine's."""

from persist.db.expressions.upsert import insert_missing
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.schema.row_guards import STRICT_BY_CONNECTION
from persist.db.statements.prepared import Statement
from persist.db.statements.schema_version import STRICT
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.programs.models import STRICT_TABLES

_NOTE = Statement(insert_missing(table_of(Meta), "key"))


def make_strict(work: UnitOfWork) -> None:
    """Make the file of the transaction strict, as the last thing it does."""
    work.run(_NOTE, key=STRICT, value=STRICT_BY_CONNECTION)
    work.whole_tables.guard_strictly(STRICT_TABLES)
    work.runtime.strict = True
