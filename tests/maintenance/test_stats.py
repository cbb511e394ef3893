"""`maintenance.stats`: figures that agree with what is in the tables."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from persist import Store
from persist.errors import NotFound
from persist.maintenance import stats
from persist.schema.metadata import HEAD, metadata
from persist.testing import FrozenClock
from tests.distributed_server import takes_triggers
from tests.maintenance.filled import filled, opened
from tests.schema.places import Place

pytestmark = pytest.mark.one_database


def test_rows_of_every_table_are_counted(database_url: str, clock: FrozenClock) -> None:
    place = filled(database_url, clock)
    with opened(place, clock, read_only=True) as store:
        found = stats(store)
    names = [table.name for table in metadata.sorted_tables]
    assert {name: facts["rows"] for name, facts in found["tables"].items()} == {
        name: place.ask(f"SELECT count(*) FROM {place.named(name)}")[0][0] for name in names
    }
    sizes = {facts["bytes"] for facts in found["tables"].values()}
    assert min(sizes) > 0 if place.is_postgres or _has_dbstat() else sizes == {None}
    assert json.loads(json.dumps(found)) == found


def test_statuses_are_counted_by_domain_and_null_apart(database_url: str, clock: FrozenClock) -> None:
    with opened(filled(database_url, clock), clock) as store:
        found = stats(store)["statuses"]
    assert {domain: sorted(tables) for domain, tables in found.items()} == {
        "chat": ["chat_turns"],
        "conversations": ["branches", "sessions"],
        "histories": ["history_snapshots", "history_tool_effects"],
        "programs": ["execution", "run"],
        "telemetry": ["tasks"],
        "workflows": ["workflow_approvals", "workflow_effects", "workflow_runs"],
    }
    assert found["conversations"]["branches"] == {"by_status": {"completed": 1}, "null": 2}
    assert found["telemetry"]["tasks"] == {"by_status": {"cancelled": 1, "completed": 1, "in_progress": 1}, "null": 0}


def test_a_word_that_this_version_does_not_know_is_counted_too(database_url: str, clock: FrozenClock) -> None:
    place = filled(database_url, clock)
    place.run(f"UPDATE {place.named('run')} SET status = 'dreaming'")
    with opened(place, clock) as store:
        assert stats(store)["statuses"]["programs"]["run"] == {"by_status": {"dreaming": 1}, "null": 0}


def test_large_values_are_measured_by_column(store: Store) -> None:
    text = "".join(chr(33 + number * 7919 % 90) for number in range(100_000))
    store.chat.prompts.put(text)
    found = stats(store)["blobs"]
    assert list(found["system_prompts"]) == ["body"]
    # Postgres may compress, never to nothing
    assert 1_000 < found["system_prompts"]["body"] <= 100_100
    assert set(found["chat_sessions"]) == {"model_json", "permissions_json", "metadata_json"}
    assert found["messages"]["embedding"] == 0
    assert "window_marks" not in found


def test_the_database_of_a_file(sqlite_url: str, clock: FrozenClock) -> None:
    place = filled(sqlite_url, clock)
    with opened(place, clock, read_only=True) as store:
        found = stats(store)
    database = found["database"]
    assert database["dialect"] == "sqlite"
    assert database["path"] == str(place.path)
    assert (database["revision"], database["head"]) == (HEAD, HEAD)
    assert database["bytes"] == place.path.stat().st_size == database["pages"] * database["page_size"]
    assert found["settings"] == {
        "journal_mode": "wal",
        "synchronous": "normal",
        "foreign_keys": "on",
        "wal_autocheckpoint": 1000,
        "busy_timeout": 5000,
        "page_size": 4096,
        "auto_vacuum": "none",
    }


def test_the_log_of_a_file_is_measured(sqlite_url: str, clock: FrozenClock) -> None:
    with Store.open(sqlite_url, clock=clock) as store:
        store.chat.prompts.put("x" * 50_000)
        assert stats(store)["database"]["wal_bytes"] > 50_000


def test_the_database_of_a_server(postgres_url: str, clock: FrozenClock) -> None:
    place = filled(postgres_url, clock)
    with opened(place, clock) as store:
        found = stats(store)
    database = found["database"]
    assert (database["dialect"], database["schema"], database["revision"]) == ("postgresql", "persist", HEAD)
    assert postgres_url.endswith(database["database"]) or database["database"] in postgres_url
    assert 0 < database["bytes"] < database["database_bytes"]
    counted = takes_triggers(postgres_url)  # by the server itself, and not by other nodes of a cluster
    assert ({"dead_rows", "last_vacuum", "last_analyze"} <= set(found["tables"]["messages"])) == counted
    scans = {index["name"]: index.get("scans") for index in found["indexes"]}
    assert (scans["ix_branches_parent_branch_id"] is not None) == counted
    assert {"server_version", "synchronous_commit", "max_connections", "default_transaction_isolation"} <= set(found["settings"])
    assert "@" not in json.dumps(found)


def test_an_empty_store(store: Store) -> None:
    found = stats(store)
    seeded = {table.name for table in metadata.sorted_tables if table.info.get("seed")}
    assert {name for name, facts in found["tables"].items() if facts["rows"]} == seeded
    assert found["statuses"]["workflows"]["workflow_runs"] == {"by_status": {}, "null": 0}


def test_memory() -> None:
    with Store.open("sqlite:///:memory:") as store:
        database = stats(store)["database"]
    assert database["path"] is None
    assert database["wal_bytes"] == 0


def test_a_newer_schema_is_shown(database_url: str, clock: FrozenClock) -> None:
    place = filled(database_url, clock)
    with opened(place, clock, read_only=True) as store:
        before = stats(store)["tables"]["messages"]["rows"]
    _pretend(place, "9999")
    with opened(place, clock, read_only=True) as store:
        found = stats(store)
    assert found["database"]["revision"] == "9999"
    assert found["tables"]["messages"]["rows"] == before > 0


def test_a_missing_file_is_not_found_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Store.open(f"sqlite:///{tmp_path / 'none.db'}", read_only=True)
    assert list(tmp_path.iterdir()) == []


def _has_dbstat() -> bool:
    """Some builds of SQLite leave it out."""
    with closing(sqlite3.connect(":memory:")) as memory:
        return bool(memory.execute("SELECT count(*) FROM pragma_module_list WHERE name = 'dbstat'").fetchone()[0])


def _pretend(place: Place, revision: str) -> None:
    place.run(
        f"ALTER TABLE {place.named('messages')} ADD COLUMN later TEXT",
        f"UPDATE {place.named('persist_alembic_version')} SET version_num = '{revision}'",
        f"UPDATE {place.named('_meta')} SET value = '{revision}' WHERE key = 'schema_version'",
    )
