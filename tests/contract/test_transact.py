"""store.transact: a whole transaction, replayed where trying again can help."""

from typing import Any

import pytest

from persist.errors import InvalidValue, NotFound, StoreBusy
from persist.settings import Settings
from tests.contract.chat.scenes import MODEL, create, shown, text, words
from tests.contract.faces import every_way

pytestmark = every_way


def count(store: Any) -> int:
    with store.read() as tx:
        return len(tx.chat.sessions.list(limit=100).items)


def test_transact_gives_what_the_function_returns(store: Any) -> None:
    session = store.transact(lambda tx: tx.chat.sessions.create(agent="build", model=MODEL))
    assert count(store) == 1
    with store.read() as tx:
        assert tx.chat.sessions.get(session.id) == session


def test_transact_replays_the_whole_function_on_contention(open_store: Any) -> None:
    store = open_store(sleep=lambda seconds: None)
    tries = []

    def contended(tx: Any) -> str:
        session = tx.chat.sessions.create(agent="build", model=MODEL)
        tries.append(session.id)
        if len(tries) < 3:
            raise StoreBusy(0.0)
        return str(session.id)

    assert store.transact(contended) == tries[-1]
    assert len(tries) == 3
    with store.read() as tx:
        assert [session.id for session in tx.chat.sessions.list().items] == tries[-1:]


def test_transact_gives_up_after_its_attempts(open_store: Any) -> None:
    store = open_store(sleep=lambda seconds: None)
    tries = []

    def busy(tx: Any) -> None:
        tries.append(tx)
        raise StoreBusy(0.0)

    with pytest.raises(StoreBusy):
        store.transact(busy, attempts=2)
    assert len(tries) == 2
    with pytest.raises(InvalidValue):
        store.transact(busy, attempts=0)


def test_transact_does_not_replay_any_other_error(store: Any) -> None:
    tries = []

    def wrong(tx: Any) -> None:
        tries.append(tx.chat.sessions.create(agent="build", model=MODEL))
        raise NotFound("thing", "x")

    with pytest.raises(NotFound):
        store.transact(wrong)
    assert (len(tries), count(store)) == (1, 0)


@pytest.fixture
def impatient(sqlite_url: str, face: str, open_store: Any) -> Any:
    """A store on a SQLite file that gives up at once."""
    return open_store(url=sqlite_url, settings=Settings(busy_timeout_ms=1), sleep=lambda seconds: None)


def test_a_file_that_another_process_is_writing_is_busy(impatient: Any, sqlite_url: str, open_raw: Any) -> None:
    writer = open_raw(sqlite_url)
    writer.rows("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy), impatient.begin():
        raise AssertionError("entered")
    assert count(impatient) == 0  # reading never waits
    writer.rows("COMMIT")
    create(impatient)


@pytest.mark.parametrize("chunk", text("piece"), ids=lambda chunk: chunk["type"])
def test_a_chunk_that_found_the_file_busy_can_be_fed_again(impatient: Any, sqlite_url: str, open_raw: Any, chunk: Any) -> None:
    session, writer = create(impatient), open_raw(sqlite_url)
    with impatient.record(session) as recorder:
        for each in [*text("piece"), {"type": "finish"}]:
            if each == chunk:
                writer.rows("BEGIN IMMEDIATE")
                for _ in range(2):
                    with pytest.raises(StoreBusy):
                        recorder.feed(each)
                with pytest.raises(StoreBusy):
                    recorder.feed_many([each, {"type": "start-step"}])
                writer.rows("COMMIT")
            recorder.feed(each)
    assert shown(impatient, session)[0]["parts"] == [{"type": "text", "text": "piece", "state": "done"}]
    assert words(shown(impatient, session)) == ["piece"]
