"""Verbs outside of a transaction, `store.chat.messages.append(…)`: each is a transaction of its own."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import psycopg
import pytest
from psycopg import sql

from persist.chat.storage import message_insert
from persist.db.dialects.postgres.pipelining import PipelinedConnection
from persist.errors import Conflict, NotFound, PersistError, ReadOnlyTransaction, StoreBusy, TransactionOpen, Unavailable
from persist.store.store import Store
from persist.store.transaction import work_of
from tests.contract.chat.scenes import MODEL, create, say
from tests.contract.faces import every_way
from tests.statemachines.both_databases import alike, plain, rows, twins
from tests.statemachines.scene import Verb, arguments, make, verbs
from tests.statemachines.single_call import tables_of

pytestmark = every_way

ENDS = ("delete", "trim", "prune", "cleanup", "sweep", "keep_latest", "finish", "cancel", "expire", "restore")
"""Words in the names of verbs that come last, since they take away what others are called with."""


def test_a_verb_alone_is_durable_when_it_returns(store: Any, open_store: Any) -> None:
    session = store.chat.sessions.create(agent="build", model=MODEL)
    message = store.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "hi"}])
    with open_store().read() as tx:
        assert tx.chat.sessions.get(session.id).id == session.id
        assert [found["id"] for found in tx.chat.messages.list(session.id)] == [message.id]
    assert store.chat.messages.get(message.id)["id"] == message.id


def test_a_refused_verb_alone_leaves_nothing_behind(store: Any) -> None:
    with pytest.raises(NotFound):
        store.chat.messages.append("ses_nobody", role="user", parts=[{"type": "text", "text": "hi"}])
    assert store.chat.sessions.list().items == []
    assert create(store)


def test_a_verb_that_writes_is_refused_inside_of_a_transaction(store: Any) -> None:
    session = create(store)
    with store.begin() as tx:
        with pytest.raises(TransactionOpen):
            store.chat.sessions.archive(session)
        tx.chat.sessions.archive(session)
    store.chat.sessions.unarchive(session)
    assert store.chat.sessions.get(session).archived_at is None


def test_a_store_that_only_reads_refuses_verbs_that_write(store: Any, open_store: Any) -> None:
    session = create(store)
    reading = open_store(read_only=True)
    assert reading.chat.sessions.get(session).id == session
    with pytest.raises(ReadOnlyTransaction):
        reading.chat.sessions.archive(session)


def test_a_verb_alone_is_tried_again_on_contention(open_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(sleep=lambda seconds: None)
    session = create(store)
    tries, post = [], message_insert.post

    def contended(*args: Any, **given: Any) -> Any:
        tries.append(args)
        if len(tries) < 3:
            raise StoreBusy(0.0)
        return post(*args, **given)

    monkeypatch.setattr("persist.chat.verbs.messages.post", contended)
    message = store.chat.messages.append(session, role="user", parts=[])
    assert len(tries) == 3
    assert [found["id"] for found in store.chat.messages.list(session)] == [message.id]


def test_observers_hear_of_a_verb_alone(store: Any) -> None:
    ended: list[str] = []
    store.on_run_finished(lambda run: ended.append(run.id))
    run = store.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan")
    store.workflows.runs.finish(run.id, "succeeded")
    assert ended == [run.id]


def test_a_verb_alone_is_in_the_event_log(open_store: Any) -> None:
    store = open_store(events=True)
    session = create(store)
    say(store, session, "one")
    before = len(store.events.read(session))
    store.chat.sessions.archive(session)
    assert len(store.events.read(session)) == before + 1


def _in_order() -> Sequence[Verb]:
    return sorted(verbs(), key=lambda verb: (verb.domain, any(word in verb.name for word in ENDS)))


def _outcome(call: Any) -> Any:
    try:
        return plain(call())
    except PersistError as error:
        return type(error).__name__


def _held(store: Store, domain: str) -> Mapping[str, Any]:
    with store.read() as tx:
        held = rows(work_of(tx), tables_of(domain))
    # the order in which one statement returns the rows it changed is the database's own
    held["event_log"] = [{name: event[name] for name in ("stream_id", "seq", "type")} for event in held["event_log"]]
    return held


@pytest.mark.parametrize(("alone", "logs"), [(1, False), (0, True)], ids=["Postgres", "SQLite with events"])
def test_every_verb_does_alone_what_it_does_in_a_transaction(sqlite_url: str, postgres_url: str, alone: int, logs: bool) -> None:
    with twins(sqlite_url, postgres_url) as (_, stores):
        ids = [make(store) for store in stores]
        for store in stores:
            store.switch_events(logs)
        apart, joint = stores[alone], stores[1 - alone]
        for domain, of_domain in groupby(_in_order(), lambda verb: verb.domain):
            for verb in of_domain:
                for store in stores:
                    alike(store)
                by_itself = _outcome(partial(verb.call, apart, arguments(verb, ids[alone])))
                assert by_itself == _outcome(partial(_inside, joint, verb, arguments(verb, ids[1 - alone]))), verb.name
            assert _held(apart, domain) == _held(joint, domain), domain


def _inside(store: Store, verb: Verb, given: Mapping[str, Any]) -> Any:
    with store.begin() as tx:
        return verb.call(tx, given)


def test_a_verb_alone_that_refuses_has_written_nothing(postgres_url: str) -> None:
    refused = 0
    with twins(postgres_url) as (_, [store]):
        ids = make(store)
        store.switch_events(False)
        for verb in _in_order():
            given = arguments(verb, ids)
            for name in [name for name, value in given.items() if type(value) is str and "id" in name]:
                before = _held(store, verb.domain)
                try:
                    verb.call(store, {**given, name: "nobody"})
                except PersistError:
                    refused += 1
                    assert _held(store, verb.domain) == before, (verb.name, name)
    assert refused >= 50


_REFUSES_AT_COMMIT = """
    CREATE FUNCTION persist.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.id LIKE 'refused%' THEN RAISE EXCEPTION 'too late' USING ERRCODE = '23514'; END IF;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON persist.chat_sessions DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION persist.refuse();
    CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON persist.chat_messages DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION persist.refuse()
