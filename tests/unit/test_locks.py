"""The writer lock: first come, first served; never twice by one owner; and nobody waits for ever."""

import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import AssertionPool, NullPool, Pool, QueuePool, SingletonThreadPool, StaticPool

from persist.db.concurrency import writer_lock as locks
from persist.db.concurrency.semaphore import Permits
from persist.db.concurrency.writer_lock import Cancelled, WriterLock
from persist.db.connections import MAX, shares, width
from persist.errors import StoreBusy, TransactionOpen
from tests.at_once import together
from tests.cases import each


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def waiting(lock: WriterLock) -> int:
    return len(lock._waiters)


def test_first_come_first_served() -> None:
    lock = WriterLock()
    lock.acquire("holder")
    order: list[int] = []

    def work(number: int) -> None:
        lock.acquire(number)
        order.append(number)
        lock.release()

    threads = []
    for number in range(10):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        wait_until(lambda: waiting(lock) == len(threads))
    lock.release()
    for thread in threads:
        thread.join()
    assert order == list(range(10))
    assert lock.owner is None


def test_a_newcomer_does_not_overtake() -> None:
    """The lock is handed over, not thrown up: between release and the waiter's next step nobody else gets it."""
    lock = WriterLock()
    lock.acquire("holder")
    waiter = threading.Thread(target=lock.acquire, args=("waiter",))
    waiter.start()
    wait_until(lambda: waiting(lock) == 1)
    lock.release()
    assert lock.owner == "waiter"
    waiter.join()
    lock.release()
    assert lock.owner is None


def test_only_one_holds_it() -> None:
    lock = WriterLock()
    inside, maximum = 0, 0

    def work(number: int) -> None:
        nonlocal inside, maximum
        for _ in range(200):
            lock.acquire(number)
            inside += 1
            maximum = max(maximum, inside)
            inside -= 1
            lock.release()

    together([partial(work, number) for number in range(8)])
    assert (maximum, lock.owner, waiting(lock)) == (1, None, 0)


def test_the_same_owner_again_is_told_at_once() -> None:
    lock = WriterLock()
    lock.acquire("me")
    with pytest.raises(TransactionOpen) as caught:
        lock.acquire("me", what="feed()")
    assert caught.value.what == "feed()"
    lock.release()
    lock.acquire("me")
    assert lock.owner == "me"


def test_whoever_does_not_wait_takes_it_only_when_it_is_free() -> None:
    lock = WriterLock()
    assert lock.take("me")
    assert not lock.take("me")
    assert not lock.take("you")
    lock.release()
    assert lock.take("you")
    assert lock.owner == "you"


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    lock = WriterLock()
    lock.acquire("holder")
    for cancelled in (None, lambda: False):
        with pytest.raises(StoreBusy) as caught:
            lock.acquire("late", cancelled=cancelled)
        assert caught.value.waited >= 0.05
    assert (lock.owner, waiting(lock)) == ("holder", 0)
    lock.release()
    lock.acquire("late")
    assert lock.owner == "late"


def test_a_wait_can_be_called_off() -> None:
    lock = WriterLock()
    lock.acquire("holder")
    called_off = threading.Event()
    outcome: list[str] = []

    def work() -> None:
        try:
            lock.acquire("waiter", cancelled=called_off.is_set)
        except Cancelled:
            outcome.append("called off")

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: waiting(lock) == 1)
    called_off.set()
    thread.join()
    assert outcome == ["called off"]
    assert (lock.owner, waiting(lock)) == ("holder", 0)
    lock.release()
    assert lock.owner is None


def test_a_lock_handed_over_while_it_is_called_off_is_not_lost() -> None:
    """Whoever asks then owns it, and gives it back like any other owner; else nobody ever would."""
    lock = WriterLock()
    lock.acquire("holder")

    def called_off() -> bool:
        lock.release()  # of "holder", in the very moment between the waiter's last look and its leaving the line
        return True

    lock.acquire("waiter", cancelled=called_off)
    assert lock.owner == "waiter"
    lock.release()
    assert lock.owner is None


