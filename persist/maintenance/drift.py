"""Compares the catalog that the models expect with the database's catalog. The functions here run no statements."""

from collections.abc import Iterator
from dataclasses import replace

from persist.db.dialects.findings import Problem, Severity
from persist.db.dialects.operations import Catalogs, Definition

_WHAT = {"column": "column", "index": "index", "unique index": "index", "constraint": "constraint"}


def drift(catalogs: Catalogs, *, extras: bool = True) -> Iterator[Problem]:
    """Yield what is missing or different in the database, and with `extras` also what is unknown.

    A missing table or column is an error, because statements fail. A missing unique index is an error, because rows may be
    duplicated. Tables that another program created may differ in types and constraints. An index may have another name.
    """
    expected, found = catalogs.expected, catalogs.found
    tables = {table: found.get((kind, table, name)) for kind, table, name in expected if kind == "table"}
    others = {
        table for table, there in tables.items() if there is not None and there.detail != expected["table", table, ""].detail
    }
    for table, there in tables.items():
        if there is None:
            yield Problem("table_missing", Severity.ERROR, f"table {table}", "it is not there.")
    for (kind, table, name), definition in expected.items():
        if kind == "table" or tables[table] is None or _under_another_name(catalogs, kind, table, name):
            continue
        for trouble in _compared(kind, table, name, definition, found.get((kind, table, name))):
            yield _of_others(trouble) if table in others or (others and not expected["table", table, ""].detail) else trouble
    if extras:
        yield from _extras(catalogs)
    if catalogs.names_only:
        message = "this role may not make a schema to compare with: only the names of columns and indexes were looked at."
        yield Problem("catalog_by_name", Severity.INFO, "catalog", message)


def index_of(trouble: Problem) -> str | None:
    """Return the name of the missing index, if the problem is a missing index."""
    return trouble.subject.partition(" ")[2] if trouble.code == "index_missing" else None


def _under_another_name(catalogs: Catalogs, kind: str, table: str, name: str) -> bool:
    """Whether the database has an index that differs from the expected one only in its name."""
    wanted = catalogs.expected[kind, table, name].essential
    if "index" not in kind or not wanted or catalogs.found.get((kind, table, name)) == catalogs.expected[kind, table, name]:
        return False
    return any(
        definition.essential.replace(other, name, 1) == wanted
        for (of_kind, of_table, other), definition in catalogs.found.items()
        if (of_kind, of_table) == (kind, table)
    )


def _of_others(trouble: Problem) -> Problem:
    """Lower a warning to INFO for a table that another program created. Errors and problems of indexes keep their severity."""
    if trouble.severity != Severity.WARNING or trouble.code.startswith("index_"):
        return trouble
    return replace(trouble, severity=Severity.INFO, message=f"{trouble.message} Another program made the table.")


def _compared(kind: str, table: str, name: str, wanted: Definition, there: Definition | None) -> Iterator[Problem]:
    what, subject = _WHAT[kind], _subject(kind, table, name)
    if there is None:
        severity = Severity.ERROR if kind in ("column", "unique index") else Severity.WARNING
        said = "" if kind != "index" else " Queries that need it are slow."
        yield Problem(f"{what}_missing", severity, subject, f"it is not there.{said}")
    elif there.essential != wanted.essential:
        message = f"it is {there.essential or 'without a type'}, and should be {wanted.essential}."
        yield Problem(f"{what}_changed", Severity.WARNING, subject, message)
    elif there.detail != wanted.detail:
        message = f"it is {there.detail or 'without NOT NULL and default'}, and should be {wanted.detail or 'without these'}."
        yield Problem(f"{what}_changed", Severity.INFO, subject, message)


def _extras(catalogs: Catalogs) -> Iterator[Problem]:
    ours = {table for kind, table, _ in catalogs.expected if kind == "table"}
    for kind, table, name in catalogs.found:
        if (kind, table, name) in catalogs.expected or table not in ours:
            continue
        what = _WHAT[kind]
        yield Problem(
            f"{what}_unknown", Severity.INFO, _subject(kind, table, name), f"this {what} is not of this version of persist."
        )


def _subject(kind: str, table: str, name: str) -> str:
    if kind == "column":
        return f"column {table}.{name}"
    return f"index {name}" if kind != "constraint" else f"constraint {name} of {table}"
