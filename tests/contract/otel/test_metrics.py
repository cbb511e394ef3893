"""What a store counts: `metrics` on both faces, and the logger of statements."""

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import trace
from sqlalchemy import create_engine, event
from sqlalchemy.exc import DBAPIError

from persist import AsyncStore, Store
from persist.errors import BudgetExceeded, LeaseLost, NotFound, Unavailable
from persist.events.repository import log_status
from persist.settings import Settings
from persist.store.transaction import Transaction, work_of
from persist.workflows import Worker
from persist.workflows.schemas import WorkflowRun
from tests.contract.chat.scenes import MODEL, create, say, text, turn
from tests.contract.faces import every_way
from tests.contract.otel.scenes import below, fail_after_writing, id_of, instrumented, named, of, only, parent, tree


@every_way
def test_transactions_are_counted_by_how_they_ended(store: Any) -> None:
    before = store.metrics(database=False).transactions
    session = create(store)
    fail_after_writing(store, session, ZeroDivisionError())
    store.chat.sessions.list()
    with store.begin():
        assert store.metrics(database=False).writing == 1
    after = store.metrics(database=False)
    grown = {name: number - before[name] for name, number in after.transactions.items()}
    assert (grown["committed"], grown["rolled_back"], grown["unknown"]) == (2, 1, 0)
    assert grown["read"] == 1
    assert (after.writing, after.reading) == (0, 0)
    assert after.wait_seconds > 0 < after.connections
    assert json.loads(after.model_dump_json()) == after.model_dump()


@every_way
def test_recorders_are_counted(store: Any) -> None:
    session = create(store)
    chunks = turn(*text("héllo", "wörld"))
    with store.record(session) as recorder:
        for chunk in chunks:
            recorder.feed(chunk)
        running = store.metrics(database=False)
        assert (running.recorders, running.chunks) == (1, len(chunks))
    done = store.metrics(database=False)
    assert (done.recorders, done.recorders_ended, done.chunks, done.text_bytes) == (0, 1, len(chunks), 12)
    assert done.folds == 1
    assert done.recorder_commits >= len(chunks) - 3
    assert (done.groups > 0) == (done.largest_group > 0) == hasattr(store, "_target"), "an AsyncStore commits in groups"
    assert done.grouped >= done.groups


@every_way
def test_a_recorder_counts_from_when_it_is_entered(open_store: Any) -> None:
    store = open_store(settings=Settings(record_within_budget=True))
    session, made = create(store), []
    made.append(store.record(session))
    made.append(store.record("ses_unknown"))
    with pytest.raises(NotFound), made[1]:
        pass
    store.usage.budgets.set("agent:build", "total", max_tokens=0)
    made.append(store.record(session))
    with pytest.raises(BudgetExceeded), made[2]:
        pass
    found = store.metrics(database=False)
    assert (found.recorders, found.recorders_ended) == (0, 0)
    store.usage.budgets.delete("agent:build", "total")
    with made[2]:
        assert store.metrics(database=False).recorders == 1
    found = store.metrics(database=False)
    assert (found.recorders, found.recorders_ended) == (0, 1)


def test_a_recorder_whose_entering_is_cancelled_is_not_open(database_url: str) -> None:
    """It may be entered again, as after any other failure to enter."""

    async def main() -> None:
        async with await AsyncStore.open(database_url) as store:
            session = (await store.chat.sessions.create(agent="build", model=MODEL)).id
            cancelled = 0
            for steps in range(8):
                recorder = store.record(session)
                task = asyncio.ensure_future(recorder.__aenter__())
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                ended = await asyncio.gather(task, return_exceptions=True)
                cancelled += isinstance(ended[0], asyncio.CancelledError)
                if ended[0] is recorder:
                    await recorder.close()
                assert (await store.metrics(database=False)).recorders == 0
                if ended[0] is not recorder:
                    async with recorder:
                        await recorder.feed({"type": "start"})
                        assert (await store.metrics(database=False)).recorders == 1
            found = await store.metrics(database=False)
            assert (found.recorders, found.recorders_ended, cancelled > 0) == (0, 8, True)

    asyncio.run(main())


def test_what_waits_in_the_database_is_asked_for(store: Any, clock: Any) -> None:
    for number in range(3):
        store.workflows.runs.create("triage", trigger_id=f"issue/{number}", current_phase="plan", status="queued")
    clock.advance(seconds=90)
    found = store.metrics()
    assert (found.queue_depth, found.queue_age_seconds) == (3, 90.0)
    assert (found.event_log_lag, found.consumers) == (0, {})
    store.workflows.runs.claim("worker", lease=timedelta(minutes=1))
    assert store.metrics().queue_depth == 2
    assert store.metrics(database=False).queue_depth is None


def test_consumers_that_are_behind(store: Any) -> None:
    store.switch_events(True)
    store.events.consumers.create("mirror", at="now")
    create(store)
    create(store)
    found = store.metrics()
    assert found.event_log_lag == found.consumers["mirror"] == 2


def test_a_lost_lease_is_counted(store: Any) -> None:
    inner = getattr(store, "_target", store)
    store.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan", status="queued")

    def lose(run: WorkflowRun) -> None:
        raise LeaseLost(run.id, run.lease_token, "another worker has it.")

    Worker(getattr(inner, "_store", inner), {"triage": lose}, name="worker").run(until_idle=True)
    assert store.metrics(database=False).leases_lost == 1


