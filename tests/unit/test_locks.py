"""The writer lock: first come, first served; never twice by one owner; and nobody waits for ever."""

import threading
import time
from collections.abc import Callable

import pytest

from persist.db.concurrency import writer_lock as locks
from persist.db.concurrency.writer_lock import Cancelled, WriterLock
from persist.errors import StoreBusy, TransactionOpen


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

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
