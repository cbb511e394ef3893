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


def test_rows_and_statuses_are_counted(url: str, clock: FrozenClock) -> None:
    """Of a newer schema, too, with a word that this version does not know."""
    place = filled(url, clock)
    place.run(
        f"ALTER TABLE {place.named('messages')} ADD COLUMN later TEXT",
        f"UPDATE {place.named('persist_alembic_version')} SET version_num = '9999'",
        f"UPDATE {place.named('_meta')} SET value = '9999' WHERE key = 'schema_version'",
        f"UPDATE {place.named('run')} SET status = 'dreaming'",
    )
    with opened(place, clock, read_only=True) as store:
        found = stats(store)
    assert found["database"]["revision"] == "9999"
    assert {name: facts["rows"] for name, facts in found["tables"].items()} == {
        name: len(found) for name, found in place.rows().items() if name != "persist_alembic_version"
    }
    sizes = {facts["bytes"] for facts in found["tables"].values()}
    assert min(sizes) > 0 if place.is_postgres or _has_dbstat() else sizes == {None}
    assert json.loads(json.dumps(found)) == found
    statuses = found["statuses"]
    assert {domain: sorted(tables) for domain, tables in statuses.items()} == {
        "chat": ["chat_turns"],
        "conversations": ["branches", "sessions"],
        "histories": ["history_snapshots", "history_tool_effects"],
        "programs": ["execution", "run"],
        "telemetry": ["tasks"],
        "workflows": ["workflow_approvals", "workflow_effects", "workflow_runs"],
    }
    assert statuses["conversations"]["branches"] == {"by_status": {"completed": 1}, "null": 2}
    assert statuses["telemetry"]["tasks"] == {"by_status": {"cancelled": 1, "completed": 1, "in_progress": 1}, "null": 0}
    assert statuses["programs"]["run"] == {"by_status": {"dreaming": 1}, "null": 0}


def test_an_empty_store_and_large_values_by_column(store: Store) -> None:
    found = stats(store)
    seeded = {table.name for table in metadata.sorted_tables if table.info.get("seed")}
    assert {name for name, facts in found["tables"].items() if facts["rows"]} == seeded
    assert found["statuses"]["workflows"]["workflow_runs"] == {"by_status": {}, "null": 0}
    store.chat.prompts.put("".join(chr(33 + number * 7919 % 90) for number in range(100_000)))
    blobs = stats(store)["blobs"]
    assert list(blobs["system_prompts"]) == ["body"]
    assert 1_000 < blobs["system_prompts"]["body"] <= 100_100  # Postgres may compress, never to nothing
    assert set(blobs["chat_sessions"]) == {"model_json", "permissions_json", "metadata_json"}
    assert blobs["messages"]["embedding"] == 0
    assert "window_marks" not in blobs


def test_the_database_of_a_file(sqlite_url: str, clock: FrozenClock, tmp_path: Path) -> None:
    place = filled(sqlite_url, clock)
    with opened(place, clock, read_only=True) as store:
        found = stats(store)
    database = found["database"]
    assert (database["dialect"], database["path"]) == ("sqlite", str(place.path))
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
    with opened(place, clock) as store:
        store.chat.prompts.put("x" * 50_000)
        assert stats(store)["database"]["wal_bytes"] > 50_000
    with Store.open("sqlite:///:memory:") as store:
        database = stats(store)["database"]
    assert (database["path"], database["wal_bytes"]) == (None, 0)
    with pytest.raises(NotFound):
        Store.open(f"sqlite:///{tmp_path / 'none.db'}", read_only=True)
    assert not (tmp_path / "none.db").exists()


def test_the_database_of_a_server(postgres_url: str, clock: FrozenClock) -> None:
    with opened(filled(postgres_url, clock), clock) as store:
        found = stats(store)
    database = found["database"]
    assert (database["dialect"], database["schema"], database["revision"]) == ("postgresql", "persist", HEAD)
    assert database["database"] in postgres_url
    assert 0 < database["bytes"] < database["database_bytes"]
    counted = takes_triggers(postgres_url)  # by the server itself, and not by other nodes of a cluster
    assert ({"dead_rows", "last_vacuum", "last_analyze"} <= set(found["tables"]["messages"])) == counted
    scans = {index["name"]: index.get("scans") for index in found["indexes"]}
    assert (scans["ix_branches_parent_branch_id"] is not None) == counted
    assert {"server_version", "synchronous_commit", "max_connections", "default_transaction_isolation"} <= set(found["settings"])
    assert "@" not in json.dumps(found)


def _has_dbstat() -> bool:
    """Some builds of SQLite leave it out."""
    with closing(sqlite3.connect(":memory:")) as memory:
        return bool(memory.execute("SELECT count(*) FROM pragma_module_list WHERE name = 'dbstat'").fetchone()[0])
