"""Column types: one declaration, the published form on SQLite and the native form on Postgres.

| type       | Python              | SQLite            | Postgres             |
|------------|---------------------|-------------------|----------------------|
| Label      | str                 | TEXT              | TEXT COLLATE "C"     |
| Body       | str, any            | TEXT, escaped     | TEXT COLLATE "C", escaped |
| Json       | None … dict         | TEXT              | JSONB, escaped       |
| Vocabulary | a StrEnum           | TEXT              | TEXT COLLATE "C"     |
| Whole      | int                 | INTEGER           | BIGINT               |
| Amount     | float               | REAL              | DOUBLE PRECISION     |
| Flag       | bool                | INTEGER           | BOOLEAN              |
| EpochMs, EpochS | aware datetime | INTEGER           | BIGINT               |
| IsoMs      | aware datetime      | TEXT, ms and Z    | TIMESTAMPTZ(3)       |
| SqlSeconds | aware datetime      | TEXT, as SQLite's datetime() writes it | TIMESTAMPTZ(3) |
| EpochReal  | aware datetime      | REAL              | DOUBLE PRECISION     |

Every type cuts an instant to the column's precision before binding, so that both databases keep the same.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import REAL, TEXT, BigInteger, Boolean, Dialect, Double, Integer, Text, cast, type_coerce
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import JSON, TypeDecorator, TypeEngine, UserDefinedType

from persist.db.clock import EPOCH, aware, epoch_ms, epoch_us, from_epoch_ms, iso_ms, to_ms
from persist.db.escape import escape_json, escape_text, has_half, unescape_json, unescape_text
from persist.db.json import decode, encode
from persist.errors import InvalidValue
from persist.later import later

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql
else:
    postgresql = later("sqlalchemy.dialects.postgresql")

Processor = Callable[[Any], Any]


def _is_postgres(dialect: Dialect) -> bool:
    return dialect.name == "postgresql"


def check_label(path: str, value: object) -> str:
    """Identifiers and filters are text without NUL or lone surrogate halves, which no database compares alike."""
    if not isinstance(value, str):
        raise InvalidValue(path, f"expected text, got {type(value).__name__}.")
    if "\x00" in value or has_half(value):
        raise InvalidValue(path, "text used as an identifier or filter holds a NUL or a lone surrogate half.")
    return value


class Label(TypeDecorator[str]):
    """Identifiers, names and other text that is compared."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return TEXT(collation="C") if _is_postgres(dialect) else Text()

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else check_label("text", value)

    def bind_processor(self, dialect: Dialect) -> Processor:
        return _bound_label  # by itself: the processor around process_bind_param costs more than the check


def _bound_label(value: Any) -> str | None:
    if value is None or (type(value) is str and value.isascii() and "\x00" not in value):
        return value
    return check_label("text", value)


class Body(TypeDecorator[str]):
    """Text that models or people wrote: any Python string, NUL and lone surrogate halves included."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return TEXT(collation="C") if _is_postgres(dialect) else Text()

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else escape_text(value, nul=_is_postgres(dialect))

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else unescape_text(value)


class _LiteJson(UserDefinedType[Any]):
    """JSON kept as text: the type named JSON has numeric affinity on SQLite, which corrupts scalars."""

    cache_ok = True
    comparator_factory = JSON.Comparator

    @property
    def _type_affinity(self) -> type[TypeEngine[Any]]:
        return JSON  # so that path operators quote what they extract, and the result is JSON text again

    def get_col_spec(self, **_: Any) -> str:
        return "TEXT"

    def bind_processor(self, dialect: Dialect) -> Processor:
        return lambda value: None if value is None else str(encode(value))

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        return lambda text: None if text is None else decode(text)


class _PgJson(UserDefinedType[Any]):
    """JSONB read and written as text by us, so that the driver's own decoder never sees it."""

    cache_ok = True
    render_bind_cast = True
    comparator_factory = JSON.Comparator

    def get_col_spec(self, **_: Any) -> str:
        return "JSONB"

    def column_expression(self, colexpr: ColumnElement[Any]) -> ColumnElement[Any]:
        return type_coerce(cast(colexpr, Text), self)

    def bind_processor(self, dialect: Dialect) -> Processor:
        return lambda value: None if value is None else escape_json(encode(value))

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        return lambda text: None if text is None else decode(unescape_json(text))


class Json(TypeDecorator[Any]):
    """A JSON value of the domain in `persist.db.json`. SQL NULL and JSON null both read as None; None writes SQL NULL."""

    impl = JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return _PgJson() if _is_postgres(dialect) else _LiteJson()


