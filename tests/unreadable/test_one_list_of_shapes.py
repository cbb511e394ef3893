"""What readers refuse in a column of JSON the doctor finds there, and writers do not write: on both databases."""

from typing import Any

import pytest
from sqlalchemy import Column, make_url

from persist.db.schema.column_types import Json
from persist.db.unreadable.conditions import reader_of
from persist.db.values.json import decode, encode
from persist.errors import InvalidValue
from persist.maintenance.table_keys import SHAPES
from persist.schema.metadata import metadata
from tests.cases import each

DIALECTS: list[Any] = [make_url(url).get_dialect()() for url in ("sqlite://", "postgresql+psycopg://")]
VALUES = ["null", "7", '"x"', "[]", "[1]", '["x"]', "[{}]", "{}", '{"a": 1}']
COLUMNS = [
    column
    for table in metadata.sorted_tables
    for column in table.columns
    if isinstance(column.type, Json) and column.type.shape is not None
]


@each("dialect", DIALECTS, ids=["sqlite", "postgres"])
@each("column", COLUMNS, ids=str)
def test_the_doctor_finds_what_readers_refuse(column: Column[Any], dialect: Any) -> None:
    stored: Any = column.type.dialect_impl(dialect)
    kinds: list[Any] = [column.type, stored.column_expression(column).type] if dialect.name == "postgresql" else [column.type]
    finds = reader_of(column, SHAPES.get(column))
    for value in VALUES:
        for kind in kinds:
            assert finds(value) is not None or not _refuses(kind.result_processor(dialect, None), value), value
            assert kind.misfit(decode(value)) is None or _refuses(kind.result_processor(dialect, None), value), value


@pytest.mark.parametrize("dialect", DIALECTS, ids=["sqlite", "postgres"])
@pytest.mark.parametrize("column", COLUMNS, ids=str)
def test_what_readers_refuse_is_not_written(column: Column[Any], dialect: Any) -> None:
    kind: Any = column.type.dialect_impl(dialect)
    for value in map(decode, VALUES[1:]):  # None writes NULL
        assert _refuses(kind.bind_processor(dialect), value) == (kind.misfit(value) is not None), value
        assert _refuses(kind.bind_processor(dialect), encode(value)) == (type(value) is not kind.shape), value


def _refuses(process: Any, value: Any) -> bool:
    try:
        process(value)
    except InvalidValue:
        return True
    return False
