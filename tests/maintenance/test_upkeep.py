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

IMPATIENT = Settings(busy_timeout_ms=50, wal_autocheckpoint=0)


def _write(store: Store, size: int = 100_000) -> str:
    return str(store.chat.prompts.put("x" * size))


def _log(store: Store) -> int:
    assert store.path is not None
    return store.path.with_name(store.path.name + "-wal").stat().st_size


def test_a_checkpoint_moves_every_page_and_truncating_empties_the_log(sqlite_url: str) -> None:
    with Store.open(sqlite_url, settings=IMPATIENT) as store:
        for mode in ("PASSIVE", "full", "Restart"):
            digest = _write(store)
            busy, log, moved = checkpoint(store, mode)
            assert (busy, moved) == (0, log)
            assert moved > 20
            assert _log(store) > 100_000
        assert checkpoint(store) == (0, 0, 0)
        assert _log(store) == 0
        assert len(store.chat.prompts.get(digest)) == 100_000
        _write(store)
        with closing(sqlite3.connect(str(store.path), isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM system_prompts").fetchone()
            _write(store, 200_000)
            busy, log, moved = checkpoint(store)
            assert busy == 1
            assert moved < log
        assert checkpoint(store) == (0, 0, 0)


@pytest.mark.one_database
def test_wrong_calls_and_those_in_a_transaction_do_nothing(store: Store, url: str) -> None:
    for mode in ("", "truncate; DROP TABLE messages", "FAST", None, 3):
        with pytest.raises(InvalidValue):
            checkpoint(store, mode)  # type: ignore[arg-type]  # that is what is tried
    whats: list[Callable[[Store], object]] = [checkpoint, vacuum]
    for what in whats:
        with store.begin() as tx:
            with pytest.raises(TransactionOpen):
                what(store)
            tx.chat.prompts.put("the transaction goes on")
        with Store.open(url, read_only=True) as reader, pytest.raises(ReadOnlyTransaction):
            what(reader)


def test_vacuum_gives_space_back(sqlite_url: str, clock: FrozenClock) -> None:
    place = filled(sqlite_url, clock)
    with opened(place, clock) as store:
        session = store.chat.sessions.create(agent="build", model={}).id
        for number in range(20):
            store.chat.messages.append(session, role="user", parts=[{"type": "text", "text": f"{number}" * 25_000}])
        store.chat.sessions.delete(session)
        rows, before = place.rows(), stats(store)["database"]
        vacuum(store)
        after = stats(store)["database"]
        assert before["free_pages"] > 100
        assert (after["free_pages"], after["wal_bytes"]) == (0, 0)
        assert after["bytes"] < before["bytes"] - 100 * 4096
        assert place.rows() == rows
        assert doctor(store) == []


def test_a_server_counts_anew_and_checkpoints_itself(
    postgres_url: str, clock: FrozenClock, new_role: Callable[[str], str]
) -> None:
    place = filled(postgres_url, clock)
    rows = place.rows()
    with opened(place, clock) as store:
        with pytest.raises(UnsupportedEngine, match="itself"):
            checkpoint(store)
        vacuum(store)
        tables = stats(store)["tables"]
    if takes_triggers(postgres_url):  # a node of a cluster notes it for itself
        assert all(facts["last_vacuum"] and facts["last_analyze"] for facts in tables.values())
        assert all(facts["last_vacuum"].endswith("+00:00") for facts in tables.values())
    assert place.rows() == rows
    with Store.open(new_role(postgres_url)) as store, pytest.raises(NotPermitted):
        vacuum(store)


def test_memory_can_be_vacuumed_and_has_no_log() -> None:
    with Store.open("sqlite:///:memory:") as store:
        digest = _write(store)
        vacuum(store)
        assert checkpoint(store) == (0, -1, -1)
        assert store.chat.prompts.get(digest)


def test_vacuum_behind_another_writer_gives_up(sqlite_url: str) -> None:
    with Store.open(sqlite_url, settings=IMPATIENT, sleep=lambda seconds: None) as store:
        with closing(sqlite3.connect(Path(str(store.path)), isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy):
                vacuum(store)
        vacuum(store)
