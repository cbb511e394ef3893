"""Column types for instants; see the table in persist.db.schema.column_types."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import REAL, BigInteger, Dialect, Double, Integer, Text, func, literal_column, type_coerce
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

from persist.db.values.clock import as_utc, epoch_ms, epoch_real, epoch_us, from_epoch_ms, from_epoch_s, iso_ms, to_ms
from persist.errors import InvalidValue
from persist.quoting import shown

Processor = Callable[[Any], Any]


def is_postgres(dialect: Dialect) -> bool:
    """Whether the dialect is Postgres, which stores values in its native types."""
    return dialect.name == "postgresql"


class _PgInstant(UserDefinedType[datetime]):
    """TIMESTAMPTZ(3), read `AT TIME ZONE 'UTC'`: in a session zone ahead of UTC the last hours of 9999 would overflow."""

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **_: Any) -> str:
        return "TIMESTAMP(3) WITH TIME ZONE"

    def column_expression(self, colexpr: ColumnElement[Any]) -> ColumnElement[Any]:
        return type_coerce(func.timezone(literal_column("'UTC'"), colexpr), self)

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        return _in_utc


def _in_utc(value: datetime | None) -> datetime | None:
    """The instant as an aware UTC datetime: `timestamptz AT TIME ZONE 'UTC'` comes without a zone."""
    if value is None:
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _finite(value: datetime) -> datetime:
    """The instant to bind with asyncpg, which sends datetime.min as -infinity: add a microsecond, which the server cuts off."""
    return value + timedelta(microseconds=1) if value.replace(tzinfo=None) == datetime.min else value


def _parsed(value: Any, like: str) -> datetime:
    """The instant from ISO text in a SQLite file; without a zone it is UTC. `like`: an example, for the error."""
    try:
        instant = datetime.fromisoformat(value)
        if instant.tzinfo is UTC:
            return instant
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError, TypeError):  # another program may have written any value
        raise InvalidValue("instant", f"{shown(value)} is stored, which is not like '{like}'.") from None


class Instant(TypeDecorator[datetime]):
    """An aware UTC instant; each subclass defines how it is stored (`store`) and read (`fetch`)."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = BigInteger
    cache_ok = True

    def store(self, value: datetime, dialect: Dialect) -> Any:
        raise AssertionError("a leaf type defines store()")

    def fetch(self, value: Any, dialect: Dialect) -> datetime:
        raise AssertionError("a leaf type defines fetch()")

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        return None if value is None else self.store(as_utc("instant", value), dialect)

    def bind_processor(self, dialect: Dialect) -> Processor:
        store = self.store
        if dialect.driver == "asyncpg" and isinstance(self.load_dialect_impl(dialect), _PgInstant):
            return lambda value: None if value is None else _finite(store(as_utc("instant", value), dialect))
        return lambda value: None if value is None else store(as_utc("instant", value), dialect)

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        # Not wrapped around the processor of `impl`: that one needs the DBAPI type, which a prepared statement does not know.
        if isinstance(self.load_dialect_impl(dialect), _PgInstant):
            return _in_utc
        fetch = self.fetch
        return lambda value: None if value is None else fetch(value, dialect)


class EpochMs(Instant):
    """Whole milliseconds since 1970."""

    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return BigInteger() if is_postgres(dialect) else Integer()

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
        return from_epoch_s(value)


class EpochReal(Instant):
    """Seconds since 1970 as a float, microseconds kept."""

    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return Double() if is_postgres(dialect) else REAL()

    def store(self, value: datetime, dialect: Dialect) -> float:
        return epoch_real(value)

    def fetch(self, value: Any, dialect: Dialect) -> datetime:
        return from_epoch_s(value)  # exact to the microsecond until 2242; multiplying floats would not be


class IsoMs(Instant):
    """ISO 8601 text with milliseconds and Z on SQLite; TIMESTAMPTZ(3) on Postgres, cut first since Postgres would round."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return _PgInstant() if is_postgres(dialect) else Text()

    def store(self, value: datetime, dialect: Dialect) -> Any:
        if is_postgres(dialect):
            return to_ms(value)
        return iso_ms(value)

    def fetch(self, value: Any, dialect: Dialect) -> datetime:
        return _parsed(value, "2026-01-31T12:00:00.000Z")


class SqlSeconds(Instant):
    """`YYYY-MM-DD HH:MM:SS` in UTC on SQLite, as SQLite's datetime('now') writes it; whole seconds on Postgres too."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return _PgInstant() if is_postgres(dialect) else Text()

    def store(self, value: datetime, dialect: Dialect) -> Any:
        whole_second = value.replace(microsecond=0)
        return whole_second if is_postgres(dialect) else whole_second.replace(tzinfo=None).isoformat(" ")

    def fetch(self, value: Any, dialect: Dialect) -> datetime:
        return _parsed(value, "2026-01-31 12:00:00")
