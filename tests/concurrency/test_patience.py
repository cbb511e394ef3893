"""A file that another process is writing is waited for once, as long as the settings say."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from persist import Store
from persist.db.concurrency.writer_lock import Waiting
from persist.db.dialects.sqlite import dialect as sqlite_dialect
from persist.db.dialects.sqlite.connections import SqliteConnections
from persist.db.dialects.sqlite.event_log import SqliteEventLog
from persist.db.dialects.sqlite.transactions import SqliteTransactions
from persist.errors import StoreBusy
from persist.settings import Settings
from tests.contract.chat.scenes import create
from tests.contract.conftest import Raw
from tests.statement_log import seen_statements


@pytest.fixture
def busy_url(sqlite_url: str) -> Iterator[str]:
    """A file whose write lock somebody holds."""
    Store.open(sqlite_url).close()
    writer = Raw(sqlite_url)
    writer.rows("BEGIN IMMEDIATE")
    yield sqlite_url
    writer.close()


def test_a_short_wait_is_tried_five_times(busy_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statements, slept = seen_statements(monkeypatch), list[float]()
    with Store.open(busy_url, settings=Settings(busy_timeout_ms=0), sleep=slept.append) as store:
        statements.clear()
        with pytest.raises(StoreBusy), store.begin():
            pytest.fail("somebody else holds the lock")
    assert statements.count("BEGIN IMMEDIATE") == 5
    assert slept[:3] == [0.1, 0.2, 0.4]


@pytest.mark.parametrize("milliseconds", [0, 200])
def test_a_lock_that_was_waited_for_is_not_waited_for_again(
    busy_url: str, monkeypatch: pytest.MonkeyPatch, milliseconds: int
) -> None:
    monkeypatch.setattr(sqlite_dialect, "_FIVE_ATTEMPTS", 0)  # as if the setting were above two seconds
    statements, slept = seen_statements(monkeypatch), list[float]()
    with Store.open(busy_url, settings=Settings(busy_timeout_ms=milliseconds), sleep=slept.append) as store:
        statements.clear()
        with pytest.raises(StoreBusy) as busy, store.begin():
            pytest.fail("somebody else holds the lock")
    assert statements.count("BEGIN IMMEDIATE") == 1
    assert slept == []
    assert busy.value.waited >= milliseconds / 1000


class Recorded:
    """A driver connection that runs nothing."""

    in_transaction = False

    def __init__(self) -> None:
        self.ran: list[str] = []

    def execute(self, statement: str) -> None:
        self.ran.append(statement)


@pytest.mark.parametrize("cancelled", [None, lambda: False], ids=["sync", "async"])
@pytest.mark.parametrize(("waited", "left"), [(4.5, range(1, 501)), (60.0, [100])], ids=["in time", "too late"])
def test_what_was_waited_for_in_this_process_counts(cancelled: Callable[[], bool] | None, waited: float, left: Any) -> None:
    settings, event_log, driver = Settings(busy_timeout_ms=5000), SqliteEventLog(None), Recorded()
    connections = SqliteConnections(None, settings, event_log.say_whether_kept)
    transactions = SqliteTransactions(connections, event_log, settings)
    transactions._begin_immediate(driver, Waiting(time.monotonic() - waited, cancelled))
    before, begin, after = driver.ran
    assert begin == "BEGIN IMMEDIATE"
    assert int(before.removeprefix("PRAGMA busy_timeout=")) in (left if cancelled is None else [*left, 100])
    assert after == "PRAGMA busy_timeout=5000"


def test_a_free_lock_costs_no_statement_more(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = seen_statements(monkeypatch)
    with Store.open(sqlite_url) as store:
        create(store)
        statements.clear()
        with store.begin():
            pass
    assert statements[:2] == ["BEGIN IMMEDIATE", "COMMIT"]
