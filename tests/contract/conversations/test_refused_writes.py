"""A refused verb writes nothing, and its transaction goes on: on Postgres too, where its statements travel together."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from persist.errors import Conflict, NotFound
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MESSAGE = {"id": "m", "created_at": 1.0, "content": "said", "role": "user"}
TABLES = ("messages", "progressions", "progression_members", "sessions", "branches", "status_transitions", "exchange_items")

REFUSED: dict[str, tuple[type[Exception], Callable[[Any], Any]]] = {
    "record": (NotFound, lambda c: c.messages.record("none", MESSAGE)),
    "put_many session": (NotFound, lambda c: c.messages.put_many([MESSAGE], session_id="none")),
    "put_many progression": (NotFound, lambda c: c.messages.put_many([MESSAGE], progression_ids=["none"], session_id="s")),
    "delete a named message": (Conflict, lambda c: c.messages.delete("named")),
    "create with a progression": (Conflict, lambda c: c.sessions.create(status="running", progression_id="none")),
    "create with a message": (Conflict, lambda c: c.sessions.create(first_msg_id="none")),
    "update": (NotFound, lambda c: c.sessions.update("none", name="n")),
    "update with a message": (Conflict, lambda c: c.sessions.update("s", status="failed", last_msg_id="none")),
    "touch": (NotFound, lambda c: c.sessions.touch("none", NOW)),
    "status of a session": (NotFound, lambda c: c.sessions.set_status("none", "failed")),
    "branch of no session": (NotFound, lambda c: c.branches.create("none", status="running")),
    "branch of no message": (Conflict, lambda c: c.branches.create("s", system_msg_id="none")),
    "branch of no progression": (Conflict, lambda c: c.branches.create("s", progression_id="none")),
    "branch of another session": (Conflict, lambda c: c.branches.create("other", id="b")),
    "fork": (NotFound, lambda c: c.branches.fork("none")),
    "fork of another": (Conflict, lambda c: c.branches.fork("b", new_id="b2")),
    "update a branch": (NotFound, lambda c: c.branches.update("none", name="n")),
    "metadata of a branch": (NotFound, lambda c: c.branches.update_metadata("none", {})),
    "system message": (Conflict, lambda c: c.branches.set_system_message("b", "none")),
    "status of a branch": (NotFound, lambda c: c.branches.set_status("none", "failed")),
    "send": (NotFound, lambda c: c.exchange.send(sender="a", recipient="b", content=1, session_id="none")),
    "post what was sent": (Conflict, lambda c: c.exchange.post({**MESSAGE, "id": "sent", "sender": "c", "recipient": "b"})),
}


@pytest.fixture(autouse=True)
def scene(store: Any) -> None:
    with store.begin() as tx:
        c = tx.conversations
        for id in ("s", "other"):
            c.sessions.create(id=id)
        for id in ("b", "b2"):
            c.branches.create("s", id=id)
        c.messages.record("b", {**MESSAGE, "id": "named"})
        c.exchange.send(sender="a", recipient="b", content=1, id="sent")


@on_one_face
@each("name", REFUSED)
def test_a_refused_verb_writes_nothing_and_the_transaction_goes_on(store: Any, raw: Raw, name: str) -> None:
    error, verb = REFUSED[name]
    before = {table: raw.count(table) for table in TABLES}
    with store.begin() as tx:
        with pytest.raises(error):
            verb(tx.conversations)
        tx.conversations.messages.put({**MESSAGE, "id": f"after {name}"})
    after = {table: raw.count(table) for table in TABLES}
    assert after == {**before, "messages": before["messages"] + 1}
    with pytest.raises(error):
        verb(store.conversations)  # in a transaction of its own
    assert {table: raw.count(table) for table in TABLES} == after