# How many transactions a pool has connections for, and how writers and readers share them.


def connect() -> Any:
    return sqlite3.connect(":memory:")


@each(
    ("pool", "connections"),
    [
        (QueuePool(connect), 15),
        (QueuePool(connect, pool_size=2, max_overflow=1), 3),
        (QueuePool(connect, pool_size=1, max_overflow=0), 1),
        (QueuePool(connect, pool_size=500), 2 * MAX + 1),
        (QueuePool(connect, max_overflow=-1), 2 * MAX + 1),
        (NullPool(connect), 2 * MAX + 1),
        (SingletonThreadPool(connect), 2 * MAX + 1),
        (StaticPool(connect), 1),
        (AssertionPool(connect), 1),
    ],
)
def test_a_pool_is_as_wide_as_it_says(pool: Pool, connections: int) -> None:
    assert width(pool) == connections


@each("one_writer", [True, False])
def test_every_writer_can_read_meanwhile(one_writer: bool) -> None:
    for connections in range(2, 2 * MAX + 2):
        writers, readers = shares(connections, one_writer=one_writer)
        assert 1 <= writers <= MAX
        assert 1 <= readers <= MAX
        assert writers + readers <= connections
    assert shares(2 * MAX + 1, one_writer=False) == (MAX, MAX)
    assert shares(1, one_writer=one_writer)[0] == 1


# The rules of a fair semaphore: no permit is lost or made, nobody is passed over, and whoever lives gets in.


class Rules(RuleBasedStateMachine):
    """Leases are numbers, in the order in which they came. Whoever is never heard of again is only taken out by `expire`."""

    WIDTH = 2

    def __init__(self) -> None:
        super().__init__()
        self.permits: Permits[int] = Permits(self.WIDTH)
        self.numbers = count()
        self.living: set[int] = set()
        self.were_late: set[int] = set()
        self.now = 0.0

    @rule()
    def ask(self) -> None:
        lease = next(self.numbers)
        self.living.add(lease)
        if not self.permits.enter(lease):
            assert lease in self.permits.waiting

    @rule()
    def offer(self) -> None:
        self.now += 1
        waiting = set(self.permits.waiting)
        lease = self.permits.offer(self.now)
        if lease is None:
            assert not waiting or not self.permits.free
        else:
            ahead = {other for other in waiting if other < lease} - self.were_late
            assert not ahead or lease in self.were_late

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def accept(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(sorted(self.living)))
        if self.permits.accept(lease):
            assert lease in self.permits.held

    @precondition(lambda self: self.living)
    @rule(data=st.data(), twice=st.booleans())
    def leave(self, data: st.DataObject, twice: bool) -> None:
        lease = data.draw(st.sampled_from(sorted(self.living)))
        self.living.remove(lease)
        for _ in range(1 + twice):
            self.permits.leave(lease)

    @rule(age=st.integers(0, 3))
    def expire(self, age: int) -> None:
        self.permits.expire(self.now - age)
        self.were_late |= self.permits.late

    @invariant()
    def no_permit_is_lost_or_made(self) -> None:
        permits = self.permits
        assert permits.free + len(permits.held) + len(permits.offered) == self.WIDTH
        assert permits.free >= 0

    @invariant()
    def everybody_is_in_one_place(self) -> None:
        permits = self.permits
        places = [*permits.held, *permits.waiting, *permits.offered, *permits.late]
        assert sorted(places) == sorted(self.living)

    def teardown(self) -> None:
        """Whoever lives gets in, once those before them have left."""
        admitted = set(self.permits.held)
        for _ in range(2 * len(self.living) + 2):
            while self.permits.offer(self.now) is not None:
                pass
            admitted |= {lease for lease in sorted(self.living) if self.permits.accept(lease)}
            for lease in list(self.permits.held):
                self.permits.leave(lease)
        assert admitted == self.living


TestRules = Rules.TestCase
