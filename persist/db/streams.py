"""Which stream of events a row belongs to: said by each domain of its tables, in `Table.info["stream"]`.

A table without it is not logged: the log itself, and the database's own facts.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import ForeignKeyConstraint, Table

from persist.db.types import Body, EpochMs


@dataclass(frozen=True, slots=True)
class Place:
    """How the rows of one table find their stream.

    column   the column that names it: the stream is `<prefix>:<value>`, or the bare value without a prefix
    through  else a foreign key to a table that knows
    neither  the stream of whatever was done (of a verb's other rows), or else the domain's `shared` one
    common   always the shared one: rows of several streams lean on it
    """

    prefix: str
    shared: str
    column: str | None = None
    through: str | None = None
    common: bool = False

    def name(self, value: str) -> str:
        """The stream id."""
        return f"{self.prefix}:{value}" if self.prefix else value


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams of one domain."""

    prefix: str
    shared: str
    """The stream of what belongs to none of them."""

    def by(self, column: str, *tables: Table) -> None:
        """Rows of these tables belong to the stream that the column names; NULL is the shared one."""
        for table in tables:
            assert column in table.c, (table.name, column)
            table.info["stream"] = Place(self.prefix, self.shared, column=column)

    def through(self, column: str, *tables: Table) -> None:
        """Rows of these tables belong to the stream of the row that the foreign key `column` names."""
        for table in tables:
            parent(table, column)
            table.info["stream"] = Place(self.prefix, self.shared, through=column)

    def loose(self, *tables: Table) -> None:
        """Rows of these tables belong to what they were written for, and else to the shared stream."""
        for table in tables:
            table.info["stream"] = Place(self.prefix, self.shared)

    def common(self, *tables: Table) -> None:
        """Rows of these tables belong to the shared stream, since rows of several others lean on them."""
        for table in tables:
            table.info["stream"] = Place(self.prefix, self.shared, common=True)


def tail_of(table: Table, part: str, column: str) -> None:
    """Rows of the table extend `column` of the row that `part` names: whoever writes that anew has taken them in.

    So their deletion is no event, and neither is a fold: replaying a write of the column removes them.
    """
    parent(table, part)
    table.info["tail_of"] = (part, column)


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a database needs to know to log rows of a `tail_of` table by itself; names of tables and columns."""

    table: str
    columns: tuple[str, ...]
    texts: tuple[str, ...]
    at: str
    link: str
    parent: str
    parent_key: str
    stream: str
    """The column of the parent that is the stream."""
    type: str = "part.delta"


def pieces_of(table: Table) -> Pieces | None:
    """Of a table of pieces; None for any other."""
    if "tail_of" not in table.info:
        return None
    part, _ = table.info["tail_of"]
    (link,) = table.c[part].foreign_keys
    place = place_of(link.column.table)
    assert place is not None
    assert place.column is not None
    assert not place.prefix, "the database would have to say the prefix"
    names = tuple(str(column.name) for column in table.columns)
    texts = tuple(str(column.name) for column in table.columns if isinstance(column.type, Body))
    (at,) = [str(column.name) for column in table.columns if isinstance(column.type, EpochMs)]
    return Pieces(table.name, names, texts, at, part, link.column.table.name, link.column.name, place.column)


def parent(table: Table, column: str) -> Table:
    """The table that the single-column foreign key on `column` refers to."""
    for constraint in table.foreign_key_constraints:
        if is_single(constraint, column):
            return constraint.referred_table
    raise LookupError(f"{table.name}.{column} refers to no table")


def is_single(constraint: ForeignKeyConstraint, column: str) -> bool:
    """Whether it is the foreign key of that column alone."""
    return [one.name for one in constraint.columns] == [column]


def place_of(table: Table) -> Place | None:
    """Where its rows go; None for a table that is not logged."""
    place: Place | None = table.info.get("stream")
    return place


def logged_tables(tables: Iterable[Table]) -> list[Table]:
    """Those whose rows make events, in the order given."""
    return [table for table in tables if place_of(table) is not None]


def key_of(table: Table) -> list[str]:
    """The columns that tell its rows apart: the key within its scope, or what it says where it declares none."""
    scope = table.info.get("key_scope")
    key = table.info.get("key") or [str(column.name) for column in table.primary_key.columns]
    return [scope, *key] if scope is not None and scope not in key else list(key)
