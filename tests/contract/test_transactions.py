"""Transactions: all or nothing, refused where they could only fail, and never silently something else."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import Closed, Conflict, InvalidValue, NotFound, StoreInUse, TransactionAborted, TransactionOpen
from tests.contract.chat.scenes import MODEL, create, say, shown, text, words
from tests.contract.faces import every_way

pytestmark = every_way

HI = [{"type": "text", "text": "hi"}]


def count(store: Any) -> int:
    with store.read() as tx:
        return len(tx.chat.sessions.list(limit=100).items)


def elsewhere(function: Any) -> BaseException | None:
    """Run it in another thread -> what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    return raised[0] if raised else None


def test_a_clean_exit_commits_and_an_error_rolls_back(store: Any) -> None:
    with store.begin() as tx:
        tx.chat.sessions.create(agent="kept", model=MODEL)

    def fail() -> None:
        with store.begin() as tx:
            tx.chat.sessions.create(agent="lost", model=MODEL)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.read() as tx:
        assert [session.agent for session in tx.chat.sessions.list().items] == ["kept"]


def test_a_transaction_sees_its_own_writes_and_nobody_else_does(store: Any) -> None:
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="build", model=MODEL)
        tx.chat.messages.append(session.id, role="user", parts=HI)
        assert len(tx.chat.messages.list(session.id)) == 1
        assert count(store) == 0
    assert count(store) == 1


def test_a_read_is_one_snapshot(store: Any, open_store: Any, session_id: str) -> None:
    other = open_store()
    with store.read() as tx:
        assert tx.chat.messages.list(session_id) == []
        say(other, session_id, "meanwhile")
        assert tx.chat.messages.list(session_id) == []
    assert len(shown(store, session_id)) == 1


@pytest.fixture
def session_id(store: Any) -> str:
    return create(store)


def test_a_begin_inside_a_begin_is_refused_at_once(store: Any) -> None:
    with store.begin() as tx:
        tx.chat.sessions.create(agent="outer", model=MODEL)
        with pytest.raises(TransactionOpen), store.begin():
            raise AssertionError("entered")
        with pytest.raises(TransactionOpen):
            store.transact(lambda inner: None)
    assert count(store) == 1


def test_feeding_inside_a_begin_is_refused_and_loses_nothing(store: Any, session_id: str) -> None:
    with store.record(session_id) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        with store.begin() as tx:
            with pytest.raises(TransactionOpen):
                recorder.feed({"type": "text-delta", "id": "t", "delta": "x"})
            with pytest.raises(TransactionOpen):
                recorder.flush()
            tx.chat.messages.append(session_id, role="user", parts=HI)
        recorder.feed({"type": "text-delta", "id": "t", "delta": "x"})
    assert words(shown(store, session_id)) == ["x", "hi"]


def test_recording_is_not_begun_inside_a_begin(store: Any, session_id: str) -> None:
    with store.begin(), pytest.raises(TransactionOpen), store.record(session_id):
        raise AssertionError("entered")


def test_a_read_inside_a_begin_sees_the_last_commit(store: Any, session_id: str) -> None:
    with store.begin() as tx:
        tx.chat.messages.append(session_id, role="user", parts=HI)
        assert shown(store, session_id) == []


def test_feeding_inside_a_read_is_fine(store: Any, session_id: str) -> None:
    with store.record(session_id) as recorder, store.read() as tx:
        recorder.feed_many(text("x"))
        assert tx.chat.messages.list(session_id) in ([], shown(store, session_id))
    assert words(shown(store, session_id)) == ["x"]


def test_a_transaction_ends_with_its_block(store: Any) -> None:
    for open_ in (store.begin, store.read):
        with open_() as tx:
            pass
        with pytest.raises(Closed):
            tx.chat.sessions.list()


def test_a_refused_verb_leaves_the_transaction_usable(store: Any) -> None:
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="build", model=MODEL).id
        attempts: list[tuple[Callable[[], Any], type[Exception]]] = [
            (lambda: tx.chat.sessions.create(agent="", model=MODEL), InvalidValue),
            (lambda: tx.chat.sessions.get("nowhere"), NotFound),
            (lambda: tx.chat.sessions.delete("nowhere"), NotFound),
            (lambda: tx.chat.sessions.archive("nowhere"), NotFound),
            (lambda: tx.chat.messages.append("nowhere", role="user", parts=HI), NotFound),
            (lambda: tx.chat.messages.append(session, role="user", parts=[{}]), InvalidValue),
            (lambda: tx.chat.messages.record_step_usage("nowhere", 0, input_tokens=1, output_tokens=1), NotFound),
            (lambda: tx.chat.sessions.rewind(session, "nowhere"), NotFound),
            (lambda: tx.chat.sessions.fork(session, "nowhere"), NotFound),
        ]
        for attempt, error in attempts:
            with pytest.raises(error):
                attempt()
            tx.chat.messages.append(session, role="user", parts=HI)
    assert len(shown(store, session)) == 9


def test_an_error_after_a_write_dooms_the_transaction(store: Any) -> None:
    session = create(store)
    with store.begin() as tx:
        taken = tx.chat.messages.append(session, role="user", parts=[]).id

    def doomed() -> None:
        with store.begin() as tx:
            lost = tx.chat.sessions.create(agent="lost", model=MODEL).id
            with pytest.raises(Conflict):
                tx.chat.messages.append(session, role="user", parts=HI, id=taken)
            with pytest.raises(TransactionAborted):
                tx.chat.sessions.get(lost)
            with pytest.raises(TransactionAborted):
                tx.chat.sessions.create(agent="build", model=MODEL)

    with pytest.raises(TransactionAborted):
        doomed()
    assert count(store) == 1


def test_the_error_itself_leaves_the_block_of_a_doomed_transaction(store: Any) -> None:
    taken = create(store)
    with pytest.raises(Conflict), store.begin() as tx:
        tx.chat.sessions.create(agent="build", model=MODEL, id=taken)
    assert count(store) == 1


def test_a_closed_store_serves_nobody(store: Any) -> None:
    session = create(store)
    store.close()
    store.close()
    for use in (store.begin, store.read):
        with pytest.raises(Closed), use():
            raise AssertionError("entered")
    with pytest.raises(Closed), store.record(session):
        raise AssertionError("entered")


def test_a_store_in_use_is_not_closed(store: Any) -> None:
    for open_ in (store.begin, store.read):
        with open_() as tx:
            assert isinstance(elsewhere(store.close), StoreInUse)
            tx.chat.sessions.list()
    store.close()
