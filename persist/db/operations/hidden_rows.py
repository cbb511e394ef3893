"""Whether row security may hide rows: then what no visible row names may be named all the same."""

from collections.abc import Sequence

from sqlalchemy import Table

from persist.db.dialects.backends import operations_of
from persist.db.transactions.unit_of_work import UnitOfWork


def role_seeing_some(work: UnitOfWork, tables: Sequence[Table]) -> str | None:
    """The role to which row security shows some rows of these tables alone; None if it sees all, as on SQLite."""
    return operations_of(work.runtime.dialect).role_seeing_some(work.select, tables)


def may_be_hidden(work: UnitOfWork, tables: Sequence[Table]) -> bool:
    """Whether these tables may have rows that this transaction does not see."""
    return role_seeing_some(work, tables) is not None
