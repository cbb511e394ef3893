"""Who did it: the actor of a transaction is in its events, wherever they are read."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from persist import Settings, Store
from persist.errors import InvalidValue, PayloadTooLarge
from persist.maintenance import copy, erase
from tests.cases import each

MARIA = "maria@example.org"


@pytest.fixture
def logging(store: Any) -> Any:
    store.switch_events(True)
    return store


@pytest.mark.every_way
def test_the_actor_of_a_transaction_is_in_all_its_events(logging: Any) -> None:
    with logging.begin(actor=MARIA) as tx:
        session = tx.chat.sessions.create(agent="build", model={})
        tx.events.append("audit", "access.granted", {"to": "x"})
    with logging.begin() as tx:
        tx.chat.sessions.archive(session.id)
    if isinstance(logging, Store):
        logging.transact(lambda tx: tx.chat.sessions.unarchive(session.id), actor=MARIA)
        assert logging.events.read(session.id, after=2)[0].actor == MARIA
    logging.events.append("audit", "access.noted", {})
    with logging.read() as tx:
        found = [(event.type, event.actor) for event in tx.events.read("*") if event.stream_id in (session.id, "audit")]
        of_stream = [event.actor for event in tx.events.read(session.id)]
    done = {("session.created", MARIA), ("access.granted", MARIA), ("session.archived", None), ("access.noted", None)}
    assert done <= set(found)
    assert of_stream[:2] == [MARIA, None]
    batch = logging.events.consumers.next("outbox", limit=1000, lease=timedelta(minutes=1))
    assert [event.actor for event in batch.events if event.stream_id == session.id][:2] == [MARIA, None]


@each("actor", ["", 7, "é" * 301, "a\x00b", b"maria"])
@pytest.mark.every_way
def test_an_actor_is_a_label(logging: Any, actor: Any) -> None:
    before = logging.events.read("*")
    with pytest.raises((InvalidValue, PayloadTooLarge), match="actor"), logging.begin(actor=actor) as tx:
        tx.chat.sessions.create(agent="build", model={}, id="s")
    assert logging.events.read("*") == before


def test_a_store_has_an_actor_for_what_says_none(database_url: str) -> None:
    """Also for recorders, whose text deltas the database would log by itself without an actor, and in a host's transaction."""
    with Store.open(database_url, events=True, settings=Settings(actor="the night shift")) as store:
        told: list[Any] = []
        store.on_commit(told.extend)
        session = store.chat.sessions.create(agent="build", model={})
        with store.record(session.id) as recorder:
            recorder.feed({"type": "text-start", "id": "t"})
            recorder.feed({"type": "text-delta", "id": "t", "delta": "durable"})
        with store.begin(actor=MARIA) as tx:
            tx.chat.sessions.archive(session.id)
        actors = [event.actor for event in store.events.read(session.id)]
        assert set(actors[:-1]) == {"the night shift"}
        assert actors[-1] == MARIA
        assert {event.actor for event in told} == {"the night shift", MARIA}
        assert [event.actor for event in store.watch(session.id, timeout=0)] == actors
    for actor in ("é" * 301, "a\x00b", "\ud800"):
        with pytest.raises(InvalidValue, match="actor"):
            Settings(actor=actor)


def test_an_actor_goes_with_the_person_and_is_copied_otherwise(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("persist.events.erasing.SOME", 1)  # so that several steps are needed
    with Store.open(database_url, events=True) as store, Store.open(f"sqlite:///{(tmp_path / 'c.db').as_posix()}") as target:
        with store.begin(actor=MARIA) as tx:
            mine = tx.chat.sessions.create(agent="build", model={}, owner=MARIA).id
            theirs = tx.chat.sessions.create(agent="build", model={}, owner="peter").id
        with store.begin(actor="peter") as tx:
            tx.chat.sessions.archive(mine)
            tx.chat.sessions.archive(theirs)
        copy(store, target)
        assert [event.actor for event in target.events.read(theirs)] == [MARIA, "peter"]
        counted = erase(store, owner=MARIA, dry_run=True)
        assert [event.actor for event in store.events.read(theirs)] == [MARIA, "peter"]
        report = erase(store, owner=MARIA)
        assert (report.events, report.tables) == (counted.events, counted.tables)
        assert report.events == 3  # two of the erased session, and one that only named the actor
        assert [event.actor for event in store.events.read(theirs)] == [None, "peter"]
        assert [event.actor for event in store.events.read(mine)] == [None, "peter", None]
        assert store.events.read(theirs)[0].data["changes"]
        assert erase(store, owner=MARIA).total == 0
        assert erase(store, user_id="peter").events == 1  # who only acted is named by that selector, too
        assert [event.actor for event in store.events.read(theirs)] == [None, None]


def test_a_host_s_own_transaction_names_the_stores_actor(database_url: str) -> None:
    with Store.open(database_url, events=True):
        pass
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    with Store.from_engine(engine, settings=Settings(actor=MARIA)) as store:
        with engine.begin() as connection:
            store.join(connection).chat.sessions.create(agent="build", model={}, id="joined")
        assert [event.actor for event in store.events.read("joined")] == [MARIA]
    engine.dispose()


def test_who_did_it_is_in_the_rows_that_say_so(store: Any) -> None:
    with store.begin(actor=MARIA) as tx:
        run = tx.workflows.runs.create("build", trigger_id="t", current_phase="p")
        conversation = tx.conversations.sessions.create().id
        gates = [tx.workflows.approvals.request(run.id, gate="g", summary="?", id=f"gate {number}") for number in range(2)]
        assert {gate.requested_by for gate in gates} == {MARIA}
        tx.workflows.approvals.respond("gate 0", approved=True)
        tx.workflows.approvals.respond("gate 1", approved=True, by="ada")
        assert [tx.workflows.approvals.get(gate.id).responded_by for gate in gates] == [MARIA, "ada"]
        assert tx.workflows.workflow_overrides.set("build", enabled=False).updated_by == MARIA
        assert tx.workflows.cron_overrides.set("nightly", enabled=False).updated_by == MARIA
        tx.conversations.sessions.set_status(conversation, "completed")
        tx.conversations.sessions.set_status(conversation, "failed", override="it was wrong")
        assert {change.actor for change in tx.conversations.sessions.transitions(conversation)} == {MARIA}
    with store.begin() as tx:
        tx.workflows.approvals.request(run.id, gate="g", summary="?", id="gate 2")
        tx.workflows.approvals.respond("gate 2", approved=False)
        unnamed = tx.workflows.approvals.get("gate 2")
        assert (unnamed.requested_by, unnamed.responded_by) == (None, None)
