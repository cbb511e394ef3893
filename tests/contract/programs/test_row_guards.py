"""What a raw writer may not write, on either database, and what the rows of a program are after it was refused."""

import sqlite3
from typing import Any

import psycopg
import pytest

from persist.programs import audit
from tests.cases import each
from tests.contract.programs.scenes import RUN, begin, bind, given, make, resolve

pytestmark = pytest.mark.one_server
REFUSED = (sqlite3.IntegrityError, psycopg.errors.CheckViolation)
PATHS = [
    "/etc/passwd",
    "../x",
    "state.db",
    "attachments",
    "attachments/",
    "./attachments/x.md",
    "ATTACHMENTS/x.md",
    "attachments//x.md",
    "attachments/../x",
    "attachments/a/b",
    "attachments\\x",
    "attachments/..\\x",
    "attachments/. .",
    "",
]


@pytest.fixture(autouse=True)
def run(store: Any) -> str:
    return make(store)


@pytest.mark.parametrize("kind", ["const", "input"])
@pytest.mark.parametrize(
    "change", ["value = 'other'", "kind = 'let'", "name = 'elsewhere'", "execution_id = 7", "attachment_path = 'attachments/x'"]
)
def test_a_raw_writer_changes_no_const(store: Any, raw: Any, kind: str, change: str) -> None:
    bind(store, "topic", "as it was", kind=kind)
    with pytest.raises(REFUSED, match=r"bindings\.kind: a const or an input is bound once"):
        raw.rows(f"UPDATE bindings SET {change} WHERE name = 'topic'")
    assert resolve(store, "topic") == "as it was"
    raw.rows("UPDATE bindings SET source_statement = 'again', value = 'as it was' WHERE name = 'topic'")


@each("path", PATHS)
def test_a_raw_writer_names_files_of_the_folder_only(store: Any, raw: Any, path: str) -> None:
    bind(store, "draft", "small")
    scope = raw.value("SELECT run_id FROM bindings")
    for statement, values in (
        ("INSERT INTO bindings (run_id, name, kind, attachment_path) VALUES (?, 'x', 'let', ?)", (scope, path)),
        ("UPDATE bindings SET attachment_path = ?", (path,)),
    ):
        with pytest.raises(REFUSED, match=r"bindings\.attachment_path: "):
            raw.rows(statement, *values)
    assert raw.rows("SELECT name, attachment_path FROM bindings") == [("draft", None)]
    raw.rows("UPDATE bindings SET attachment_path = ?", "attachments/full_report.md")


def test_a_raw_writer_writes_json_where_json_is_read(store: Any, raw: Any) -> None:
    for statement in (
        "INSERT INTO execution (run_id, metadata) VALUES (?, 'not json')",
        "INSERT INTO imports (run_id, alias, inputs_schema) VALUES (?, 'x', '{')",
        "INSERT INTO imports (run_id, alias, outputs_schema) VALUES (?, 'x', '{')",
        *(f"INSERT INTO execution (run_id, metadata) VALUES (?, '{written}')" for written in ("", "[1,]", "NaN", "{} {}")),
    ):
        with pytest.raises((sqlite3.IntegrityError, psycopg.errors.InvalidTextRepresentation)):
            raw.rows(statement, RUN)
    assert (raw.count("execution"), raw.count("imports")) == (0, 0)
    begin(store, metadata={"a": 1})
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.InvalidTextRepresentation)):
        raw.rows("UPDATE execution SET metadata = 'not json'")
    assert raw.json("SELECT metadata FROM execution") == {"a": 1}


def test_an_audit_tells_of_guards_that_were_taken_away(store: Any, raw: Any) -> None:
    assert given(store, audit, RUN) == []
    if raw.is_sqlite:
        (statement,) = raw.rows("SELECT sql FROM sqlite_master WHERE name = 'persist_row_guard_execution_update'")[0]
        raw.rows("DROP TRIGGER persist_row_guard_execution_update")
    else:
        raw.rows("ALTER TABLE bindings DISABLE TRIGGER persist_row_guard_bindings_kind_update")
        statement = "ALTER TABLE bindings ENABLE TRIGGER persist_row_guard_bindings_kind_update"
    assert [one.code for one in given(store, audit, RUN)] == ["guard_missing"]
    raw.rows(statement)
    assert given(store, audit, RUN) == []
