"""SQL elements of persist's own, and all private names of SQLAlchemy that persist uses."""

from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import Any, TypeVar

from sqlalchemy import JSON, Connection, Insert, Pool, QueuePool, Update
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import TypeEngine
from sqlalchemy.util import concurrency

AS_BOOLEAN = operators._asbool
"""The operator for which a condition is asked to parenthesize itself where it stands alone, as in WHERE."""

E = TypeVar("E", bound=ClauseElement)


def made_of(**parts: InternalTraversal) -> Callable[[type[E]], type[E]]:
    """Class decorator: the attributes by which SQLAlchemy caches an SQL element's text and finds its columns."""

    def declare(element: type[E]) -> type[E]:
        element._traverse_internals = list(parts.items())
        return element

    return declare


def written_as(**texts: str) -> Callable[[type[E]], type[E]]:
    """Class decorator: the SQL of an element by dialect. {name} stands for the SQL, or the text, that is its attribute."""

    def declare(element: type[E]) -> type[E]:
        for dialect, text in texts.items():
            compiles(element, dialect)(_writer(text, dict.fromkeys(name for _, name, *_ in Formatter().parse(text) if name)))
        return element

    return declare


def _writer(text: str, names: Iterable[str]) -> Callable[..., str]:
    def write(element: ClauseElement, compiler: SQLCompiler, **kw: Any) -> str:
        parts = {name: getattr(element, name) for name in names}
        written = {name: compiler.process(part, **kw) for name, part in parts.items() if isinstance(part, ClauseElement)}
        return text.format(**(parts | written))

    return write


class OperatesAsJson:
    """A mixin for a column type: path operators quote the extracted value, and their result has the type again."""

    @property
    def _type_affinity(self) -> type[TypeEngine[Any]]:
        return JSON


def updated_values(statement: Update) -> Mapping[Any, Any]:
    """The values of an UPDATE, by columns or by names."""
    return statement._values or {}


def end_with(statement: Insert, clause: ClauseElement) -> None:
    """Let an INSERT end with a clause, which is rendered after its VALUES and before its RETURNING."""
    statement._post_values_clause = clause


def isolation_on_connect(connection: Connection) -> str | None:
    """The isolation level that `create_engine` was given for every connection of an engine; None if it was given none."""
    level: str | None = getattr(connection.dialect, "_on_connect_isolation_level", None)
    return level


def max_connections(pool: QueuePool) -> int | None:
    """How many connections a pool hands out at the same time; None if it has no limit."""
    return None if pool._max_overflow < 0 else pool.size() + pool._max_overflow


def unused_connections(pool: Pool) -> list[Any]:
    """The driver connections that a pool keeps for the next checkout, found without a lock. None of a pool of another class."""
    queue: Any = pool._pool if isinstance(pool, QueuePool) else None
    return [] if queue is None else [record.driver_connection for record in tuple(queue.queue)]


def in_greenlet() -> bool:
    """Whether the caller runs where SQLAlchemy can await an asynchronous driver, as in `run_sync`."""
    return concurrency.in_greenlet()
