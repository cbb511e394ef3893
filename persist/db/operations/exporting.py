"""Which rows belong to one session, run or conversation: each domain declares its own, and exports select them."""

from dataclasses import dataclass, field

from sqlalchemy import Column, ColumnElement, Table, select
from sqlalchemy.sql.elements import BindParameter

from persist.db.statements.prepared import Statement, param


def the_id() -> BindParameter[str]:
    """The parameter for the id of the exported session, run or conversation."""
    return param("session")


def scope_of_id() -> BindParameter[str]:
    """The parameter for the exported id as scope columns of this database store it ('' in the file of that id itself)."""
    return param("scope")


def parent_key() -> BindParameter[str]:
    """The parameter for the key of the parent row, for rows in `Rows.then`."""
    return param("row_key")


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table, in an order, each followed by its child rows.

    then    the child rows, whose conditions use `parent_key()`
    shared  the rows may belong to other exports too; an import that finds one already there requires it to be equal
    """

    table: Table
    where: ColumnElement[bool]
    order: tuple[Column[object], ...]
    then: tuple["Rows", ...] = ()
    shared: bool = False
    statement: Statement = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "statement", Statement(select(self.table).where(self.where).order_by(*self.order)))


@dataclass(frozen=True, eq=False)
class Exported:
    """One kind of export, such as a session, selected by its id. In `rows` parents come before children.

    `kind` is its name in messages. `also`: a column that people know it by, whose values need not be unique.
    """

    kind: str
    key: Column[str]
    rows: tuple[Rows, ...]
    also: Column[str] | None = None
    found: Statement = field(init=False)
    named: Statement | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "found", Statement(select(self.key).where(self.key == the_id())))
        named = None if self.also is None else Statement(select(self.key).where(self.also == the_id()).order_by(self.key))
        object.__setattr__(self, "named", named)
