"""Cells that hold nothing where persist's own tables must hold something, as other programs' files allow: every one of them."""

import re
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Column, Table, UniqueConstraint

from persist import InvalidValue, Store
from persist.db.dialects.sqlite.foreign_files import without_unique
from persist.db.dialects.sqlite.parsed_ddl import catalog_of_statements, plain, split_at_commas
from persist.db.schema.base import VERSION_TABLE
from persist.db.schema.column_types import EnumText
from persist.maintenance import Finding, adopt, copy, copy_resumably, doctor, export, import_
from persist.schema.metadata import metadata
from persist.testing import FrozenClock
from tests.programs.raw_rows import before_guards
from tests.statemachines.both_databases import alike
from tests.statemachines.scene import make, verbs
from tests.unreadable.cells import Attempt, loosened

_READS = ("list", "get", "find", "page", "latest", "for_", "search", "inbox", "messages")
Ids = Mapping[str, Any]


def _found_by(column: Column[Any]) -> bool:
    """Whether nothing can take the place of a missing value: rows are found or told apart by it, or it is a word of a list."""
    unique = [index.columns for index in column.table.indexes if index.unique]
    unique += [one.columns for one in column.table.constraints if isinstance(one, UniqueConstraint)]
    if isinstance(column.type, EnumText) and column.server_default is None:
        return True
    return column.primary_key or bool(column.foreign_keys) or any(column.name in columns for columns in unique)


def _required(*, keys: bool) -> Iterator[tuple[Table, list[Column[Any]]]]:
    for table in metadata.sorted_tables:
        if table.name not in ("_meta", "event_heads"):
            yield table, [column for column in table.columns if not column.nullable and _found_by(column) == keys]


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ids]:
    """A file with rows of every domain whose tables take NULL everywhere, and the ids of its rows."""
    path = tmp_path_factory.mktemp("loose") / "state.db"
    with Store.open(f"sqlite:///{path.as_posix()}", clock=FrozenClock()) as store:
        alike(store)
        ids = make(store)
        store.switch_events(False)
    loosened(path)
    return path, ids


def _emptied(path: Path, wanted: Iterator[tuple[Table, list[Column[Any]]]]) -> set[str]:
    """Let the first row of every table hold nothing in these columns. Return which these are."""
    done = set()
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA ignore_check_constraints=ON")
        with before_guards(raw):
            for table, columns in wanted:
                for column in columns:
                    first = f'"{column.name}" IS NOT NULL AND rowid = (SELECT min(rowid) FROM "{table.name}")'
                    try:
                        changed = raw.execute(f'UPDATE "{table.name}" SET "{column.name}" = NULL WHERE {first}').rowcount
                    except sqlite3.Error:  # an integer that is the row's number, or a table without one
                        continue
                    done |= {f"{table.name}.{column.name}"} if changed else set()
    return done


def _answers(store: Any, ids: Ids) -> dict[str, str]:
    reading = [verb for verb in verbs() if any(word in verb.name for word in _READS)]
    attempts = {verb.name: Attempt(store, verb, ids, None) for verb in reading}
    return {name: repr(one.value if one.error is None else one.error) for name, one in attempts.items()}


def _named(finding: Finding) -> set[str]:
    """The columns that a finding says hold nothing."""
    table = finding.subject.removeprefix("table ")
    names = re.findall(r"(\w+) of \d", finding.message) if finding.code == "value_missing" else []
    return {f"{table}.{name}" for name in names}


@pytest.mark.parametrize("keys", [False, True])
def test_no_row_is_moved_because_something_is_missing(loose: tuple[Path, Ids], tmp_path: Path, *, keys: bool) -> None:
    path = tmp_path / "state.db"
    shutil.copyfile(loose[0], path)
    empty = _emptied(path, _required(keys=keys))
    assert len(empty) > 50
    with Store.open(f"sqlite:///{path.as_posix()}", clock=FrozenClock()) as store:
        before, again = _answers(store, loose[1]), _answers(store, loose[1])
        found = doctor(store, fix=True)
        assert [finding for finding in found if finding.code == "unreadable"] == []
        assert {name for finding in found for name in _named(finding)} == empty
        after = _answers(store, loose[1])
        assert {name: after[name] for name in before if before[name] == again[name] != after[name]} == {}


