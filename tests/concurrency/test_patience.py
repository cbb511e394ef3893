"""A file that another process is writing is waited for once, as long as the settings say."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import accumulate, pairwise
from math import inf
from types import SimpleNamespace

import pytest

from persist import Store
from persist.db.concurrency.writer_lock import Cancelled, Waiting
from persist.db.dialects.sqlite import connections
from persist.db.dialects.sqlite import dialect as sqlite_dialect
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
    assert statements.count("BEGIN IMMEDIATE") == 1 or milliseconds
    assert slept == []
    assert busy.value.waited >= milliseconds / 1000


class Held:
    """A driver connection whose database is locked until it was asked so many times, and a clock that only waiting moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, until: float = inf) -> None:
        self.asked, self._until, self.now, self.slept = 0, until, 1000.0, list[float]()
        monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep))

    def execute(self, statement: str) -> None:
        assert statement == "BEGIN IMMEDIATE"
        self.asked += 1
        if self.asked <= self._until:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorname = "SQLITE_BUSY"
            raise error

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("timeout", [0, 0.005, 0.2, 5, 30])
def test_the_lock_is_asked_for_more_often_towards_the_end_and_never_beyond_it(
    timeout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    with pytest.raises(sqlite3.OperationalError):
        connections.begin(held, timeout)
    assert sum(held.slept) == pytest.approx(timeout)
    assert all(0 < seconds <= 0.01 for seconds in held.slept)
    assert held.asked == len(held.slept) + 1
    if timeout >= 5:
        left = list(reversed(list(accumulate(reversed(held.slept)))))
        assert sum(one < 0.5 for one in left) > 250  # asked so often in the last half second: SQLite itself asks five times
        assert all(connections.pause(less, lambda: 1) <= connections.pause(more, lambda: 1) for more, less in pairwise(left))


def test_two_waiters_do_not_wait_alike() -> None:
    assert [connections.pause(5, chance) for chance in (lambda: 0, lambda: 0.5, lambda: 1)] == [0.005, 0.0075, 0.01]


def test_who_gets_the_lock_in_time_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, until=100)
    connections.begin(held, 5)
    assert held.asked == 101


@pytest.mark.parametrize(("waited", "left"), [(4.5, 0.5), (60.0, 0.1)], ids=["in time", "too late"])
def test_what_was_waited_for_in_this_process_counts(monkeypatch: pytest.MonkeyPatch, waited: float, left: float) -> None:
    held = Held(monkeypatch)
    with pytest.raises(sqlite3.OperationalError):
        connections.begin(held, 5, Waiting(held.now - waited))
    assert sum(held.slept) == pytest.approx(left)


def test_a_wait_ends_when_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    with pytest.raises(Cancelled):
        connections.begin(held, 5, Waiting(held.now, lambda: held.asked == 3))
    assert held.asked == 3


def test_a_connection_of_a_host_keeps_its_own_timeout(busy_url: str) -> None:
    with closing(sqlite3.connect(busy_url.removeprefix("sqlite:///"), timeout=0.03)) as theirs:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            connections.begin_patiently(theirs)
        assert theirs.execute("PRAGMA busy_timeout").fetchone() == (30,)


def test_a_free_lock_costs_no_statement_more(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = seen_statements(monkeypatch)
    with Store.open(sqlite_url) as store:
        create(store)
        statements.clear()
        with store.begin():
            pass
    assert statements[:2] == ["BEGIN IMMEDIATE", "COMMIT"]
