"""The private names of SQLAlchemy that persist uses mean what persist takes them for. What fails here, a release changed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    ColumnElement,
    Dialect,
    Integer,
    MetaData,
    QueuePool,
    Table,
    Text,
    bindparam,
    create_engine,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import JSON, UserDefinedType

from persist.db.sqlalchemy_private import (
    AS_BOOLEAN,
    OperatesAsJson,
    end_with,
    in_greenlet,
    isolation_on_connect,
    made_of,
    max_connections,
    unused_connections,
    updated_values,
)
from tests.cases import each


class _Text(OperatesAsJson, UserDefinedType[Any]):
    cache_ok = True
    comparator_factory = JSON.Comparator

    def get_col_spec(self, **_: Any) -> str:
        return "TEXT"


@made_of(column=InternalTraversal.dp_clauseelement, word=InternalTraversal.dp_string)
class _Element(ColumnElement[str]):
    type = Text()

    def __init__(self, column: ColumnElement[Any], word: str) -> None:
        self.column, self.word = column, word


THINGS = Table("things", MetaData(), Column("id", Integer), Column("name", Text), Column("value", _Text))
SQLITE: Dialect = sqlite.dialect()


def test_the_cache_tells_elements_apart_by_what_they_are_made_of() -> None:
    def key(column: Column[Any], word: str) -> Any:
        found = _Element(column, word)._generate_cache_key()
        assert found is not None, "an element without a key is compiled anew for every use"
        return found.key

    name, number = THINGS.c.name, THINGS.c.id
    assert key(name, "a") == key(name, "a")
    assert len({key(name, "a"), key(name, "b"), key(number, "a")}) == 3


def test_the_columns_that_an_element_is_made_of_are_found() -> None:
    (found,) = _Element(THINGS.c.name, "a").get_children()
    assert found is THINGS.c.name


def test_a_condition_alone_is_asked_for_its_boolean_form() -> None:
    asked = []

    class Condition(ColumnElement[bool]):
        inherit_cache = False

        def self_group(self, against: Any = None) -> Any:
            asked.append(against)
            return Grouping(self)

    assert select(THINGS).where(Condition()).whereclause is not None
    assert asked == [AS_BOOLEAN]


def test_paths_into_json_quote_what_they_extract() -> None:
    found = THINGS.c.value["key"]
    assert isinstance(found.type, _Text)
    assert "JSON_QUOTE(JSON_EXTRACT(" in str(select(found).compile(dialect=SQLITE))


def test_the_values_of_an_update() -> None:
    statement = update(THINGS).values(name=bindparam("given"), id=THINGS.c.id + 1)
    told = {getattr(column, "name", column): str(value) for column, value in updated_values(statement).items()}
    assert told == {"name": ":given", "id": "things.id + :id_1"}
    assert updated_values(update(THINGS)) == {}


def test_an_insert_ends_with_a_clause_before_returning() -> None:
    statement = insert(THINGS).values(id=1)
    end_with(statement, text("ON CONFLICT DO NOTHING"))
    shown = str(statement.returning(THINGS.c.id).compile(dialect=SQLITE))
    assert shown.split("VALUES")[1].split() == ["(?)", "ON", "CONFLICT", "DO", "NOTHING", "RETURNING", "id"]


@each("level", [None, "AUTOCOMMIT", "SERIALIZABLE"])
def test_the_isolation_level_of_an_engine(level: Any) -> None:
    engine = create_engine("sqlite://") if level is None else create_engine("sqlite://", isolation_level=level)
    with engine.connect() as connection:
        assert isolation_on_connect(connection) == level
        assert connection.get_execution_options().get("isolation_level") is None, "what is documented does not tell"
    engine.dispose()


@pytest.mark.parametrize(("size", "more", "most"), [(3, 4, 7), (2, 0, 2), (1, -1, None)])
def test_how_many_connections_a_pool_hands_out(tmp_path: Path, size: int, more: int, most: int | None) -> None:
    url = f"sqlite:///{(tmp_path / 'a.db').as_posix()}"
    engine = create_engine(url, poolclass=QueuePool, pool_size=size, max_overflow=more)
    assert isinstance(engine.pool, QueuePool)
    assert max_connections(engine.pool) == most
    engine.dispose()


def test_a_pool_tells_which_connections_nobody_uses(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{(tmp_path / 'a.db').as_posix()}", poolclass=QueuePool)
    with engine.connect() as used:
        with engine.connect() as returned:
            driver = returned.connection.driver_connection
        assert unused_connections(engine.pool) == [driver]
        assert used.connection.driver_connection is not driver
    assert len(unused_connections(engine.pool)) == 2
    engine.dispose()
    memory = create_engine("sqlite://")
    assert unused_connections(memory.pool) == []
    memory.dispose()


def test_where_an_asynchronous_driver_can_be_awaited() -> None:
    async def asked() -> tuple[bool, bool]:
        engine = create_async_engine("sqlite+aiosqlite://")
        async with engine.connect() as connection:
            inside = await connection.run_sync(lambda _: in_greenlet())
        await engine.dispose()
        return inside, in_greenlet()

    assert asyncio.run(asked()) == (True, False)
