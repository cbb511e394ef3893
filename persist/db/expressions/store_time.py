"""The time as SQL, for leases that processes on several machines share: the server's, since their own clocks may disagree."""

from typing import Any

from sqlalchemy import bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement

from persist.db.schema.column_types import EpochMs, Int64, SqlSeconds
from persist.db.sqlalchemy_private import made_of


@made_of()
class store_ms(ColumnElement[int]):  # noqa: N801  # reads as the SQL function it stands for
    """Milliseconds since 1970: the time in the parameter `time_given`; on Postgres, where that is NULL, the server's clock.

    A SQLite file is used on one machine, so its programs have one clock: `time_given` is never NULL there.
    """

    type = Int64()


def _given(compiler: SQLCompiler, **kw: Any) -> str:
    return compiler.process(bindparam("time_given", type_=EpochMs()), **kw)


@compiles(store_ms, "sqlite")
def _render_lite(element: store_ms, compiler: SQLCompiler, **kw: Any) -> str:
    return _given(compiler, **kw)


@compiles(store_ms, "postgresql")
def _render_pg(element: store_ms, compiler: SQLCompiler, **kw: Any) -> str:
    server = "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)"
    return f"coalesce(CAST({_given(compiler, **kw)} AS BIGINT), {server})"


@made_of()
class store_second(ColumnElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """The second: that of the parameter `second_given`; on Postgres, where it is NULL, the one on the server's clock."""

    type = SqlSeconds()


def _second_given(compiler: SQLCompiler, **kw: Any) -> str:
    return compiler.process(bindparam("second_given", type_=SqlSeconds()), **kw)


@compiles(store_second, "sqlite")
def _render_second_lite(element: store_second, compiler: SQLCompiler, **kw: Any) -> str:
    return _second_given(compiler, **kw)


@compiles(store_second, "postgresql")
def _render_second_pg(element: store_second, compiler: SQLCompiler, **kw: Any) -> str:
    return f"coalesce(CAST({_second_given(compiler, **kw)} AS TIMESTAMPTZ), date_trunc('second', clock_timestamp()))"
