"""What belongs to one session, run or conversation: each domain says it of its own, and exports follow it."""

from dataclasses import dataclass, field

from sqlalchemy import Column, ColumnElement, Table, select
from sqlalchemy.sql.elements import BindParameter

from persist.db.hot import Hot, param


def the_id() -> BindParameter[str]:
    """The id that was asked for."""
    return param("session")


def as_stored() -> BindParameter[str]:
    """The same as a scope column of this database keeps it."""
    return param("scope")


def of_row() -> BindParameter[str]:
    """The key of the row that these rows follow."""
    return param("row_key")


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table in an order, each followed by those of `then` that name it.

    `shared`: rows that others may have too; where one is there already, it must be the same.
    """

    table: Table
    where: ColumnElement[bool]
    order: tuple[Column[object], ...]
    then: tuple["Rows", ...] = ()
    shared: bool = False
    statement: Hot = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "statement", Hot(select(self.table).where(self.where).order_by(*self.order)))


@dataclass(frozen=True, eq=False)
class Exported:
    """One kind of thing that is exported by its id: parents come first. `kind` is its name for people."""

    kind: str
    key: Column[str]
    rows: tuple[Rows, ...]
    found: Hot = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "found", Hot(select(self.key).where(self.key == the_id())))
