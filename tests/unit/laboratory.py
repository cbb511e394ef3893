"""A table with a column of every type, and every way there is to write and read it."""

from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, bindparam, delete, insert, select

from persist import Store
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.schema.column_types import (
    Bool,
    EnumText,
    EpochMs,
    EpochReal,
    EpochS,
    Float64,
    FreeText,
    Int64,
    IsoMs,
    Json,
    Label,
)
from persist.db.statements.prepared import Statement
from persist.errors import InvalidValue


class Word(StrEnum):
    """A vocabulary."""

    ONE = "one"
    TWO = "two"


INSTANTS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "real": timedelta(microseconds=1),
    "iso": timedelta(milliseconds=1),
}

specimens = Table(
    "specimens",
    MetaData(schema=SCHEMA_TOKEN),
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("json", Json()),
    Column("body", FreeText()),
    Column("label", Label()),
    Column("word", EnumText(Word)),
    Column("whole", Int64()),
    Column("amount", Float64()),
    Column("flag", Bool()),
    Column("ms", EpochMs()),
    Column("s", EpochS()),
    Column("real", EpochReal()),
    Column("iso", IsoMs()),
)
NAMES = [column.name for column in specimens.columns if column.name != "id"]
PUT = Statement(insert(specimens))
GET = Statement(select(*[specimens.c[name] for name in NAMES]).where(specimens.c.id == bindparam("row_id")))


class Laboratory:
    """One connection to a database with a table of every type, in a transaction that is never committed."""

    def __init__(self, store: Store, connection: Connection) -> None:
        self.dialect = store.runtime.dialect
        self.prepared = store.runtime.prepared
        self.connection = connection
        self.driver: Any = connection.connection.driver_connection

    def put(self, id: int, *, prepared: bool, **given: Any) -> None:
        """Insert one row."""
        row = {"id": id, **dict.fromkeys(NAMES), **given}
        if prepared:
            self.prepared[PUT].run(self.driver, row)
        else:
            self.connection.execute(insert(specimens), row)

    def back(self, name: str, id: int) -> list[Any]:
        """One column of a row, in every way there is to read it."""
        at = NAMES.index(name)
        ((*_, core),) = self.connection.execute(select(specimens.c.id, specimens.c[name]).where(specimens.c.id == id))
        one = self.prepared[GET].one(self.driver, {"row_id": id})
        (row,) = self.prepared[GET].all(self.driver, {"row_id": id})
        assert one is not None
        return [core, one[at], row[at]]

    def round_trips(self, name: str, value: Any) -> list[Any]:
        """The value after it was written and read in every way."""
        self.connection.execute(delete(specimens))
        self.put(1, prepared=False, **{name: value})
        self.put(2, prepared=True, **{name: value})
        return [*self.back(name, 1), *self.back(name, 2)]

    def stored(self, name: str) -> Any:
        """What the database itself holds."""
        table = "specimens" if self.dialect.schema is None else f"{self.dialect.schema}.specimens"
        return self.connection.exec_driver_sql(f"SELECT {name} FROM {table} ORDER BY id").scalar()

    def refusal(self, name: str, value: Any, *, prepared: bool) -> InvalidValue:
        """Our error for a value that the column refuses."""
        savepoint = self.connection.begin_nested()
        with pytest.raises(Exception) as caught:  # noqa: PT011  # whose error it is, is what is looked at
            self.put(3, prepared=prepared, **{name: value})
        savepoint.rollback()
        ours = self.dialect.errors.classify(caught.value)
        assert isinstance(ours, InvalidValue)
        return ours
