"""Versions that a database notes: compared as numbers, older, newer or none at all, and what is said of each."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from click.testing import CliRunner

import persist
from persist import MigrationFailed, Store
from persist.cli.root import main
from persist.db.dialects.postgres import upgrading
from persist.db.statements.schema_version import is_newer, number_of
from persist.errors import SchemaUnknown
from persist.maintenance import adopt, doctor
from persist.programs import create_run_file
from persist.schema.metadata import HEAD
from tests.cases import each
from tests.schema.conftest import Plant
from tests.schema.places import VERSION_TABLE, Place, repository_config

OLDER = ["0", "1", "6", "0001", str(int(HEAD)), f"0000{int(HEAD)}"]
NEWER = [str(int(HEAD) + 1), f"{int(HEAD) + 1:04}", "9999", "00100"]
NONE = ["", "v3", "-1", "7.0", " 7", "0x7", "\u0667", "9" * 40]


def first_on_both(values: list[str]) -> pytest.MarkDecorator:
    """The first on both databases, the others on SQLite: what a text means is decided by code that knows no database."""
    cases = [("postgres", values[0]), *(("sqlite", value) for value in values)]
    return pytest.mark.parametrize(("backend", "value"), cases)


def note(place: Place, value: str) -> None:
    place.run(f"UPDATE {place.named('_meta')} SET value = '{value}' WHERE key = 'schema_version'")


def row(place: Place, value: str) -> None:
    place.run(f"UPDATE {place.named(VERSION_TABLE)} SET version_num = '{value[:32]}'")


def noted(place: Place) -> list[Any]:
    return [value for (value,) in place.ask(f"SELECT value FROM {place.named('_meta')} WHERE key = 'schema_version'")]


@each(
    ("mark", "number"), [("0007", 7), ("0", 0), ("12", 12), ("", None), ("v1", None), (b"7", None), (7, None), ("\u0663", None)]
)
def test_marks_are_numbers(mark: object, number: int | None) -> None:
    assert number_of(mark) == number


def test_only_numbers_beyond_the_last_are_newer() -> None:
    assert [is_newer(mark) for mark in (HEAD, *OLDER)] == [False] * (len(OLDER) + 1)
    assert all(is_newer(mark) for mark in NEWER)
    assert not any(is_newer(mark) for mark in NONE)


@first_on_both(OLDER)
def test_an_older_note_is_set_right(migrated: Place, value: str) -> None:
    note(migrated, value)
    persist.check(migrated.url)
    with Store.open(migrated.url, read_only=True) as store, store.read() as tx:
        assert tx.workflows.runs.list().items == []
    assert noted(migrated) == [value]
    Store.open(migrated.url, migrate=True).close()
    assert noted(migrated) == [HEAD]


@each("mark", [note, row])
@first_on_both(NEWER)
def test_a_newer_mark_is_refused_as_newer(migrated: Place, mark: Any, value: str) -> None:
    mark(migrated, value)
    for use in (Store.open, persist.upgrade, persist.check):
        with pytest.raises(persist.SchemaTooNew) as caught:
            use(migrated.url)
        assert (caught.value.found, caught.value.known) == (value, HEAD)
    Store.open(migrated.url, read_only=True).close()


@pytest.mark.parametrize("mark", [note, row])
@first_on_both(NONE)
def test_what_is_no_version_is_said_to_be_none(migrated: Place, mark: Any, value: str) -> None:
    mark(migrated, value)
    before = migrated.rows()
    for use in (Store.open, persist.upgrade, persist.check, lambda url: Store.open(url, read_only=True)):
        with pytest.raises(SchemaUnknown) as caught:
            use(migrated.url)
        assert caught.value.known == HEAD
        assert caught.value.place in ("_meta.schema_version", f"{VERSION_TABLE}.version_num")
        assert caught.value.place in str(caught.value)
        assert caught.value.found == repr(value if mark is note else value[:32])
        assert "newer" not in str(caught.value)
    assert migrated.rows() == before


@each("value", ["0", "1", "6"])
def test_a_version_row_that_no_revision_has_is_not_upgraded_from(migrated: Place, value: str) -> None:
    """Whether the tables are those of 0001 nobody knows; nothing is run on a guess."""
    row(migrated, value)
    with pytest.raises(SchemaUnknown) as caught:
        Store.open(migrated.url, migrate=True)
    assert (caught.value.found, caught.value.place) == (repr(value), f"{VERSION_TABLE}.version_num")


@pytest.mark.parametrize("statement", ["x'37'", "x'ff00'"])
def test_bytes_are_no_version(sqlite_url: str, statement: str) -> None:
    Store.open(sqlite_url).close()
    Place(sqlite_url).run(f"UPDATE _meta SET value = {statement} WHERE key = 'schema_version'")
    with pytest.raises(SchemaUnknown):
        Store.open(sqlite_url)


@pytest.mark.parametrize("value", ["0", "6", "9999"])
def test_a_file_says_whose_it_is_whatever_its_version(tmp_path: Path, value: str) -> None:
    with create_run_file(tmp_path) as made:
        path, run = made.path, made.run_id
    url = f"sqlite:///{path}"
    note(Place(url), value)
    with Store.open(url, read_only=True) as store:
        assert store.run_id == run


@pytest.mark.parametrize("theirs", ["3", "12", "v3"])
def test_the_program_whose_file_was_adopted_may_note_its_own_version(tmp_path: Path, theirs: str) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE _meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        other.execute("CREATE TABLE status_log (id INTEGER PRIMARY KEY, occurred_at INTEGER NOT NULL, new_status TEXT NOT NULL)")
        other.execute("INSERT INTO _meta VALUES ('schema_version', ?)", (theirs,))
    other.close()
    adopt(f"sqlite:///{path}")
    note(Place(f"sqlite:///{path}"), theirs)
    Store.open(f"sqlite:///{path}").close()
    assert noted(Place(f"sqlite:///{path}")) == [HEAD]


def test_doctor_says_what_a_mark_is(migrated: Place) -> None:
    note(migrated, "6")
    with Store.open(migrated.url, read_only=True) as store:
        found = {one.code: one.message for one in doctor(store)}
    assert found["version_marks"] == f"_meta says 6 of the schema's version, which is {HEAD}."


# `persist upgrade --plan`: what an upgrade would do, step by step, with locks and sizes; and it does nothing.


LANES = """
op.add_column("chat_sessions", sa.Column("lane", sa.Text()))
op.create_index("ix_chat_sessions_lane", "chat_sessions", ["lane", "id"])
"""


def said(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["upgrade", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def planned(url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said("--plan", "--json", "--url", url))
    return found


def test_the_plan_of_an_old_server(empty_postgres_url: str) -> None:
    command.upgrade(repository_config(empty_postgres_url), "0020")
    place = Place(empty_postgres_url)
    before = place.catalog(), place.rows("_meta", "persist_alembic_version")
    found = planned(empty_postgres_url)
    assert (place.catalog(), place.rows("_meta", "persist_alembic_version")) == before
    assert (found["from"], found["revision"]) == ("0020", HEAD)
    assert [step["phase"] for step in found["steps"]] == sorted(step["phase"] for step in found["steps"])
    by_name = {step["step"]: step for step in found["steps"]}
    column = by_name["add column workflow_runs.priority"]
    index = by_name["create index ix_workflow_runs_delayed on workflow_runs"]
    table = by_name["create table workflow_limits"]
    assert (column["phase"], column["lock"].partition(",")[0]) == (1, "ACCESS EXCLUSIVE")
    assert (index["phase"], index["lock"]) == (2, "SHARE UPDATE EXCLUSIVE: readers and writers go on")
    assert column["bytes"] == index["bytes"] > 0
    assert (table["phase"], table["bytes"], table["lock"].partition(":")[0]) == (1, None, "none")
    text = said("--plan", "--url", empty_postgres_url)
    assert "one by one, while others write" in text
    assert "locks SHARE UPDATE EXCLUSIVE" in text


def test_the_plan_of_a_new_database(empty_postgres_url: str) -> None:
    found = planned(empty_postgres_url)
    assert found["from"] is None
    assert {step["phase"] for step in found["steps"]} == {1}
    assert persist.current(empty_postgres_url) is None


def test_the_plan_of_a_file(empty_file: Place) -> None:
    command.upgrade(repository_config(empty_file.url), "0020")
    found = planned(empty_file.url)
    assert {(step["phase"], step["lock"]) for step in found["steps"]} == {(1, "the file, until all is done")}
    assert persist.current(empty_file.url) == "0020"


def test_nothing_is_planned_where_all_is_done(postgres_url: str) -> None:
    assert planned(postgres_url)["steps"] == []
    assert said("--plan", "--url", postgres_url) == f"Up to date already, at {HEAD}.\n"


def test_the_plan_of_an_upgrade_that_was_cut_short_is_what_is_left(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    def steps() -> list[tuple[int, str]]:
        return [(step["phase"], step["step"]) for step in planned(empty_postgres_url)["steps"]]

    command.upgrade(repository_config(empty_postgres_url), "0020")
    late = [step for step in steps() if step[0] == 2]
    perform, done = upgrading.perform, 0

    def twice(*given: Any, **options: Any) -> None:
        nonlocal done
        done += 1
        if done > 2:
            raise ConnectionError("planted")
        perform(*given, **options)

    with monkeypatch.context() as patched:
        patched.setattr(upgrading, "perform", twice)
        with pytest.raises(MigrationFailed, match="planted"):
            persist.upgrade(empty_postgres_url)
    assert steps() == late[2:]
    assert "In one transaction" not in said("--plan", "--url", empty_postgres_url)
    plant(LANES)
    assert steps() == [
        (1, "add column chat_sessions.lane"),
        *late[2:],
        (2, "create index ix_chat_sessions_lane on chat_sessions"),
    ]
    persist.upgrade(empty_postgres_url)
    assert steps() == []