@every_way
def test_each_statement_is_logged_without_values(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    session = create(store)
    with caplog.at_level(logging.DEBUG, "persist.statements"):
        say(store, session, "swordfish")
        with store.record(session, model=MODEL) as recorder:
            for chunk in turn(*text("sword", "fish")):
                recorder.feed(chunk)
        store.chat.messages.list(session)
    told: list[Any] = [record for record in caplog.records if record.name == "persist.statements"]
    assert "swordfish" not in caplog.text
    assert session not in caplog.text
    assert {"ChatMessages.append", "feed()", "ChatMessages.list"} <= {record.verb for record in told}
    inserts = [record for record in told if record.verb == "ChatMessages.append" and "chat_parts" in record.sql]
    assert [record.rows for record in inserts] == [1]
    assert all(record.seconds >= 0 for record in told)
    assert any("chat_part_deltas" in record.sql for record in told)
    caplog.clear()
    say(store, session, "quiet")
    assert not [record for record in caplog.records if record.name == "persist.statements"]


def test_values_are_logged_where_they_are_asked_for(open_store: Any, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(settings=Settings(log_statement_values=True))
    session = create(store)
    with caplog.at_level(logging.DEBUG, "persist.statements"):
        say(store, session, "swordfish")
    assert "swordfish" in caplog.text


# Spans of a store beside those of its host: parents, joined transactions, an example, and what an engine's listeners see.


def test_the_host_s_span_is_the_parent(store: Any) -> None:
    session = create(store)
    with instrumented(store) as collector:
        span = collector.host.start_span("request")

        def inside(call: Any) -> Any:
            with trace.use_span(span):
                return call()

        if hasattr(store, "_target"):
            inner: AsyncStore = store._target

            async def calls() -> None:
                with trace.use_span(span):
                    await inner.chat.sessions.get(session)
                    async with inner.begin() as tx:
                        await asyncio.gather(tx.chat.sessions.get(session), tx.chat.messages.list(session))
                    async with inner.record(session) as recorder:
                        for chunk in turn(*text("a")):
                            await recorder.feed(chunk)

            store._portal.call(calls)
        else:

            def calls_here() -> None:
                store.chat.sessions.get(session)
                with store.begin() as tx:
                    tx.chat.sessions.get(session)
                    tx.chat.messages.list(session)
                with store.record(session) as recorder:
                    for chunk in turn(*text("a")):
                        recorder.feed(chunk)

            inside(calls_here)
        span.end()
        spans = collector.take()
    assert {span.name for span in spans if parent(span) is None} <= {"request", "chat.record.write"}
    assert below(spans, only(spans, "request")) >= {"snapshot", "transaction", "chat.record"}
    assert below(spans, only(spans, "transaction")) == {"chat.sessions.get", "chat.messages.list"}
    written = [span for span in named(spans, "chat.record.write") if parent(span) == id_of(only(spans, "chat.record"))]
    assert len(written) >= 2


def test_a_verb_in_a_savepoint_of_the_host_s(sqlite_url: str) -> None:
    Store.open(sqlite_url).close()
    engine = create_engine(sqlite_url)
    with Store.from_engine(engine) as store, instrumented(store) as collector:
        with collector.host.start_as_current_span("request"), engine.begin() as connection:
            tx = store.join(connection)
            session = tx.chat.sessions.create(agent="build", model=MODEL)
            point = connection.begin_nested()
            tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "x"}])
            point.rollback()
            with pytest.raises(NotFound):
                tx.chat.sessions.get("nobody")
        spans = collector.take()
    engine.dispose()
    assert below(spans, only(spans, "request")) == {"chat.sessions.create", "chat.messages.append", "chat.sessions.get"}
    assert [span.name for span in spans if not span.status.is_ok] == ["chat.sessions.get"]


def test_a_connection_that_is_lost(postgres_url: str) -> None:
    tries: list[int] = []

    def lose(tx: Transaction) -> None:
        tries.append(1)
        if len(tries) == 1:
            with pytest.raises(DBAPIError):
                work_of(tx).connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
            tx.chat.sessions.create(agent="build", model=MODEL)

    with Store.open(postgres_url, sleep=lambda seconds: None) as store, instrumented(store) as collector:
        with pytest.raises(Unavailable):
            store.transact(lose, attempts=1)
        (span,) = named(collector.take(), "transaction")
        assert (of(span)["persist.outcome"], of(span)["error.type"]) == ("rolled_back", "persist.errors.Unavailable")
        tries.clear()
        store.transact(lose)
        spans, metrics = collector.take(), collector.metrics()
    assert [of(span)["persist.outcome"] for span in named(spans, "transaction")] == ["rolled_back", "committed"]
    assert metrics["persist.retries"] == {"connection": 1}


def test_a_look_that_is_no_verb_has_its_own_name(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store, instrumented(store) as collector:
        with store.read() as tx:
            assert not log_status(work_of(tx)).on
            assert tx.blobs.list().items == []
        assert tree(collector.take()) == ["snapshot", "  standing", "  blobs.list"]


def test_what_listens_to_an_engine_sees_verbs_of_a_host_s_store_and_no_more(sqlite_url: str) -> None:
    """So does SQLAlchemy's instrumentation: docs/observability.md says what it cannot see."""
    seen: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement)

    with Store.open(sqlite_url) as own:
        event.listen(own.runtime.connections.writer, "before_cursor_execute", note)
        create(own)
        assert not [sql for sql in seen if "chat_sessions" in sql]
    engine = create_engine(sqlite_url)
    event.listen(engine, "before_cursor_execute", note)
    with Store.from_engine(engine) as store:
        session = create(store)
        assert [sql for sql in seen if "INSERT INTO" in sql and "chat_sessions" in sql]
        seen.clear()
        with store.record(session) as recorder:
            for chunk in turn(*text("a")):
                recorder.feed(chunk)
        assert not [sql for sql in seen if "chat_" in sql]
    engine.dispose()
