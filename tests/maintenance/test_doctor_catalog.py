"""`maintenance.doctor` on catalogs: whatever differs from what the models ask for is found, and only that."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table

from persist import Store
from persist.db.dialects.postgres import catalog
from persist.db.dialects.sqlite.catalog import expected_catalog
from persist.maintenance import doctor
from persist.schema.metadata import HEAD
from persist.testing import FrozenClock
from tests.cases import each
from tests.maintenance.filled import by_code, codes, filled, opened
from tests.schema.places import Place
from tests.seeded_databases import with_file

LEASED = "ix_workflow_runs_leased"
ONE_ACTIVE = "idx_msg_sessions_one_active"
READY = "ix_workflow_runs_ready"


def test_a_healthy_store_has_no_finding(own_database_url: str, clock: FrozenClock) -> None:
    with opened(filled(own_database_url, clock), clock, read_only=True) as store:
        assert doctor(store) == []
        assert doctor(store, full=True) == []
    with Store.open("sqlite:///:memory:") as store:
        assert doctor(store, fix=True) == []


MUTATIONS = [
    ("DROP TABLE {window_marks}", "table_missing", "error", "table window_marks"),
    ("ALTER TABLE {chat_sessions} DROP COLUMN cache_write", "column_missing", "error", "column chat_sessions.cache_write"),
    ("ALTER TABLE {messages} ADD COLUMN mood TEXT", "column_unknown", "info", "column messages.mood"),
    (f"DROP INDEX {{{LEASED}}}", "index_missing", "warning", f"index {LEASED}"),
    (f"DROP INDEX {{{ONE_ACTIVE}}}", "index_missing", "error", f"index {ONE_ACTIVE}"),
    (
        f"DROP INDEX {{{READY}}}; CREATE INDEX {READY} ON {{workflow_runs}} (trigger_id) WHERE parent_run_id IS NULL",
        "index_changed",
        "warning",
        f"index {READY}",
    ),
    (
        "DROP INDEX {ix_messages_sender}; CREATE INDEX ix_messages_sender ON {messages} (role)",
        "index_changed",
        "warning",
        "index ix_messages_sender",
    ),
    ("CREATE INDEX ix_theirs ON {messages} (content)", "index_unknown", "info", "index ix_theirs"),
    (
        "DROP INDEX {ix_messages_recipient}; CREATE INDEX ix_of_others ON {messages} (recipient)",  # it does its work
        "index_unknown",
        "info",
        "index ix_of_others",
    ),
    ("CREATE TABLE {theirs} (id INTEGER PRIMARY KEY, state TEXT)", "", "", ""),
]
"""What somebody did to the catalog, and what is found: code, severity, subject."""


def made(place: Place, index: str) -> list[str]:
    """What the catalog says of an index."""
    return sorted(str(fact) for fact in place.catalog() if index in str(fact))


def test_drift_is_found_and_missing_indexes_are_made(own_database_url: str, clock: FrozenClock) -> None:
    place = filled(own_database_url, clock)
    good = {name: made(place, name) for name in (LEASED, ONE_ACTIVE)}
    for statements, *_ in MUTATIONS:
        place.run(*(_named(place, statement) for statement in statements.split("; ")))
    for fix in (False, True):
        with opened(place, clock, read_only=not fix) as store:
            found = [one for one in doctor(store, fix=fix) if one.code != "unreadable"]
        assert sorted((one.code, one.severity, one.subject, one.fixed) for one in found) == sorted(
            (*expected, fix and expected[0] == "index_missing") for _, *expected in MUTATIONS if expected[0]
        )
    with opened(place, clock) as store:
        assert "index_missing" not in codes(doctor(store))
    assert {name: made(place, name) for name in good} == good


def test_a_unique_index_over_rows_that_are_there_twice_stays_missing(own_database_url: str, clock: FrozenClock) -> None:
    place = filled(own_database_url, clock)
    columns = "platform, channel_id, thread_id, user_id, created_at, last_activity_at, active"
    twice = f"SELECT 'copy', {columns} FROM {place.named('messaging_sessions')} WHERE thread_id IS NULL AND active"
    place.run(
        _named(place, f"DROP INDEX {{{ONE_ACTIVE}}}"),
        f"UPDATE {place.named('messaging_sessions')} SET thread_id = NULL, active = {'true' if place.is_postgres else '1'}"
        f" WHERE id = (SELECT min(id) FROM {place.named('messaging_sessions')})",
        f"INSERT INTO {place.named('messaging_sessions')} (id, {columns}) {twice}",
    )
    rows = place.rows("messaging_sessions")
    with opened(place, clock) as store:
        found = by_code(doctor(store, fix=True), "index_missing")
    assert not found.fixed
    assert "could not be fixed" in found.message
    assert place.rows("messaging_sessions") == rows


def test_a_check_that_was_changed_on_a_server(own_postgres_url: str, clock: FrozenClock) -> None:
    place = filled(own_postgres_url, clock)
    place.run(
        "ALTER TABLE persist.chat_turns DROP CONSTRAINT ck_chat_turns_state",
        "ALTER TABLE persist.chat_turns ADD CONSTRAINT ck_chat_turns_state CHECK (state IN ('running'))",
        "ALTER TABLE persist.chat_messages DROP CONSTRAINT ck_chat_messages_role",
        "ALTER TABLE persist.messages ALTER COLUMN role TYPE varchar(10)",
        "ALTER TABLE persist.messages ALTER COLUMN content DROP NOT NULL",
    )
    with opened(place, clock) as store:
        found = {(finding.code, finding.severity, finding.subject) for finding in doctor(store)}
    assert found == {
        ("constraint_changed", "warning", "constraint ck_chat_turns_state of chat_turns"),
        ("constraint_missing", "warning", "constraint ck_chat_messages_role of chat_messages"),
        ("column_changed", "warning", "column messages.role"),
        ("column_changed", "info", "column messages.content"),
    }


def test_a_table_that_another_program_wrote_is_compared_by_what_it_says(sqlite_url: str, clock: FrozenClock) -> None:
    """Quotes, spaces, capitals and the order of columns do not matter; a CHECK, a type and a foreign key do."""
    place = filled(sqlite_url, clock)
    place.run(
        "DROP TABLE chat_turns",
        "create table if not exists [chat_turns] (state text not null CHECK(state IN ('running', 'error')),"
        " seen_at integer NOT NULL, stop_requested_at INTEGER,"
        ' "owner" TEXT not null, message_id TEXT, started_at INTEGER NOT NULL, session_id TEXT NOT NULL PRIMARY KEY'
        " REFERENCES chat_sessions(id) ON DELETE CASCADE) WITHOUT ROWID",
        "CREATE INDEX ix_chat_turns_stop_requested ON chat_turns (session_id) WHERE stop_requested_at IS NOT NULL",
    )
    with opened(place, clock) as store:
        assert doctor(store) == []


@pytest.mark.parametrize(("key", "severity"), [("CONSTRAINT pk_chat_turns ", "warning"), ("", "info")], ids=["ours", "theirs"])
def test_what_differs_in_a_table_is_a_warning_unless_another_program_made_it(
    key: str, severity: str, sqlite_url: str, clock: FrozenClock
) -> None:
    place = filled(sqlite_url, clock)
    place.run(
        "DROP TABLE chat_turns",
        "CREATE TABLE chat_turns (session_id TEXT NOT NULL, message_id TEXT, state TEXT NOT NULL CHECK (state = ')'),"
        f" owner JSON NOT NULL, started_at INTEGER, seen_at INTEGER NOT NULL, stop_requested_at INTEGER,"
        f" {key}PRIMARY KEY (session_id))",
        "CREATE INDEX ix_chat_turns_stop_requested ON chat_turns (session_id) WHERE stop_requested_at IS NOT NULL",
    )
    foreign_key = "FOREIGN KEY (session_id) REFERENCES chat_sessions (id) ON DELETE CASCADE"
    with opened(place, clock) as store:
        found = {(finding.code, finding.severity, finding.subject) for finding in doctor(store)}
    assert found == {
        ("column_changed", severity, "column chat_turns.owner"),
        ("column_changed", "info", "column chat_turns.started_at"),
        ("constraint_missing", severity, "constraint CHECK (state in('running','error')) of chat_turns"),
        ("constraint_missing", severity, f"constraint {foreign_key} of chat_turns"),
        ("constraint_missing", severity, "constraint WITHOUT ROWID of chat_turns"),
        ("constraint_unknown", "info", "constraint CHECK (state=')') of chat_turns"),
    }


def test_without_the_right_to_make_a_schema_names_are_compared(
    own_postgres_url: str, clock: FrozenClock, new_role: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_expected", {})  # what this process has compared before
    place = filled(own_postgres_url, clock)
    reader = new_role(own_postgres_url)
    with Store.open(reader, clock=clock, read_only=True) as store:
        assert codes(doctor(store)) == ["catalog_by_name"]
    place.run(f"DROP INDEX persist.{LEASED}")
    with Store.open(reader, clock=clock, read_only=True) as store:
        assert codes(doctor(store)) == ["catalog_by_name", "index_missing"]
    place.run("ALTER TABLE persist.messages ADD COLUMN mood TEXT", "UPDATE persist.messages SET mood = id WHERE role = 'system'")
    ((count,),) = place.ask("SELECT count(mood) FROM persist.messages")
    with Store.open(reader, clock=clock, read_only=True) as store:
        assert by_code(doctor(store), "column_unknown").message.endswith(
            f"It holds {count} {'value' if count == 1 else 'values'}."
        )
    monkeypatch.undo()
    with opened(place, clock) as store:
        doctor(store)  # this process has made a schema to compare with
    with Store.open(reader, clock=clock, read_only=True) as store:
        assert "catalog_by_name" not in codes(doctor(store))


def test_a_newer_schema_is_no_drift(own_database_url: str, clock: FrozenClock) -> None:
    place = filled(own_database_url, clock)
    place.run(
        f"ALTER TABLE {place.named('messages')} ADD COLUMN later TEXT",
        f"UPDATE {place.named('persist_alembic_version')} SET version_num = '9999'",
        f"UPDATE {place.named('_meta')} SET value = '9999' WHERE key = 'schema_version'",
    )
    with opened(place, clock, read_only=True) as store:
        (found,) = doctor(store)
    assert (found.code, found.severity) == ("schema_newer", "info")


@each("mark", ["UPDATE {} SET value = '0001'", "DELETE FROM {}"])
def test_version_marks_that_disagree(url: str, new_database: Callable[[], str], clock: FrozenClock, mark: str) -> None:
    place = Place(with_file(new_database()))
    with Store.open(place.url):
        place.run(f"{mark.format(place.named('_meta'))} WHERE key = 'schema_version'")
    with opened(place, clock) as store:
        assert codes(doctor(store)) == ["version_marks"]
        assert by_code(doctor(store, fix=True), "version_marks").fixed
        assert doctor(store) == []
    assert place.ask(f"SELECT value FROM {place.named('_meta')} WHERE key = 'schema_version'") == [(HEAD,)]


def test_an_invalid_index_on_a_server(own_postgres_url: str, clock: FrozenClock) -> None:
    place = filled(own_postgres_url, clock)
    place.run("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'persist.ix_messages_sender'::regclass")
    with opened(place, clock) as store:
        (found,) = doctor(store)
    assert (found.code, found.subject) == ("index_invalid", "index ix_messages_sender")
    assert "REINDEX" in found.message


def test_a_sequence_that_lags_is_moved_on(own_postgres_url: str, clock: FrozenClock) -> None:
    place = filled(own_postgres_url, clock)
    place.run("INSERT INTO persist.tool_history (id, instance_id, occurred_at, tool_key) VALUES (500, 'box-1', 1, 'bash')")
    with opened(place, clock) as store:
        assert codes(doctor(store)) == ["sequence_behind"]
        (found,) = doctor(store, fix=True)
        assert found.fixed
        assert doctor(store) == []
        store.telemetry.tools.record("bash", instance_id="box-1")
    assert place.ask("SELECT max(id) FROM persist.tool_history") == [(501,)]


def _named(place: Place, statement: str) -> str:
    for word in {part.partition("}")[0] for part in statement.split("{")[1:]}:
        statement = statement.replace(f"{{{word}}}", place.named(word))
    return statement


def test_the_expected_catalog_of_a_file_is_computed_once_for_the_tables_that_there_are() -> None:
    models = MetaData()
    Table("one", models, Column("id", Integer, primary_key=True))
    first = expected_catalog(models)
    assert expected_catalog(models) is first
    Table("two", models, Column("id", Integer, primary_key=True))
    assert {table for kind, table, _ in expected_catalog(models) if kind == "table"} == {"one", "two"}
    assert {table for kind, table, _ in first if kind == "table"} == {"one"}
    with pytest.raises(TypeError):
        first["table", "three", ""] = None  # type: ignore[index]  # whoever compares with it cannot change it


def test_a_table_without_an_identity_is_named(own_postgres_url: str, clock: FrozenClock) -> None:
    place = filled(own_postgres_url, clock)
    place.run(
        "ALTER TABLE persist.bindings REPLICA IDENTITY DEFAULT",
        "ALTER TABLE persist.blobs REPLICA IDENTITY NOTHING",
        "CREATE TABLE persist.of_a_host (word text)",
    )
    with opened(place, clock) as store:
        found = [finding for finding in doctor(store) if finding.code == "identity_missing"]
    assert [(finding.severity, finding.subject) for finding in found] == [
        ("warning", "table bindings"),
        ("warning", "table blobs"),
    ]
    place.run(*(finding.message.partition("run: ")[2].removesuffix(".") for finding in found))
    with opened(place, clock) as store:
        assert "identity_missing" not in codes(doctor(store))


# `maintenance.doctor` on fork pointers that other programs wrote where they do not count.


def _branches(store: Store) -> None:
    """A branch with three messages, and one without."""
    with store.begin() as tx:
        conversations = tx.conversations
        conversations.sessions.create(id="s")
        for id in ("main", "fork"):
            conversations.branches.create("s", id=id, node_metadata={"model": "m"})
        for id in ("m1", "m2", "m3"):
            conversations.messages.record("main", {"id": id, "created_at": 1.0, "role": "user", "content": id})
        conversations.messages.record("fork", {"id": "own", "created_at": 1.0, "role": "user", "content": "own"})


def _point(url: str, id: str, parent: Any, inherited: Any) -> None:
    """As others write it."""
    place = Place(url)
    said = json.dumps({"parent_branch_id": parent, "forked_at_ord": inherited})
    place.run(f"UPDATE {place.named('branches')} SET node_metadata = '{said}' WHERE id = '{id}'")


def _shown(store: Store, id: str) -> list[str]:
    return [one.id for one in store.conversations.branches.history(id)]


@pytest.mark.one_database
def test_fork_pointers_that_others_wrote_are_adopted(store: Store, url: str) -> None:
    _branches(store)
    assert doctor(store) == []
    _point(url, "fork", "main", 2)
    (found,) = doctor(store)
    assert (found.code, found.severity, found.subject, found.fixed) == ("branch_pointers", "warning", "branch fork", False)
    assert _shown(store, "fork") == ["own"]
    assert by_code(doctor(store, fix=True), "branch_pointers").fixed
    assert doctor(store) == []
    assert _shown(store, "fork") == ["m1", "m2", "own"]


POINTERS = [
    ("gone", 1, "names no branch"),
    ("fork", 1, "descends from it"),
    ("main", 4, "no more than 3 items"),
    *((parent, place, "no place") for parent, place in [("main", -1), ("main", None), (7, 1), (None, 1)]),
]


@pytest.mark.one_database
def test_pointers_that_cannot_be_shown_are_told_and_left(store: Store, url: str) -> None:
    _branches(store)
    for parent, inherited, why in POINTERS:
        _point(url, "fork", parent, inherited)
        (found,) = doctor(store, fix=True)
        assert (found.code, found.subject, found.fixed) == ("branch_pointers", "branch fork", False)
        assert why in found.message
        assert _shown(store, "fork") == ["own"]


@pytest.mark.one_database
def test_a_branch_that_repeats_what_it_inherits_is_left(store: Store, url: str) -> None:
    _branches(store)
    with store.begin() as tx:
        tx.conversations.progressions.replace(tx.conversations.branches.get("fork").progression_id, ["m1", "m2", "own"])
    _point(url, "fork", "main", 2)
    (found,) = doctor(store, fix=True)
    assert ("begin with them already" in found.message, found.fixed) == (True, False)
    assert _shown(store, "fork") == ["m1", "m2", "own"]


@pytest.mark.one_database
def test_columns_count_where_the_metadata_differs(store: Store, url: str) -> None:
    _branches(store)
    store.conversations.branches.fork("main", at=1, new_id="f")
    _point(url, "f", "main", 2)
    place = Place(url)
    place.run(f"UPDATE {place.named('branches')} SET parent_branch_id = 'gone', forked_at_ord = 1 WHERE id = 'fork'")
    found = {one.subject: one for one in doctor(store, fix=True)}
    assert set(found) == {"branch f", "branch fork"}
    assert "the columns, which count" in found["branch f"].message
    assert "'gone', which is gone" in found["branch fork"].message
    assert _shown(store, "f") == ["m1"]