def test_no_row_of_a_server_is_moved_because_something_is_missing(postgres_url: str, clock: FrozenClock) -> None:
    with Store.open(postgres_url, clock=clock) as store:
        alike(store)
        make(store)
        store.switch_events(False)
        with psycopg.connect(postgres_url, autocommit=True) as raw:
            raw.execute("SET search_path = persist")
            for table, columns in _required(keys=False):
                for column in columns:
                    with suppress(psycopg.errors.InvalidTableDefinition, psycopg.errors.CheckViolation):  # a key, a row guard
                        raw.execute(f'ALTER TABLE "{table.name}" ALTER COLUMN "{column.name}" DROP NOT NULL')
                        first = f'ctid = (SELECT min(ctid) FROM "{table.name}")'
                        raw.execute(f'UPDATE "{table.name}" SET "{column.name}" = NULL WHERE {first}')
        found = doctor(store, fix=True)
        assert [finding for finding in found if finding.code == "unreadable"] == []
        assert len({name for finding in found for name in _named(finding)}) > 50


def test_copies_and_exports_hold_a_value(loose: tuple[Path, Ids], tmp_path: Path, postgres_url: str) -> None:
    path = tmp_path / "state.db"
    shutil.copyfile(loose[0], path)
    empty = _emptied(path, _required(keys=False))
    with Store.open(f"sqlite:///{path.as_posix()}") as source:
        with Store.open(f"sqlite:///{(tmp_path / 'copy.db').as_posix()}") as target:
            report = copy(source, target)
            assert report.filled == dict.fromkeys(empty, 1)
            assert [finding for finding in doctor(target) if finding.code == "value_missing"] == []
        again = copy_resumably(source, f"sqlite:///{(tmp_path / 'again.db').as_posix()}", rows=7)
        assert (again.checksums, again.filled) == (report.checksums, report.filled)
        with Store.open(postgres_url) as target:
            scopes = {"run_id": "run", "instance_id": "instance", "workspace_id": "workspace"}
            assert copy(source, target, scopes=scopes).filled == report.filled
        assert export(source, tmp_path / "all.jsonl").filled == report.filled
        with Store.open(f"sqlite:///{(tmp_path / 'imported.db').as_posix()}") as target:
            assert import_(target, tmp_path / "all.jsonl").tables["chat_sessions"] == report.tables["chat_sessions"]


