"""Spans of a store beside those of its host: parents, joined transactions, an example, and what an engine's listeners see."""

import asyncio
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from sqlalchemy import create_engine, event
from sqlalchemy.exc import DBAPIError

from persist import AsyncStore, Store, otel
from persist.errors import NotFound, Unavailable
from persist.events.repository import log_status
from persist.store.transaction import Transaction, work_of
from tests.contract.chat.scenes import MODEL, create, text, turn
from tests.contract.otel.scenes import Collector, below, id_of, instrumented, named, of, only, parent, tree
from tests.markdown import ROOT


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


def test_a_joined_transaction_has_spans_of_its_verbs_alone(sqlite_url: str) -> None:
    Store.open(sqlite_url).close()
    engine = create_engine(sqlite_url)
    with Store.from_engine(engine) as store, instrumented(store) as collector:
        with collector.host.start_as_current_span("request"), engine.begin() as connection:
            store.join(connection).chat.sessions.create(agent="build", model=MODEL)
        spans = collector.take()
        assert tree(spans) == ["request", "  chat.sessions.create"]
        assert of(only(spans, "chat.sessions.create"))["persist.rows"] >= 1
    engine.dispose()


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


def test_the_harness_example(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    opened = Store.open

    def traced(url: str, **options: Any) -> Store:
        store = opened(url, **options)
        otel.instrument(store, tracer_provider=collector.tracers, meter_provider=collector.meters)
        return store

    monkeypatch.setattr(Store, "open", traced)
    monkeypatch.chdir(tmp_path)
    for command in ("start", "approve"):
        monkeypatch.setattr(sys, "argv", ["harness.py", command, "--url", sqlite_url, "--by", "maria"])
        runpy.run_path(str(ROOT / "examples" / "harness.py"), run_name="harness")
    spans = collector.take()
    names = {span.name for span in spans}
    assert names >= {
        "transaction",
        "workflows.runs.create",
        "workflows.runs.claim",
        "workflows.phases.finish",
        "workflows.approvals.wait",
    }
    verbs = [span for span in spans if span.name not in ("transaction", "snapshot")]
    assert all(span.name.startswith("workflows.") for span in verbs)
    known = {id_of(span) for span in spans}
    assert all(parent(span) in known for span in verbs)
