"""Column types: declared once, stored in the published form on SQLite and in the native form on Postgres.

| type       | Python              | SQLite            | Postgres             |
|------------|---------------------|-------------------|----------------------|
| Label      | str                 | TEXT              | TEXT COLLATE "C"     |
| FreeText   | str, any            | TEXT, escaped     | TEXT COLLATE "C", escaped |
| Json       | None … dict         | TEXT              | JSONB, escaped       |
| EnumText | a StrEnum           | TEXT              | TEXT COLLATE "C"     |
| Int64      | int                 | INTEGER           | BIGINT               |
| Float64    | float               | REAL              | DOUBLE PRECISION     |
| Bool       | bool                | INTEGER           | BOOLEAN              |
| EpochMs, EpochS | aware datetime | INTEGER           | BIGINT               |
| IsoMs      | aware datetime      | TEXT, ms and Z    | TIMESTAMPTZ(3)       |
| SqlSeconds | aware datetime      | TEXT, as SQLite's datetime() writes it | TIMESTAMPTZ(3) |
| EpochReal  | aware datetime      | REAL              | DOUBLE PRECISION     |

Every instant is cut to the column's precision before binding, so that both databases store the same instant.
"""

import sys
from enum import StrEnum
from functools import partial
from typing import Any

import orjson
from sqlalchemy import (
    REAL,
    TEXT,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Dialect,
    Double,
    Integer,
    Select,
    Text,
    UniqueConstraint,
    bindparam,
    cast,
    column,
    event,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import TableValuedAlias
from sqlalchemy.sql.visitors import iterate
from sqlalchemy.types import JSON, TypeDecorator, TypeEngine, UserDefinedType

from persist.db.schema.base import Worded
from persist.db.schema.instants import EpochMs as EpochMs
from persist.db.schema.instants import EpochReal as EpochReal
from persist.db.schema.instants import EpochS as EpochS
from persist.db.schema.instants import Instant as Instant
from persist.db.schema.instants import IsoMs as IsoMs
from persist.db.schema.instants import Processor as Processor
from persist.db.schema.instants import SqlSeconds as SqlSeconds
from persist.db.schema.instants import is_postgres
from persist.db.sqlalchemy_private import OperatesAsJson, written_as
from persist.db.values.arguments import check_label
from persist.db.values.escaping import LEAD, escape_text, unescape_text, utf8_size
from persist.db.values.json import JsonText, decode, encode, to_jsonb, value_of_jsonb
from persist.errors import InvalidValue, PayloadTooLarge

LABEL_BYTES = 600
"""The maximum size of an indexed label, in bytes of UTF-8. An index has at most four: 2,400 of the 2,704 bytes of an entry."""
LONG_LABEL_BYTES = 2000
"""The maximum size of indexed paths and addresses, in bytes of UTF-8. No index has two of them, so an entry has room."""


class _PgText(TEXT):
    """TEXT in the order of its bytes. Parameters are cast to TEXT as well, since Citus takes no VARCHAR for it everywhere."""

    render_bind_cast = True

    def __init__(self) -> None:
        super().__init__(collation="C")

    def adapt(self, cls: type[Any], **_: Any) -> "_PgText":  # type: ignore[override]  # it overloads: every class gives this one
        """Return this type for any class: SQLAlchemy's own for this driver would cast to VARCHAR."""
        return _PgText()


class Label(TypeDecorator[str]):
    """Identifiers, names and other text that is compared. `maximum`: its limit in bytes if the column is indexed."""

    impl = Text
    cache_ok = True

    def __init__(self, maximum: int = LABEL_BYTES) -> None:
        self.maximum = maximum
        self._column: Column[Any] | None = None
        super().__init__()

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return _PgText() if is_postgres(dialect) else Text()

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else check_label("text", value)

    def bind_processor(self, dialect: Dialect) -> Processor:
        column = self._column
        if column is None or not is_indexed(column):
            return _bound_label  # returned directly: TypeDecorator's wrapper of process_bind_param costs more than the check
        return partial(_bound_short, column.name, self.maximum)


@event.listens_for(Label, "before_parent_attach")
def _note_column(kind: Label, column: object) -> None:
    if isinstance(column, Column):
        kind._column = column


def is_indexed(column: Column[Any]) -> bool:
    """Whether the column is part of a key, a unique constraint or an index, be it inside of an expression."""
    table = column.table
    if column.primary_key or table.info.get("key_scope") == column.name:
        return True
    unique = (constraint for constraint in table.constraints if isinstance(constraint, UniqueConstraint))
    if any(column.name in constraint.columns for constraint in unique):
        return True
    terms: list[Any] = [term for index in table.indexes for term in index.expressions]
    return any(part is column for term in terms for part in iterate(term))


def ascii_unchanged(kind: TypeEngine[Any]) -> int:
    """Up to how many characters ASCII text without NUL is stored as it is; 0 for a type that has to look at it."""
    if isinstance(kind, FreeText):
        return sys.maxsize
    if not isinstance(kind, Label):
        return 0
    return kind.maximum if kind._column is not None and is_indexed(kind._column) else sys.maxsize


def _bound_label(value: Any) -> str | None:
    if value is None or (type(value) is str and value.isascii() and "\x00" not in value):
        return value
    return check_label("text", value)


def _bound_short(name: str, maximum: int, value: Any) -> str | None:
    """A label within the maximum: a Postgres index takes up to 2,704 bytes per entry. Raises PayloadTooLarge."""
    text = _bound_label(value)
    if text is not None and 4 * len(text) > maximum and (size := utf8_size(text)) > maximum:
        raise PayloadTooLarge(name, size, maximum, advice="It is searched by; keep long text where it is not.")
    return text


class FreeText(TypeDecorator[str]):
    """Free text that models or people wrote: any Python string, NUL and lone surrogate halves included."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return _PgText() if is_postgres(dialect) else Text()

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else escape_text(value, nul=is_postgres(dialect))

    def bind_processor(self, dialect: Dialect) -> Processor:
        nul = is_postgres(dialect)
        return lambda value: None if value is None else escape_text(value, nul=nul)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        try:
            return None if value is None else unescape_text(value)
        except TypeError:  # an adopted or damaged file may hold something other than text
            raise InvalidValue("stored text", f"{value!r:.40} is stored.") from None


class _LiteJson(OperatesAsJson, UserDefinedType[Any]):
    """JSON stored as TEXT: a column declared JSON has numeric affinity on SQLite, which corrupts scalars."""

    cache_ok = True
    comparator_factory = JSON.Comparator

    def get_col_spec(self, **_: Any) -> str:
        return "TEXT"

    def bind_processor(self, dialect: Dialect) -> Processor:
        return lambda value: None if value is None else str(value if type(value) is JsonText else encode(value))

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        return lambda text: None if text is None else decode(text)


class _PgJson(UserDefinedType[Any]):
    """JSONB that persist reads and writes as text, so that the driver's decoder never sees it. `read_as`: the column's type."""

    cache_ok = True
    render_bind_cast = True
    comparator_factory = JSON.Comparator

    def __init__(self, read_as: "Json") -> None:
        self.read_as = read_as

    def get_col_spec(self, **_: Any) -> str:
        return "JSONB"

    def column_expression(self, colexpr: ColumnElement[Any]) -> ColumnElement[Any]:
        return type_coerce(cast(colexpr, Text), self.read_as)

    def bind_processor(self, dialect: Dialect) -> Processor:
        return lambda value: None if value is None else to_jsonb(encode(value))

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        return lambda text: None if text is None else value_of_jsonb(text)


class Json(TypeDecorator[Any]):
    """A JSON value, as `persist.db.values.json` accepts it. SQL NULL and JSON null are both read as None; None writes SQL NULL.

    shape     dict or list, if the column holds nothing else
    of        the type of each item of a list
    required  a stored JSON null is not of the shape

    Reading and writing JSON of another shape raise InvalidValue, as reading text that is not JSON does. `persist doctor` asks
    `misfit`. Text that `encode` made is written if its outermost value is of the shape.
    """

    impl = JSON
    cache_ok = True

    def __init__(self, shape: type | None = None, of: type | None = None, *, required: bool = False) -> None:
        self.shape, self.of, self.required = shape, of, required
        super().__init__()

    def bind_processor(self, dialect: Dialect) -> Processor | None:
        stored, shape = super().bind_processor(dialect), self.shape
        if stored is None or shape is None:
            return stored
        opening, plain, fits = "{" if shape is dict else "[", shape if self.of is None else None, self._fits

        def write(value: Any) -> Any:
            kind = type(value)
            if kind is plain or value is None or (value[0] == opening if kind is JsonText else fits(value)):
                return stored(value)
            raise InvalidValue("value", f"{_SHAPES[shape]} is expected.")

        return write

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        value_of = value_of_jsonb if is_postgres(dialect) else decode
        shape, of, fits = self.shape, self.of, self._fits
        if shape is None:
            return lambda text: None if text is None else value_of(text)

        def read(text: Any) -> Any:
            if text is None:
                return None
            value: Any = value_of(text)
            if (of is None and type(value) is shape) or fits(value):
                return value
            raise other_shape(shape)

        return read

    def misfit(self, value: Any) -> str | None:
        """What is wrong with a stored value, such as "no object"; None if readers take it."""
        if self._fits(value):
            return None
        return "no object" if self.shape is dict else "no list" + ("" if self.of is None else f" of {_ITEMS[self.of]}")

    def _fits(self, value: Any) -> bool:
        if self.shape is None or (value is None and not self.required):
            return True
        items: Any = value
        return type(value) is self.shape and (self.of is None or all(type(item) is self.of for item in items))

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return _PgJson(self) if is_postgres(dialect) else _LiteJson()


_SHAPES: dict[type, str] = {dict: "an object", list: "a list"}
_ITEMS: dict[type, str] = {dict: "objects", str: "texts"}


def other_shape(shape: type) -> InvalidValue:
    """The error for stored JSON that is not of the shape that its column requires, dict or list."""
    return InvalidValue("", f"JSON of another shape is stored where {_SHAPES[shape]} belongs")


class EnumText(TypeDecorator[StrEnum]):
    """A StrEnum, stored as text. A word that this version does not know is returned as plain text."""

    impl = Text
    cache_ok = True

    def __init__(self, words: type[StrEnum]) -> None:
        self.words = words
        super().__init__()

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return _PgText() if is_postgres(dialect) else Text()

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else check_label("text", str(value))

    def bind_processor(self, dialect: Dialect) -> Processor:
        return _Texts({word: str(word) for word in self.words}).__getitem__

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        return _Words(self.words._value2member_map_).__getitem__


class _Texts(dict[Any, str | None]):
    def __missing__(self, word: Any) -> str | None:
        return None if word is None else check_label("text", str(word))


class _Words(dict[Any, Any]):
    def __missing__(self, stored: Any) -> Any:
        return stored


def Int64() -> TypeEngine[int]:  # noqa: N802  # named like the types it stands among
    """A 64-bit integer."""
    return BigInteger().with_variant(Integer(), "sqlite")


def Float64() -> TypeEngine[float]:  # noqa: N802  # named like the types it stands among
    """A 64-bit float."""
    return Double().with_variant(REAL(), "sqlite")


class Bool(TypeDecorator[bool]):
    """True or False; 1 or 0 on SQLite."""

    impl = Boolean
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return Boolean() if is_postgres(dialect) else Integer()

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> Any:
        return value if value is None or is_postgres(dialect) else int(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> bool | None:
        return None if value is None else bool(value)


_LEAD = ord(LEAD)


class labels_array(ColumnElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """A JSON array, in the stored form of a Json column, of the query's first column (a Label), ordered by its second."""

    inherit_cache = False  # compiled once per store, as part of a prepared statement

    def __init__(self, chosen: Select[Any]) -> None:
        self.rows = chosen.order_by(chosen.selected_columns[1]).subquery()
        self.type = Json()


@compiles(labels_array, "sqlite")
def _render_lite(element: labels_array, compiler: SQLCompiler, **kw: Any) -> str:
    """The array, ordered by the subquery: the oldest SQLite that persist supports has no ORDER BY inside of aggregates."""
    value, source = _parts(element, compiler, kw)
    return f"(SELECT json_group_array({value}) FROM {source})"


@compiles(labels_array, "postgresql")
def _render_pg(element: labels_array, compiler: SQLCompiler, **kw: Any) -> str:
    """The array, with the escape's lead doubled, as in all JSONB that persist stores."""
    value, source = _parts(element, compiler, kw)
    place = compiler.process(element.rows.c[1], **kw)
    escaped = f"replace({value}, chr({_LEAD}), repeat(chr({_LEAD}), 2))"
    return f"(SELECT coalesce(jsonb_agg({escaped} ORDER BY {place}), '[]') FROM {source})"


def _parts(element: labels_array, compiler: SQLCompiler, kw: dict[str, Any]) -> tuple[str, str]:
    return compiler.process(element.rows.c[0], **kw), compiler.process(element.rows, **{**kw, "asfrom": True})


class _Labels(UserDefinedType[Any]):
    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **_: Any) -> str:
        return "TEXT[]"

    def bind_processor(self, dialect: Dialect) -> Processor:
        return list if is_postgres(dialect) else lambda labels: orjson.dumps(labels).decode()


@written_as(sqlite="{column} IN (SELECT value FROM json_each({labels}))", postgresql="{column} = ANY ({labels})")
class among_labels(Worded):  # noqa: N801  # reads as the SQL function it stands for
    """`column IN (…)` for a list of labels in one parameter; an expanded list would reach the limit of parameters."""

    inherit_cache = False  # compiled once per store, as part of a prepared statement

    def __init__(self, column: ColumnElement[Any], name: str) -> None:
        self.column, self.labels = column, bindparam(name, type_=_Labels())


@written_as(
    sqlite="json_each({labels})",
    postgresql="(SELECT given.key, given.value FROM unnest({labels}) WITH ORDINALITY AS given (value, key))",
)
class _LabelRows(FunctionElement[Any]):
    inherit_cache = False  # compiled once per store, as part of a prepared statement

    def __init__(self, name: str) -> None:
        super().__init__()
        self.labels = bindparam(name, type_=_Labels())


def label_rows(name: str) -> TableValuedAlias:
    """A list of labels in one parameter as rows: `value`, and `key`, by which they have the order of the list."""
    return _LabelRows(name).table_valued(column("key", Int64()), column("value", Label()))
