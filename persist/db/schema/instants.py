"""Column types for instants; see the table in persist.db.schema.column_types."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import REAL, BigInteger, Dialect, Double, Integer, Text, func, literal_column, type_coerce
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

from persist.db.values import clock

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


class Instant(TypeDecorator[datetime]):
    """An aware UTC instant; each subclass names its types, on SQLite and on Postgres, and what converts to them and back."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = BigInteger
    cache_ok = True
    types: tuple[type[TypeEngine[Any]], type[TypeEngine[Any]]]
    to_stored: tuple[Callable[[datetime], Any], Callable[[datetime], Any]]
    from_stored: Callable[[Any], datetime]

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return self.types[is_postgres(dialect)]()

    def storing(self, dialect: Dialect) -> Callable[[datetime], Any]:
        """The function that converts an instant in UTC to what is stored."""
        return self.to_stored[is_postgres(dialect)]

    def reading(self, dialect: Dialect) -> Callable[[Any], datetime]:
        """The function that converts what is stored to the instant in UTC."""
        return self.from_stored

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        return clock.encoder(self.storing(dialect))(value)

    def bind_processor(self, dialect: Dialect) -> Processor:
        store = self.storing(dialect)
        if dialect.driver == "asyncpg" and isinstance(self.load_dialect_impl(dialect), _PgInstant):
            return clock.encoder(lambda value: _finite(store(value)))
        return clock.encoder(store)

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        # Not wrapped around the processor of `impl`: that one needs the DBAPI type, which a prepared statement does not know.
        if isinstance(self.load_dialect_impl(dialect), _PgInstant):
            return _in_utc
        return clock.decoder(self.reading(dialect))


class EpochMs(Instant):
    """Whole milliseconds since 1970."""

    cache_ok = True
    types, to_stored, from_stored = (Integer, BigInteger), (clock.epoch_ms, clock.epoch_ms), staticmethod(clock.from_epoch_ms)


class EpochS(EpochMs):
    """Whole seconds since 1970."""

    cache_ok = True
    to_stored, from_stored = (clock.epoch_s, clock.epoch_s), staticmethod(clock.from_epoch_s)


class EpochReal(Instant):
    """Seconds since 1970 as a float, microseconds kept; exact until 2242, where multiplying floats would not be."""

    cache_ok = True
    types, to_stored, from_stored = (REAL, Double), (clock.epoch_real, clock.epoch_real), staticmethod(clock.from_epoch_s)


class IsoMs(Instant):
    """ISO 8601 text with milliseconds and Z on SQLite; TIMESTAMPTZ(3) on Postgres, cut first since Postgres would round."""

    impl = Text
    cache_ok = True
    types, to_stored = (Text, _PgInstant), (clock.iso_ms, clock.to_ms)
    from_stored = staticmethod(clock.iso_reader("2026-01-31T12:00:00.000Z"))


class SqlSeconds(Instant):
    """`YYYY-MM-DD HH:MM:SS` in UTC on SQLite, as SQLite's datetime('now') writes it; whole seconds on Postgres too."""

    impl = Text
    cache_ok = True
    types, to_stored = (Text, _PgInstant), (clock.sql_s, clock.to_s)
    from_stored = staticmethod(clock.iso_reader("2026-01-31 12:00:00"))
