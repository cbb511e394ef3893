"""Who is inside of a transaction: by contexts, by calls that go on, by event loops; and that nothing of it goes stale."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import Context, copy_context
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist import Store, TransactionOpen, WrongOwner
from persist.db.concurrency.ownership import Mark, Owner, forget_ended, inside
from persist.db.transactions import runtime
from persist.store.transaction import Transaction

ENOUGH = 60.0


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as store:
        yield store


@contextmanager
def unit_of_work(store: Store) -> Iterator[Transaction]:
    """As hosts write it: the call that entered the block rests while it is used."""
    with store.begin() as tx:
        yield tx


@pytest.mark.parametrize("enter", [Store.begin, unit_of_work], ids=["the block", "a function around it"])
def test_one_inside_the_other_does_not_wait_for_itself(
    store: Store, enter: Callable[[Store], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_HANDOVER_TIMEOUT", 0.01)
    with enter(store) as tx:
        for inner in (Store.begin, unit_of_work):
            with pytest.raises(TransactionOpen), inner(store):
                raise AssertionError("entered")
        tx.chat.prompts.put("the outer one goes on")
    with enter(store) as tx:
        tx.chat.prompts.put("and so does the store")


def test_a_thread_that_lent_it_out_still_cannot_begin_another_inside_of_it(store: Store) -> None:
    with store.begin() as tx:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(tx.chat.prompts.put, "elsewhere").result(ENOUGH)
        with pytest.raises(TransactionOpen), store.begin():
            raise AssertionError("entered")


def test_what_a_transaction_starts_in_a_thread_is_inside_of_it(store: Store) -> None:
    async def main() -> None:
        with store.begin() as tx:
            with pytest.raises(TransactionOpen):
                await asyncio.to_thread(store.begin().__enter__)
            await asyncio.to_thread(tx.chat.prompts.put, "by its own")

    asyncio.run(main())


def test_tasks_of_a_loop_do_not_stop_it_by_waiting_for_each_other(store: Store, backend: str) -> None:
    """The synchronous face on an event loop: where one waits, all of them would."""

    async def main() -> None:
        begun, over = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            with store.begin() as tx:
                begun.set()
                await over.wait()
                tx.chat.prompts.put("first")

        task = asyncio.create_task(first())
        await begun.wait()
        if backend == "sqlite":
            with pytest.raises(TransactionOpen), store.begin():
                raise AssertionError("entered")
        else:
            with store.begin() as tx:
                tx.chat.prompts.put("second")
        over.set()
        await task
        with store.begin() as tx:
            tx.chat.prompts.put("third")

    asyncio.run(asyncio.wait_for(main(), ENOUGH))


def test_one_in_memory_is_handed_on_too() -> None:
    with Store.open("sqlite:///:memory:") as store, ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        for open_ in (store.begin, store.read):
            block = open_()
            tx = one.submit(block.__enter__).result(ENOUGH)
            two.submit(tx.chat.sessions.list).result(ENOUGH)
            with pytest.raises(TransactionOpen):
                two.submit(store.read().__enter__).result(ENOUGH)
            later = one.submit(open_().__enter__)
            two.submit(block.__exit__, None, None, None).result(ENOUGH)
            assert later.result(ENOUGH).chat.sessions.list().items == []
            one.submit(later.result()._work.rollback).result(ENOUGH)


def test_threads_that_use_one_at_will_are_refused_or_served_whole(store: Store) -> None:
    """Whatever was not refused is there."""
    written: dict[str, str] = {}
    start = threading.Barrier(6)

    def work(tx: Transaction, number: int) -> None:
        start.wait(ENOUGH)
        for turn in range(40):
            text = f"{number} {turn}"
            try:
                written[text] = tx.chat.prompts.put(text)
            except WrongOwner:
                continue

    with store.begin() as tx, ExitStack() as stack:
        for number in range(6):
            thread = threading.Thread(target=work, args=(tx, number))
            thread.start()
            stack.callback(thread.join, ENOUGH)
    with store.read() as tx:
        assert {text: tx.chat.prompts.get(digest) for text, digest in written.items()} == {text: text for text in written}


STEPS = st.lists(st.tuples(st.sampled_from(["begin", "use", "start", "end"]), st.integers(0, 3), st.integers(0, 3)), max_size=40)


@given(STEPS)
def test_inside_is_who_took_it_up_last_and_whom_they_started(steps: list[tuple[str, int, int]]) -> None:
    """Contexts against a model that knows for each transaction who has it, and for each context whom it acts for."""
    contexts: list[Context] = [copy_context() for _ in range(4)]
    known: list[dict[Owner, object]] = [{} for _ in range(4)]
    holder: dict[Owner, object] = {}
    owners: list[Owner] = []
    for step, here, which in steps:
        if step == "start":  # a task or thread of `which` begins to act for `here`
            contexts[which], known[which] = contexts[here].copy(), dict(known[here])
        elif step == "begin":
            owner = Owner()
            owners.append(owner)
            contexts[here].run(owner.set_holder)
            holder[owner] = known[here][owner] = object()
        elif owners and (owner := owners[which % len(owners)]) in holder:
            if step == "use":
                contexts[here].run(owner.set_holder)
                holder[owner] = known[here].setdefault(owner, object())
            else:
                owner.end()
                del holder[owner]
                contexts[here].run(forget_ended)
        for context, knows in zip(contexts, known, strict=True):
            found: Mark | None = context.run(inside, set(holder))
            expected = [owner for owner in holder if knows.get(owner) is holder[owner]]
            assert (found.owner in expected) if found else not expected
