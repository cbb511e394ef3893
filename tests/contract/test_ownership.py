"""Whose a transaction is: of one thread or task at a time, whichever began it, whichever ends it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from persist.errors import Closed, StoreInUse, TransactionOpen, WrongOwner
from tests.contract.chat.scenes import MODEL, create
from tests.contract.faces import every_way

pytestmark = every_way

ENOUGH = 60.0


class HeldClock:
    """A clock that lets a verb wait in the middle, while it is armed."""

    def __init__(self) -> None:
        self.armed = False
        self.inside, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> datetime:
        if self.armed:
            self.armed = False
            self.inside.set()
            assert self.go_on.wait(ENOUGH)
        return datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def held() -> HeldClock:
    return HeldClock()


@pytest.fixture
def slow(open_store: Callable[..., Any], held: HeldClock) -> Any:
    return open_store(clock=held)


def elsewhere(function: Callable[[], Any]) -> Any:
    """What it gives, or raises, in a thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result(ENOUGH)


def agents(store: Any) -> list[str]:
    with store.read() as tx:
        return sorted(session.agent for session in tx.chat.sessions.list(limit=100).items)


def test_it_is_used_by_one_thread_after_the_other(store: Any) -> None:
    for open_ in (store.begin, store.read):
        with open_() as tx:
            assert elsewhere(tx.chat.sessions.list).items == []
            assert tx.chat.sessions.list().items == []
            assert elsewhere(tx.chat.sessions.list).items == []


def test_it_is_begun_used_and_ended_by_three_threads(store: Any) -> None:
    for number, error in enumerate((None, ZeroDivisionError)):
        block = store.begin()
        tx = elsewhere(block.__enter__)
        elsewhere(partial(tx.chat.sessions.create, agent=f"agent {number}", model=MODEL))
        elsewhere(partial(block.__exit__, error, error and error(), None))
        with pytest.raises(Closed):
            elsewhere(tx.chat.sessions.list)
    assert agents(store) == ["agent 0"]
    create(store)
    store.close()


def test_two_at_the_same_time_are_refused_and_nothing_is_lost(slow: Any, held: HeldClock) -> None:
    with ThreadPoolExecutor(1) as thread:
        with slow.begin() as tx:
            held.armed = True
            using = thread.submit(tx.chat.sessions.create, agent="first", model=MODEL)
            assert held.inside.wait(ENOUGH)
            with ThreadPoolExecutor(1) as other, pytest.raises(WrongOwner):
                other.submit(tx.chat.sessions.create, agent="refused", model=MODEL).result(ENOUGH)
            held.go_on.set()
            using.result(ENOUGH)
            elsewhere(lambda: tx.chat.sessions.create(agent="second", model=MODEL))
        assert agents(slow) == ["first", "second"]


def test_its_end_waits_for_the_verb_that_somebody_is_inside_of(slow: Any, held: HeldClock) -> None:
    with ThreadPoolExecutor(2) as threads:
        block = slow.begin()
        tx = block.__enter__()
        held.armed = True
        using = threads.submit(tx.chat.sessions.create, agent="kept", model=MODEL)
        assert held.inside.wait(ENOUGH)
        ending = threads.submit(block.__exit__, None, None, None)
        held.go_on.set()
        ending.result(ENOUGH)
        using.result(ENOUGH)
    assert agents(slow) == ["kept"]


def test_a_thread_begins_the_next_when_another_has_taken_up_its_first(store: Any) -> None:
    """As the threads of a web framework's pool do."""
    first, second = store.begin(), store.begin()
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        tx = one.submit(first.__enter__).result(ENOUGH)
        two.submit(tx.chat.sessions.create, agent="first", model=MODEL).result(ENOUGH)
        begun = one.submit(second.__enter__)
        two.submit(first.__exit__, None, None, None).result(ENOUGH)
        tx = begun.result(ENOUGH)
        one.submit(tx.chat.sessions.create, agent="second", model=MODEL).result(ENOUGH)
        with pytest.raises(TransactionOpen):
            one.submit(store.begin().__enter__).result(ENOUGH)
        two.submit(tx.chat.sessions.list).result(ENOUGH)
        two.submit(second.__exit__, None, None, None).result(ENOUGH)
        one.submit(create, store).result(ENOUGH)
    assert agents(store) == ["build", "first", "second"]


def test_whoever_takes_it_up_cannot_begin_another_inside_of_it(store: Any) -> None:
    block = store.begin()
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        tx = one.submit(block.__enter__).result(ENOUGH)
        two.submit(tx.chat.sessions.create, agent="first", model=MODEL).result(ENOUGH)
        with pytest.raises(TransactionOpen):
            two.submit(store.begin().__enter__).result(ENOUGH)
        with pytest.raises(TransactionOpen):
            two.submit(store.transact, lambda inner: None).result(ENOUGH)
        one.submit(block.__exit__, None, None, None).result(ENOUGH)
        two.submit(create, store).result(ENOUGH)
    assert agents(store) == ["build", "first"]


def test_an_open_transaction_keeps_the_store_open_whoever_has_it(store: Any) -> None:
    block = store.begin()
    elsewhere(block.__enter__)
    with pytest.raises(StoreInUse):
        store.close()
    elsewhere(lambda: block.__exit__(None, None, None))
    store.close()