def test_a_copy_names_a_row_that_lacks_what_it_is_found_by(loose: tuple[Path, Ids], tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for table, columns in _required(keys=True):
        for column in columns:
            shutil.copyfile(loose[0], path)
            if column.server_default is None and _emptied(path, iter([(table, [column])])):
                with (
                    Store.open(f"sqlite:///{path.as_posix()}") as source,
                    Store.open("sqlite:///:memory:") as target,
                    pytest.raises(InvalidValue, match="rows hold nothing there") as error,
                ):
                    copy(source, target)
                assert error.value.path == f"{table.name}.{column.name}"


def test_adopting_gives_values_by_rule_and_names_what_stays_empty(loose: tuple[Path, Ids], tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    shutil.copyfile(loose[0], path)
    empty = _emptied(path, _required(keys=False))
    with closing(sqlite3.connect(path)) as raw, raw:
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute(f"DROP TABLE {VERSION_TABLE}")
    report = adopt(f"sqlite:///{path.as_posix()}")
    named = {f"{one.table}.{one.rule.split(' ')[0]}": one.rule for one in report.settled if "held nothing" in one.rule}
    assert named["chat_messages.metadata_json"] == "metadata_json held nothing, and got what a new row has"
    left = {notice.subject for notice in report.notices if "read as None" in notice.message}
    assert "chat_sessions.model_json" in left
    assert empty == set(named) | left


# Comparing what files say about their tables: statements of other programs are taken apart without being misread.


DEFINITIONS = (
    "a TEXT",
    "b TEXT DEFAULT 'x, UNIQUE(a, b)'",
    '"c, (d" INTEGER CHECK ("c, (d" IN (1, 2))',
    "e TEXT -- a comment, with ( and '\n",
    "f TEXT /* UNIQUE(a, b), */ DEFAULT ')'",
    "[g] REAL",
)
UNIQUES = ("UNIQUE(a, b)", 'CONSTRAINT one UNIQUE (b, "a") ON CONFLICT IGNORE', "-- note\n unique(\n a, [b] )")


@given(st.permutations(DEFINITIONS), st.sampled_from(UNIQUES), st.integers(0, 6))
def test_only_the_unique_goes(columns: list[str], unique: str, place: int) -> None:
    parts = [*columns, "UNIQUE (a, e)", unique] if place > 3 else [*columns, unique, "UNIQUE (a, e)"]
    table = catalog_of_statements([without_unique(f"CREATE TABLE IF NOT EXISTS t ({', '.join(parts)})", "t", ["a", "b"])]).tables[
        "t"
    ]
    assert set(table.columns) == {"a", "b", "c, (d", "e", "f", "g"}
    assert [index.terms for index in table.indexes] == [("a", "e")]
    assert table.columns["b"].default == "'x, UNIQUE(a, b)'"


def test_indexes_are_compared_by_what_they_do() -> None:
    made = catalog_of_statements(
        [
            "CREATE TABLE t (a TEXT, b INTEGER, PRIMARY KEY (b, a))",
            "CREATE INDEX one ON t(a, b DESC)",
            'CREATE INDEX "two" ON "t" ( "a" ASC,[b]  desc )',
            "CREATE INDEX three ON t(a, b)",
            "CREATE UNIQUE INDEX four ON t(a, b DESC)",
            "CREATE INDEX five ON t(a, b DESC) WHERE a = 'x'",
            "CREATE INDEX six ON t(coalesce(a, ''))",
        ]
    ).tables["t"]
    indexes = {index.name: index for index in made.indexes}
    same = {name for name, index in indexes.items() if index.serves_as(indexes["one"])}
    assert same == {"one", "two"}
    assert indexes["six"].terms == ("coalesce(a,'')",)
    assert indexes["five"].where == "a='x'"
    assert made.key == ("b", "a")


def test_defaults_that_a_table_with_rows_may_be_given() -> None:
    columns = "a DEFAULT (datetime('now')), b DEFAULT CURRENT_TIMESTAMP, c DEFAULT 'it''s', d DEFAULT -1.5, e DEFAULT NULL, f"
    made = catalog_of_statements([f"CREATE TABLE t ({columns})"]).tables["t"].columns
    constant = {name: column.constant_default for name, column in made.items()}
    assert constant == {"a": None, "b": None, "c": "'it''s'", "d": "-1.5", "e": "NULL", "f": None}


def test_plain_words() -> None:
    assert plain(' "A"  =  1 ') == plain("a=1")
    assert split_at_commas("a, f(b, c), 'd,e', \"g,h\" /* , */") == ["a", " f(b, c)", " 'd,e'", ' "g,h" /* , */']


def test_a_parent_and_its_rule_are_known() -> None:
    with closing(sqlite3.connect(":memory:")):
        made = catalog_of_statements(
            [
                "CREATE TABLE p (id TEXT PRIMARY KEY)",
                "CREATE TABLE c (a TEXT REFERENCES p(id) ON DELETE CASCADE, b TEXT REFERENCES p(id))",
            ]
        )
    assert made.tables["c"].columns["a"].parent == '"p"("id") ON DELETE CASCADE'
    assert made.tables["c"].columns["b"].parent == '"p"("id")'
