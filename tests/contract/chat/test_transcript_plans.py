"""Messages of a long session are found at the cost of those of a short one: the newest, and the one of a delivery."""

from contextlib import closing
from typing import Any

import pytest

from persist import Store
from tests.contract.chat.posts import user
from tests.contract.chat.scenes import create, shown
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
from tests.query_plans import Asked, plan, rows_read, scans, steps_of_connections

PAGE = 20
MANY = 10_000
MORE_THAN_PARAMETERS = {"sqlite": 33_000, "postgres": 66_000}


def plant(url: str, session: str, count: int) -> None:
    """So many messages with a part each, a millisecond apart."""
    with closing(Raw(url)) as raw:
        series = "generate_series(1, ?) AS s(n)"
        if raw.is_sqlite:
            series = "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < ?) SELECT n FROM s) AS s"
        for columns, values, table in (
            ("id, session_id, role, created_at, updated_at, metadata_json", "'m' || n, ?, 'user', n, n, '{}'", "chat_messages"),
            (
                'id, message_id, session_id, "index", type, created_at, updated_at, data_json',
                "'p' || n, 'm' || n, ?, 0, 'text', n, n, '{\"type\": \"text\", \"text\": \"x\"}'",
                "chat_parts",
            ),
        ):
            raw.rows(f"INSERT INTO {table} ({columns}) SELECT {values} FROM {series}", session, count)
        raw.rows("ANALYZE")


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("before", [None, "m5000"])
def test_a_server_reads_no_more_rows_of_a_longer_session(database_url: str, asked: list[Asked], before: str | None) -> None:
    with Store.open(database_url) as store:
        session = create(store)
        plant(database_url, session, MANY)
        asked.clear()
        found = shown(store, session, limit=PAGE, before=before)
        last = MANY if before is None else 4_999
        assert [message["id"] for message in found] == [f"m{number}" for number in range(last - PAGE + 1, last + 1)]
        assert len(asked) <= 4
        for statement in asked:
            assert rows_read(database_url, statement) <= 2 * PAGE, plan(database_url, statement)


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("before", [None, "m100"])
def test_a_file_is_read_along_its_index(database_url: str, asked: list[Asked], before: str | None) -> None:
    with Store.open(database_url) as store:
        session = create(store)
        plant(database_url, session, 200)
        asked.clear()
        assert len(shown(store, session, limit=PAGE, before=before)) == PAGE
        assert len(asked) <= 4
        assert [step for statement in asked for step in scans(database_url, statement)] == []


@on_one_face
def test_a_page_may_be_longer_than_a_statement_has_parameters(store: Any, backend: str, database_url: str, session: str) -> None:
    count = MORE_THAN_PARAMETERS[backend]
    plant(database_url, session, count)
    found = shown(store, session, limit=count - 1)
    assert (len(found), found[0]["id"]) == (count - 1, "m2")
    assert all(message["parts"] for message in found)
    assert len(shown(store, session, before=f"m{count}")) == count - 1


def test_pages_are_full_whatever_is_hidden_between(store: Any, raw: Raw, database_url: str, session: str) -> None:
    plant(database_url, session, 200)
    raw.rows("UPDATE chat_messages SET metadata_json = '{\"hidden_at\": 1}' WHERE created_at BETWEEN 50 AND 190")
    raw.rows("UPDATE chat_messages SET metadata_json = '{\"queued_at\": 1}' WHERE created_at IN (192, 193)")
    for limit in (0, 1, 8, 9, 20, 60, 500):
        everything = shown(store, session)
        assert shown(store, session, limit=limit) == (everything[-limit:] if limit else [])
        assert len(shown(store, session, limit=limit, include_hidden=True)) == min(limit, 198)
    assert [message["id"] for message in shown(store, session, limit=2, before="m195")] == ["m191", "m194"]


def test_a_delivery_is_found_by_its_own_index(asked: list[Asked], store: Any, raw: Raw, database_url: str, session: str) -> None:
    """Every message of a long session may have come by one."""
    plant(database_url, session, 5000)
    told = '\'{"trigger": {"delivery_id": "d\' || created_at || \'"}}\''
    raw.rows(f"UPDATE chat_messages SET metadata_json = {told if raw.is_sqlite else f'CAST({told} AS JSONB)'}")
    raw.rows("ANALYZE")
    asked.clear()
    again = store.chat.messages.enqueue(session, parts=[], metadata={"trigger": {"delivery_id": "d2500"}})
    assert again.id == "m2500"
    (look,) = [statement for statement in asked if "delivery_id" in statement[0]]
    if raw.is_sqlite:
        (step,) = plan(database_url, look)
        assert step.endswith("USING INDEX ix_chat_messages_delivery (session_id=? AND <expr>=?)")
    else:
        assert rows_read(database_url, look) == 1, plan(database_url, look)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_each_of_many_new_questions_costs_the_same(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = steps_of_connections(monkeypatch)
    cost = {}
    with Store.open(database_url) as store:
        for count in (100, 800):
            session = create(store)
            questions = [
                user(f"{session}-{number:04}", "hello") for number in range(count)
            ]  # they share an instant: ids tell the order
            before = taken[0]
            assert store.chat.messages.sync(session, questions).added == [question["id"] for question in questions]
            cost[count] = taken[0] - before
            assert shown(store, session) == questions
    assert cost[800] < 8 * cost[100] * 1.25
