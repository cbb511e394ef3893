"""A queue of thousands is waited in and claimed from at the cost of a short one."""

from typing import Any

import pytest

from persist import Store
from tests.contract.chat.scenes import create
from tests.contract.chat.test_transcript_plans import plant
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
from tests.query_plans import Asked, plan, rows_read

MANY = 3_000


@pytest.fixture
def waiting(database_url: str, asked: list[Asked], raw: Raw, store: Any) -> str:
    """A session in which some thousand messages wait behind some thousand that do not."""
    session = create(store)
    plant(database_url, session, 2 * MANY)
    queued = "'{\"queued_at\": ' || created_at || '}'"
    json = queued if raw.is_sqlite else f"CAST({queued} AS JSONB)"
    raw.rows(f"UPDATE chat_messages SET metadata_json = {json} WHERE created_at > ?", MANY)
    raw.rows("ANALYZE" if not raw.is_sqlite else "SELECT 1")
    return session


@on_one_face
def test_no_statement_reads_the_queue(waiting: str, database_url: str, asked: list[Asked]) -> None:
    with Store.open(database_url) as store:
        store.chat.messages.claim_queued(waiting)  # the newest message that is shown stands behind all that wait from now on
        asked.clear()
        last = store.chat.messages.enqueue(waiting, parts=[{"type": "text", "text": "late"}])
        claimed = store.chat.messages.claim_queued(waiting)
        assert claimed is not None
        assert claimed.id == f"m{MANY + 2}"
        assert len(asked) > 5
        for statement in asked:
            if database_url.startswith("sqlite"):
                steps = " ".join(plan(database_url, statement))
                assert "ix_chat_parts_session_id" not in steps, statement
                assert "IS NOT NULL" not in statement[0] or "ix_chat_messages_in_line" in steps, statement
            else:
                assert rows_read(database_url, statement) <= 20, (statement, plan(database_url, statement))
        assert last.metadata["queued_at"] > 2 * MANY
        assert store.chat.messages.queued(waiting)[-1] == last


def test_what_other_programs_wrote_there_has_a_place(store: Any, raw: Raw) -> None:
    session = create(store)
    stamps = {"a": "2.5", "b": '"soon"', "c": "2", "d": "-1", "e": "1e300", "g": "2"}
    with store.begin() as tx:
        for id in stamps:
            tx.chat.messages.enqueue(session, parts=[{"type": "text", "text": id}], id=id)
    for id, stamp in stamps.items():
        raw.rows(f"UPDATE chat_messages SET metadata_json = '{{\"queued_at\": {stamp}}}' WHERE id = '{id}'")
    with store.begin() as tx:
        late = tx.chat.messages.enqueue(session, parts=[{"type": "text", "text": "late"}], id="late")
        assert late.metadata["queued_at"] < 2**53
        order = ["b", "d", "c", "g", "a", "late", "e"]
        assert [message.id for message in tx.chat.messages.queued(session)] == order
        assert [tx.chat.messages.claim_queued(session).id for _ in order] == order
        assert tx.chat.messages.claim_queued(session) is None
