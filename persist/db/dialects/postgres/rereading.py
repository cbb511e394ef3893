"""Reading instants that Postgres can store and Python's datetime cannot represent, such as infinity."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from persist.db.unreadable.cells import NotLoaded


class PostgresRereader:
    """See `persist.db.unreadable.rereading.Rereader`."""

    typed = True

    def refused(self, error: BaseException) -> bool:
        """Whether the driver failed to convert a value: such an error has no SQLSTATE."""
        import psycopg

        return isinstance(error, psycopg.DataError) and error.sqlstate is None

    @contextmanager
    def lenient(self, driver: Any) -> Iterator[None]:
        """Inside the block the driver returns NotLoaded for an instant that it cannot convert."""
        adapters = driver.adapters
        before = {name: adapters.get_loader(adapters.types[name].oid, 0) for name in _loaders()}
        for name, loader in _loaders().items():
            adapters.register_loader(name, loader)
        try:
            yield
        finally:
            adapters = driver.adapters
            for name, loader in before.items():
                adapters.register_loader(name, loader)


@cache
def _loaders() -> dict[str, Any]:
    import psycopg

    datetimes: Any = import_module("psycopg.types.datetime")

    def lenient(kind: Any) -> Any:
        class Lenient(kind):  # type: ignore[misc]  # a class of a driver that may not be installed
            def load(self, data: Any) -> Any:
                try:
                    return super().load(data)
                except psycopg.DataError:
                    return NotLoaded(bytes(data).decode())

        return Lenient

    return {"timestamp": lenient(datetimes.TimestampLoader), "timestamptz": lenient(datetimes.TimestamptzLoader)}


REREADER = PostgresRereader()