"""


@pytest.mark.one_server
@pytest.mark.parametrize("backend", ["postgres"])
def test_a_commit_that_the_server_refuses_is_a_typed_error(store: Any, database_url: str) -> None:
    session = create(store)
    with psycopg.connect(database_url, autocommit=True) as raw:
        raw.execute(_REFUSES_AT_COMMIT)
    with pytest.raises(Conflict, match="too late"):
        store.chat.sessions.create(agent="build", model=MODEL, id="refused")
    with pytest.raises(Conflict, match="too late"):
        store.chat.messages.append(session, role="user", parts=[], id="refused")
    message = store.chat.messages.append(session, role="user", parts=[])
    assert [found["id"] for found in store.chat.messages.list(session)] == [message.id]
    assert [found.id for found in store.chat.sessions.list().items] == [session]


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_statement_that_the_server_cancels_is_known_to_be_rolled_back(open_store: Any, database_url: str) -> None:
    session = create(open_store())
    with psycopg.connect(database_url) as raw:
        name = sql.Identifier(raw.info.dbname)
        raw.execute(sql.SQL("ALTER DATABASE {} SET statement_timeout = '100ms'").format(name))
        raw.commit()
        raw.execute("SELECT 1 FROM persist.chat_sessions FOR UPDATE")
        store = open_store(sleep=lambda seconds: None)
        with pytest.raises(Unavailable) as refused:
            store.chat.messages.append(session, role="user", parts=[])
    assert refused.value.outcome == "rolled back"
    message = store.chat.messages.append(session, role="user", parts=[])
    assert [found["id"] for found in store.chat.messages.list(session)] == [message.id]


def _alone(store: Any) -> None:
    store.chat.sessions.create(agent="build", model=MODEL, id="refused")


def _in_a_block(store: Any) -> None:
    with store.begin() as tx:
        tx.chat.sessions.create(agent="build", model=MODEL, id="refused")


def _recorded(store: Any) -> None:
    session = create(store)
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])


@pytest.mark.one_server
@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("write", [_alone, _in_a_block, _recorded])
def test_a_commit_that_is_cancelled_is_known_to_be_rolled_back(
    open_store: Any, database_url: str, write: Callable[[Any], None]
) -> None:
    store = open_store(sleep=lambda seconds: None)
    with psycopg.connect(database_url, autocommit=True) as raw:
        raw.execute(_REFUSES_AT_COMMIT.replace("23514", "57014").replace("'refused%'", "ANY ('{refused,msg_%}')"))
    with pytest.raises(Unavailable) as refused:
        write(store)
    assert refused.value.outcome == "rolled back"


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_transaction_that_was_idle_for_too_long_is_known_to_be_rolled_back(open_store: Any, database_url: str) -> None:
    session = create(open_store())
    with psycopg.connect(database_url, autocommit=True) as raw:
        name = sql.Identifier(raw.info.dbname)
        raw.execute(sql.SQL("ALTER DATABASE {} SET idle_in_transaction_session_timeout = '50ms'").format(name))
        store = open_store(sleep=lambda seconds: None)
        idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"

        def write() -> None:
            with store.begin() as tx:
                tx.chat.messages.append(session, role="user", parts=[])
                while raw.execute(idle).fetchone() != (0,):
                    time.sleep(0.01)

        with pytest.raises(Unavailable) as refused:
            write()
        assert refused.value.outcome == "rolled back"
    assert store.chat.messages.list(session) == []


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("read", [lambda tx: tx.chat.sessions.get("s"), lambda tx: tx.conversations.messages.get_many(["m"])])
def test_an_idle_connection_that_was_lost_is_replaced_whatever_executes_the_first_statement(
    store: Any, database_url: str, read: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.chat.sessions.create(agent="build", model=MODEL, id="s")
    store.conversations.messages.put({"id": "m", "created_at": 1.0, "role": "user", "content": "x"})
    expected = read(store)
    run = PipelinedConnection._run

    def lost(self: PipelinedConnection, commands: Any) -> None:
        monkeypatch.setattr(PipelinedConnection, "_run", run)
        with psycopg.connect(database_url, autocommit=True) as raw:
            found = raw.execute("SELECT pg_terminate_backend(CAST(%s AS int), 10000)", (self.driver.info.backend_pid,)).fetchone()
        assert found == (True,)
        run(self, commands)

    monkeypatch.setattr(PipelinedConnection, "_run", lost)
    with store.read() as tx:
        assert read(tx) == expected


def test_a_refusal_says_what_was_called(store: Any) -> None:
    with store.begin(), pytest.raises(TransactionOpen) as refused:
        create_alone(store)
    assert refused.value.what == "a verb outside of the transaction"
    with store.begin(), pytest.raises(TransactionOpen) as refused, store.begin():
        pytest.fail("the owner has a transaction")
    assert refused.value.what == "begin()"


def create_alone(store: Any) -> None:
    store.chat.sessions.create(agent="build", model=MODEL)


@pytest.mark.parametrize(("waited", "tries"), [(4.9, 5), (5.0, 1), (10.0, 1)])
def test_a_verb_alone_waits_for_a_lock_once(open_store: Any, monkeypatch: pytest.MonkeyPatch, waited: float, tries: int) -> None:
    store = open_store(sleep=lambda seconds: None)
    session, tried = create(store), []

    def busy(*args: Any, **given: Any) -> Any:
        tried.append(args)
        raise StoreBusy(waited)

    monkeypatch.setattr("persist.chat.verbs.messages.post", busy)
    with pytest.raises(StoreBusy) as gave_up:
        store.chat.messages.append(session, role="user", parts=[])
    assert gave_up.value.waited == waited
    assert len(tried) == tries
