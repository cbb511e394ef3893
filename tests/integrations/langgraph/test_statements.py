"""How many statements a saver asks of the database."""

from collections.abc import Iterator

import pytest

from persist import Store
from persist.integrations.langgraph import PersistSaver
from tests.integrations.langgraph.scenes import checkpoint, config, messages, metadata
from tests.statement_log import seen_statements


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return seen_statements(monkeypatch)


@pytest.fixture
def store(statements: list[str], database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as store:
        yield store


def put(saver: PersistSaver, number: int) -> None:
    given = {"messages": messages(number)}
    saver.put(config(), checkpoint(f"{number:03}", given, {"messages": number}), metadata(), {"messages": number})


def kinds(statements: list[str]) -> list[str]:
    """Their first words, without those of the transaction itself."""
    words = [statement.split()[0].upper() for statement in statements]
    return [word for word in words if word in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")]


def test_a_list_that_grew_by_one_is_put_without_reading_it(store: Store, statements: list[str], database_url: str) -> None:
    saver = PersistSaver(store)
    for number in range(3, 9):
        put(saver, number)
    statements.clear()
    put(saver, 9)
    lock = ["SELECT"] if database_url.startswith("postgres") else []
    assert kinds(statements) == [*lock, *["INSERT"] * 4]
    statements.clear()
    put(PersistSaver(store), 10)
    assert sorted(kinds(statements)) == ["INSERT"] * 4 + ["SELECT"]
    statements.clear()
    saver.put_writes(config(id="010"), [("messages", 1)], "task")
    of_thread = ["INSERT"] if database_url.startswith("postgres") else []
    assert kinds(statements) == ["INSERT", *of_thread]
    statements.clear()
    found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"messages": messages(10)}
    assert kinds(statements) == ["SELECT"] * 4