class Vocabulary(TypeDecorator[StrEnum]):
    """One closed list of words, kept as text; a word this version does not know is given back as it is."""

    impl = Text
    cache_ok = True

    def __init__(self, words: type[StrEnum]) -> None:
        self.words = words
        super().__init__()

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return TEXT(collation="C") if _is_postgres(dialect) else Text()

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else check_label("text", str(value))

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        known = self.words._value2member_map_
        return lambda value: known.get(value, value)


def Whole() -> TypeEngine[int]:  # noqa: N802  # named like the types it stands among
    """A 64-bit integer."""
    return BigInteger().with_variant(Integer(), "sqlite")


def Amount() -> TypeEngine[float]:  # noqa: N802  # named like the types it stands among
    """A 64-bit float."""
    return Double().with_variant(REAL(), "sqlite")


class Flag(TypeDecorator[bool]):
    """True or False; 1 or 0 on SQLite."""

    impl = Boolean
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return Boolean() if _is_postgres(dialect) else Integer()

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> Any:
        return value if value is None or _is_postgres(dialect) else int(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> bool | None:
        return None if value is None else bool(value)


class Instant(TypeDecorator[datetime]):
    """An aware UTC instant; each leaf says how it is stored."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = BigInteger
    cache_ok = True

    def store(self, value: datetime, dialect: Dialect) -> Any:
        raise AssertionError("a leaf type defines store()")

    def fetch(self, value: Any, dialect: Dialect) -> datetime:
        raise AssertionError("a leaf type defines fetch()")

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        return None if value is None else self.store(aware("instant", value), dialect)

    def bind_processor(self, dialect: Dialect) -> Processor:
        store = self.store
        return lambda value: None if value is None else store(aware("instant", value), dialect)

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        # By itself, not around the processor of `impl`: what that would ask for, a hot statement does not know.
        fetch = self.fetch
        return lambda value: None if value is None else fetch(value, dialect)


class EpochMs(Instant):
    """Whole milliseconds since 1970."""

    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return BigInteger() if _is_postgres(dialect) else Integer()

    def store(self, value: datetime, dialect: Dialect) -> int:
        return epoch_ms(value)

    def fetch(self, value: Any, dialect: Dialect) -> datetime:
        return from_epoch_ms(value)


class EpochS(EpochMs):
    """Whole seconds since 1970."""

    cache_ok = True

    def store(self, value: datetime, dialect: Dialect) -> int:
        return epoch_us(value) // 1_000_000

    def fetch(self, value: Any, dialect: Dialect) -> datetime:
        return EPOCH + timedelta(seconds=value)


class EpochReal(Instant):
    """Seconds since 1970 as a float, microseconds kept."""

    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return Double() if _is_postgres(dialect) else REAL()

    def store(self, value: datetime, dialect: Dialect) -> float:
        return epoch_us(value) / 1_000_000

    def fetch(self, value: Any, dialect: Dialect) -> datetime:
        return EPOCH + timedelta(seconds=value)  # exact to the microsecond until 2242; a product in floats is not


class IsoMs(Instant):
    """ISO 8601 text with milliseconds and Z on SQLite; TIMESTAMPTZ(3) on Postgres, cut before it could round."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return postgresql.TIMESTAMP(timezone=True, precision=3) if _is_postgres(dialect) else Text()

    def store(self, value: datetime, dialect: Dialect) -> Any:
        if _is_postgres(dialect):
            return to_ms(value)
        return iso_ms(value)

    def fetch(self, value: Any, dialect: Dialect) -> datetime:
        try:
            instant: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
            if instant.tzinfo is UTC:
                return instant
            return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
        except (ValueError, AttributeError):  # files that were adopted may hold anything
            raise InvalidValue("instant", f"{value!r} is stored, which is not like '2026-01-31T12:00:00.000Z'.") from None


class SqlSeconds(Instant):
    """`YYYY-MM-DD HH:MM:SS` in UTC on SQLite, as its own datetime('now') writes it; whole seconds on Postgres too."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return postgresql.TIMESTAMP(timezone=True, precision=3) if _is_postgres(dialect) else Text()

    def store(self, value: datetime, dialect: Dialect) -> Any:
        whole = value.replace(microsecond=0)
        return whole if _is_postgres(dialect) else whole.replace(tzinfo=None).isoformat(" ")

    def fetch(self, value: Any, dialect: Dialect) -> datetime:
        try:
            instant: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:  # raw writers share these columns
            raise InvalidValue("instant", f"{value!r} is stored, which is not like '2026-01-31 12:00:00'.") from None
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
