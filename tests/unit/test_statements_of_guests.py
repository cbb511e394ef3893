"""Prepared statements on a joined connection: SQLAlchemy runs them, with the values as the statement's own parameters."""

import importlib
import pkgutil
from collections.abc import Callable

from sqlalchemy import Delete, Dialect, Insert, Update
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import CompileError

import persist
from persist.db.statements.prepared import Statement
from tests.cases import each

LOADED_BY_FRAMEWORKS = ("persist.integrations.", "persist.testing.conformance.")


def hot_statements() -> dict[str, Statement]:
    found: dict[str, Statement] = {}
    for module in pkgutil.walk_packages(persist.__path__, "persist."):
        if not module.name.startswith((*LOADED_BY_FRAMEWORKS, "persist._migrations", "persist.__main__")):
            values = vars(importlib.import_module(module.name)).items()
            found |= {f"{module.name}.{name}": value for name, value in values if isinstance(value, Statement)}
    return found


@each("dialect", [SQLiteDialect_pysqlite, PGDialect_asyncpg])
def test_no_parameter_of_a_condition_is_taken_for_a_column(dialect: Callable[[], Dialect]) -> None:
    """SQLAlchemy sets the columns that parameters are named after, and refuses conditions with such names."""
    statements = hot_statements()
    assert len(statements) > 100
    refused = {}
    for name, prepared in statements.items():
        if isinstance(prepared.statement, Insert | Update | Delete):
            plain = prepared.statement.compile(dialect=dialect())
            keys = [key for key, bind in plain.binds.items() if bind.required]
            try:
                told = str(prepared.statement.compile(dialect=dialect(), column_keys=keys))
            except CompileError as error:
                told = str(error)
            if told != str(plain):
                refused[name] = told
    assert refused == {}
