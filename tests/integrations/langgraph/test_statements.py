"""What a saver asks of the database, and transactions whose statements are sent together."""

from collections.abc import Iterator
from typing import Any

import pytest

from persist.checkpoints.schemas import Blob, Write
from persist.db.batched import BatchedWork
from persist.errors import Conflict, InvalidValue
from persist.integrations.langgraph import PersistSaver
from persist.store import Store
from persist.transaction import Transaction, TransactionBlock
from tests.integrations.langgraph.scenes import checkpoint, config, messages, metadata
from tests.statements import seen_statements

HEAD = Blob("head", b"")


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return seen_statements(monkeypatch)


@pytest.fixture
def store(statements: list[str], database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as store:
        yield store


def batch(store: Store) -> TransactionBlock:
    return TransactionBlock(store.runtime, writable=True, kind=BatchedWork)


def put(saver: PersistSaver, number: int) -> None:
    given = {"messages": messages(number)}
    saver.put(config(), checkpoint(f"{number:03}", given, {"messages": number}), metadata(), {"messages": number})


def kinds(statements: list[str]) -> list[str]:
    """Their first words, without those of the transaction itself."""
    words = [statement.split()[0].upper() for statement in statements]
    return [word for word in words if word in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")]


def test_a_list_that_grew_by_one_is_put_with_five_statements(store: Store, statements: list[str]) -> None:
    saver = PersistSaver(store)
    for number in range(3, 9):
        put(saver, number)
    statements.clear()
    put(saver, 9)
    assert sorted(kinds(statements)) == ["INSERT"] * 4 + ["SELECT"]
    statements.clear()
    saver.put_writes(config(id="009"), [("messages", 1)], "task")
    assert kinds(statements) == ["INSERT"] * 2
    statements.clear()
    found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"messages": messages(9)}
    assert kinds(statements) == ["SELECT"] * 4


def test_a_refused_statement_is_one_error_and_nothing_is_written(store: Store) -> None:
    def refused() -> None:
        with batch(store) as tx:
            states = tx.checkpoints.states
            states.put("t", "1", head=HEAD)
            states.put_writes("t", "1", [Write(2**70, "c", HEAD)], task_id="task")
            states.put_writes("t", "1", [Write(0, "c", HEAD)], task_id="task")

    with pytest.raises((Conflict, InvalidValue)):
        refused()
    with store.read() as tx:
        assert tx.checkpoints.states.page() == []
    PersistSaver(store).put(config(), checkpoint("1"), metadata(), {})
    with store.begin() as tx:
        assert tx.checkpoints.threads.delete("t")


def test_an_error_of_the_caller_rolls_everything_back(store: Store) -> None:
    def broken() -> None:
        with batch(store) as tx:
            tx.checkpoints.states.put("t", "1", head=HEAD)
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    with store.read() as tx:
        assert tx.checkpoints.states.page() == []


def test_a_verb_that_counts_rows_counts_them(store: Store) -> None:
    with batch(store) as tx:
        tx.checkpoints.states.put("t", "1", head=HEAD)
        counted = [tx.checkpoints.threads.delete(name) for name in ("t", "t", "u")]
    assert counted == [True, False, False]


def test_what_was_put_is_there_for_the_next_transaction(store: Store) -> None:
    def seen(tx: Transaction) -> Any:
        return [found.id for found in tx.checkpoints.states.page()]

    with batch(store) as tx:
        tx.checkpoints.states.put("t", "1", head=HEAD)
        assert seen(tx) == ["1"]
    with TransactionBlock(store.runtime, writable=False, kind=BatchedWork) as tx:
        assert seen(tx) == ["1"]
    with store.read() as tx:
        assert seen(tx) == ["1"]
