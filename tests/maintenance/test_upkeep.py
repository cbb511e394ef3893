"""`maintenance.checkpoint` and `maintenance.vacuum`."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from persist import Store
from persist.errors import InvalidValue, NotPermitted, ReadOnlyTransaction, StoreBusy, TransactionOpen, UnsupportedEngine
from persist.maintenance import checkpoint, doctor, stats, vacuum
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.distributed_server import takes_triggers
from tests.maintenance.filled import filled, opened

pytestmark = pytest.mark.one_database

IMPATIENT = Settings(busy_timeout_ms=50, wal_autocheckpoint=0)


def _write(store: Store, size: int = 100_000) -> str:
    digest: str = store.chat.prompts.put("x" * size)
    return digest


def _log(store: Store) -> int:
    assert store.path is not None
    return store.path.with_name(store.path.name + "-wal").stat().st_size


def test_truncating_empties_the_log(sqlite_url: str) -> None:
    with Store.open(sqlite_url, settings=IMPATIENT) as store:
        digest = _write(store)
        assert _log(store) > 100_000
        assert checkpoint(store) == (0, 0, 0)
        assert _log(store) == 0
        assert len(store.chat.prompts.get(digest)) == 100_000


@pytest.mark.parametrize("mode", ["PASSIVE", "full", "Restart"])
def test_other_modes_move_every_page_and_keep_the_log(mode: str, sqlite_url: str) -> None:
    with Store.open(sqlite_url, settings=IMPATIENT) as store:
        _write(store)
        busy, log, moved = checkpoint(store, mode)
        assert (busy, moved) == (0, log)
        assert moved > 20
        assert _log(store) > 100_000


def test_a_reader_in_the_way_is_said(sqlite_url: str) -> None:
    with Store.open(sqlite_url, settings=IMPATIENT) as store:
        _write(store)
        with closing(sqlite3.connect(str(store.path), isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM system_prompts").fetchone()
            _write(store, 200_000)
            busy, log, moved = checkpoint(store)
            assert busy == 1
            assert moved < log
        assert checkpoint(store) == (0, 0, 0)


@pytest.mark.parametrize("mode", ["", "truncate; DROP TABLE messages", "FAST", None, 3])
def test_a_mode_there_is_none_of(mode: str, database_url: str) -> None:
    with Store.open(database_url) as store, pytest.raises(InvalidValue):
        checkpoint(store, mode)


def test_a_server_checkpoints_itself(postgres_url: str) -> None:
    with Store.open(postgres_url) as store, pytest.raises(UnsupportedEngine, match="itself"):
        checkpoint(store)


def test_vacuum_gives_space_back(sqlite_url: str, clock: FrozenClock) -> None:
    place = filled(sqlite_url, clock)
    with opened(place, clock) as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="build", model={}).id
            for number in range(50):
                tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": f"{number}" * 10_000}])
        store.chat.sessions.delete(session)
        rows, before = place.rows(), stats(store)["database"]
        vacuum(store)
        after = stats(store)["database"]
        assert before["free_pages"] > 100
        assert after["free_pages"] == 0
        assert after["bytes"] < before["bytes"] - 100 * 4096
        assert after["wal_bytes"] == 0
        assert place.rows() == rows
        assert doctor(store) == []


def test_vacuum_on_a_server_counts_anew(postgres_url: str, clock: FrozenClock) -> None:
    place = filled(postgres_url, clock)
    rows = place.rows()
    with opened(place, clock) as store:
        vacuum(store)
        tables = stats(store)["tables"]
    if takes_triggers(postgres_url):  # a node of a cluster notes it for itself
        assert all(facts["last_vacuum"] and facts["last_analyze"] for facts in tables.values())
        assert all(facts["last_vacuum"].endswith("+00:00") for facts in tables.values())
    assert place.rows() == rows


def test_vacuum_by_a_role_that_owns_nothing_is_refused(postgres_url: str, new_role: Callable[[str], str]) -> None:
    with Store.open(new_role(postgres_url)) as store, pytest.raises(NotPermitted):
        vacuum(store)


def test_memory_can_be_vacuumed_and_has_no_log() -> None:
    with Store.open("sqlite:///:memory:") as store:
        digest = _write(store)
        assert store.chat.prompts.get(digest)
        vacuum(store)
        assert checkpoint(store) == (0, -1, -1)
        assert store.chat.prompts.get(digest)


@pytest.mark.parametrize("what", [checkpoint, vacuum])
def test_inside_a_transaction_nothing_is_done(what: Callable[[Store], object], database_url: str) -> None:
    with Store.open(database_url) as store, store.begin() as tx:
        with pytest.raises(TransactionOpen):
            what(store)
        tx.chat.prompts.put("the transaction goes on")


@pytest.mark.parametrize("what", [checkpoint, vacuum])
def test_a_read_only_store_is_left_alone(what: Callable[[Store], object], database_url: str) -> None:
    Store.open(database_url).close()
    with Store.open(database_url, read_only=True) as store, pytest.raises(ReadOnlyTransaction):
        what(store)


def test_vacuum_behind_another_writer_gives_up(sqlite_url: str) -> None:
    with Store.open(sqlite_url, settings=IMPATIENT, sleep=lambda seconds: None) as store:
        with closing(sqlite3.connect(Path(str(store.path)), isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy):
                vacuum(store)
        vacuum(store)
