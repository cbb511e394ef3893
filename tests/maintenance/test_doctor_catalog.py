"""`maintenance.doctor` on catalogs: whatever differs from what the models ask for is found, and only that."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from sqlalchemy import Column, Integer, MetaData, Table

from persist import Store
from persist.db.dialects.postgres import catalog
from persist.db.dialects.sqlite.catalog import expected_catalog
from persist.maintenance import doctor
from persist.schema.metadata import HEAD
from persist.testing import FrozenClock
from tests.maintenance.filled import by_code, codes, filled, opened
from tests.schema.places import Place

LEASED = "ix_workflow_runs_leased"
ONE_ACTIVE = "idx_msg_sessions_one_active"


def test_a_healthy_store_has_no_finding(own_database_url: str, clock: FrozenClock) -> None:
    with opened(filled(own_database_url, clock), clock, read_only=True) as store:
        assert doctor(store) == []
        assert doctor(store, full=True) == []


def test_an_empty_store_has_no_finding(own_database_url: str) -> None:
    with Store.open(own_database_url) as store:
        assert doctor(store) == []


def test_memory_has_no_finding() -> None:
    with Store.open("sqlite:///:memory:") as store:
        assert doctor(store, fix=True) == []


@dataclass(frozen=True)
class Mutation:
    """What somebody did to the catalog, and what is found: code, severity, subject."""

    statements: tuple[str, ...]
    code: str
    severity: str
    subject: str


MUTATIONS = {
    "a table is gone": Mutation(("DROP TABLE {window_marks}",), "table_missing", "error", "table window_marks"),
    "a column is gone": Mutation(
        ("ALTER TABLE {chat_sessions} DROP COLUMN cache_write",), "column_missing", "error", "column chat_sessions.cache_write"
    ),
    "an index is gone": Mutation((f"DROP INDEX {{{LEASED}}}",), "index_missing", "warning", f"index {LEASED}"),
    "a unique index is gone": Mutation((f"DROP INDEX {{{ONE_ACTIVE}}}",), "index_missing", "error", f"index {ONE_ACTIVE}"),
    "a predicate is another": Mutation(
        (
            f"DROP INDEX {{{LEASED}}}",
            f"CREATE INDEX {LEASED} ON {{workflow_runs}} (lease_expires_at) WHERE lease_expires_at IS NULL",
        ),
        "index_changed",
        "warning",
        f"index {LEASED}",
    ),
    "the columns of an index are others": Mutation(
        ("DROP INDEX {ix_messages_sender}", "CREATE INDEX ix_messages_sender ON {messages} (role)"),
        "index_changed",
        "warning",
        "index ix_messages_sender",
    ),
    "a column of others": Mutation(
        ("ALTER TABLE {messages} ADD COLUMN mood TEXT",), "column_unknown", "info", "column messages.mood"
    ),
    "an index of others": Mutation(("CREATE INDEX ix_theirs ON {messages} (role)",), "index_unknown", "info", "index ix_theirs"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_drift_is_found(name: str, own_database_url: str, clock: FrozenClock) -> None:
    mutation = MUTATIONS[name]
    place = filled(own_database_url, clock)
    place.run(*(_named(place, statement) for statement in mutation.statements))
    with opened(place, clock, read_only=True) as store:
        found = [finding for finding in doctor(store) if finding.code != "unreadable"]
    assert [(finding.code, finding.severity, finding.subject, finding.fixed) for finding in found] == [
        (mutation.code, mutation.severity, mutation.subject, False)
    ]


@pytest.mark.parametrize("name", ["an index is gone", "a unique index is gone"])
def test_missing_indexes_are_made(name: str, own_database_url: str, clock: FrozenClock) -> None:
    place = filled(own_database_url, clock)
    before = place.catalog()
    place.run(*(_named(place, statement) for statement in MUTATIONS[name].statements))
    with opened(place, clock) as store:
        (found,) = doctor(store, fix=True)
        assert found.fixed
        assert doctor(store) == []
    assert place.catalog() == before


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


def test_an_index_under_another_name_does_its_work(own_database_url: str, clock: FrozenClock) -> None:
    place = filled(own_database_url, clock)
    place.run(_named(place, "DROP INDEX {ix_messages_sender}"), f"CREATE INDEX theirs ON {place.named('messages')} (sender)")
    with opened(place, clock) as store:
        assert codes(doctor(store)) == ["index_unknown"]


def test_tables_of_a_host_are_no_finding(own_database_url: str, clock: FrozenClock) -> None:
    place = filled(own_database_url, clock)
    place.run(f"CREATE TABLE {place.named('theirs')} (id INTEGER PRIMARY KEY, state TEXT)")
    with opened(place, clock) as store:
        assert doctor(store) == []


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


def test_a_process_creates_a_schema_to_compare_with_once(
    own_postgres_url: str, clock: FrozenClock, new_role: Callable[[str], str]
) -> None:
    with opened(filled(own_postgres_url, clock), clock) as store:
        assert doctor(store) == []
    with Store.open(new_role(own_postgres_url), clock=clock, read_only=True) as reader:
        assert doctor(reader) == []  # a role that may not create one


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


def test_version_marks_that_disagree(own_database_url: str, clock: FrozenClock) -> None:
    place = filled(own_database_url, clock)
    place.run(f"UPDATE {place.named('_meta')} SET value = '0001' WHERE key = 'schema_version'")
    with opened(place, clock) as store:
        assert codes(doctor(store)) == ["version_marks"]
        (found,) = doctor(store, fix=True)
        assert found.fixed
        assert doctor(store) == []
    assert place.ask(f"SELECT value FROM {place.named('_meta')} WHERE key = 'schema_version'") == [(HEAD,)]


def test_a_version_mark_that_is_gone(own_database_url: str, clock: FrozenClock) -> None:
    place = filled(own_database_url, clock)
    place.run(f"DELETE FROM {place.named('_meta')} WHERE key = 'schema_version'")
    with opened(place, clock) as store:
        (found,) = doctor(store, fix=True)
    assert found.fixed
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
        with store.begin() as tx:
            tx.telemetry.tools.record("bash", instance_id="box-1")
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
