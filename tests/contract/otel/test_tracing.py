"""Spans and metrics of a store, in the exporters of the real SDK."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

from persist import AsyncStore, Store, otel
from persist.db.transactions.repository import Repository
from persist.errors import InvalidValue, NotFound, StoreBusy, Unavailable
from persist.otel.tracing import verb_name
from tests.contract.chat.scenes import MODEL, create, say, text, turn
from tests.contract.faces import every_way
from tests.contract.otel.scenes import Collector, fail_after_writing, id_of, instrumented, named, of, only, parent, real, tree


def test_a_verb_is_called_as_callers_write_it() -> None:
    with Store.open("sqlite:///:memory:") as store, store.begin() as tx:
        domains = {name: getattr(tx, name) for name in dir(tx) if name[0] != "_"}
        found = {name: one for name, one in domains.items() if isinstance(one, Repository)}
        for domain, inside in domains.items():
            found |= {f"{domain}.{name}": one for name in dir(inside) if isinstance(one := getattr(inside, name), Repository)}
        assert len(found) > 30
        for place, repository in found.items():
            verbs = [verb for verb in vars(type(repository)).values() if hasattr(verb, "writes") and verb.__name__[0] != "_"]
            for verb in verbs:
                assert verb_name(verb.__module__, verb.__qualname__) == f"{place}.{verb.__name__}"


@every_way
def test_a_transaction_has_a_span_and_in_it_one_for_each_verb(store: Any) -> None:
    with instrumented(store) as collector:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="build", model=MODEL)
            tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "swordfish"}])
        spans = collector.take()
        assert tree(spans) == ["transaction", "  chat.sessions.create", "  chat.messages.append"]
        whole, append = only(spans, "transaction"), only(spans, "chat.messages.append")
        assert whole.kind is SpanKind.CLIENT
        shown = {k: of(append)[k] for k in ("persist.domain", "persist.aggregate", "persist.verb")}
        assert shown == {"persist.domain": "chat", "persist.aggregate": "messages", "persist.verb": "append"}
        assert of(append)["db.system.name"] in ("sqlite", "postgresql")
        assert of(whole)["persist.rows"] > of(append)["persist.rows"] >= 1
        assert of(whole)["persist.bytes"] > len("swordfish") < of(append)["persist.bytes"]
        assert of(whole)["persist.outcome"] == "committed"
        assert min(of(whole)["persist.wait"], of(whole)["persist.commit"]) >= 0
        store.chat.sessions.list()
        spans = collector.take()
        assert tree(spans) == ["snapshot", "  chat.sessions.list"]
        assert of(only(spans, "chat.sessions.list"))["db.response.returned_rows"] == 1
        metrics = collector.metrics()
        assert metrics["persist.transactions"]["committed"] >= 1
        assert metrics["db.client.operation.duration"]["chat.messages.append"] == 1
        assert metrics["persist.transaction.commit"][""] == 1
        assert metrics["persist.queue.depth"][""] == 0
    store.chat.sessions.list()
    assert collector.take() == []


@every_way
def test_an_error_is_the_status_and_the_type_and_no_words(store: Any) -> None:
    session = create(store)
    with instrumented(store) as collector:
        with pytest.raises(NotFound):
            store.chat.sessions.get("swordfish")
        fail_after_writing(store, session, KeyError("swordfish"))
        spans = collector.take()
    verb = only(spans, "chat.sessions.get")
    assert (verb.status.status_code, of(verb)["error.type"]) == (StatusCode.ERROR, "persist.errors.NotFound")
    block = only(spans, "transaction")
    assert of(block)["persist.outcome"] == "rolled_back"
    assert only(spans, "chat.messages.append").status.status_code is StatusCode.UNSET
    assert "swordfish" not in "".join(span.to_json() for span in spans)
    assert not any(span.events for span in spans)


@every_way
def test_a_turn_counts_its_chunks_and_has_no_span_for_each(store: Any) -> None:
    session = create(store)
    with instrumented(store) as collector:
        with store.record(session, model=MODEL, agent="build") as recorder:
            for chunk in turn(*text(*["swordfish"] * 40)):
                recorder.feed(chunk)
        spans = collector.take()
    told = of(only(spans, "chat.record"))
    assert (told["persist.chunks"], told["persist.bytes"], told["gen_ai.conversation.id"]) == (46, 360, session)
    shown = (told["gen_ai.request.model"], told["gen_ai.provider.name"], told["gen_ai.agent.name"])
    assert shown == ("claude", "anthropic", "build")
    assert len(spans) < 12
    assert "swordfish" not in "".join(span.to_json() for span in spans)


@every_way
def test_statements_are_children_where_they_are_asked_for(store: Any) -> None:
    session = create(store)
    with instrumented(store, statements=True) as collector:
        say(store, session, "swordfish")
        with store.record(session) as recorder:
            for chunk in turn(*text("sword", "fish")):
                recorder.feed(chunk)
        spans = collector.take()
    verb = only(spans, "chat.messages.append")
    below = [span for span in spans if parent(span) == id_of(verb)]
    assert {span.name for span in below} >= {"INSERT"}
    assert any("chat_parts" in of(span)["db.query.text"] and of(span)["persist.rows"] == 1 for span in named(below, "INSERT"))
    writes = {id_of(span) for span in named(spans, "chat.record.write")}
    assert any(parent(span) in writes for span in named(spans, "INSERT"))
    assert "swordfish" not in "".join(span.to_json() for span in spans)


def test_retries_are_an_attribute_and_a_metric(open_store: Any) -> None:
    store = open_store(sleep=lambda seconds: None)
    session, tries = create(store), []

    def contended(tx: Any) -> None:
        tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "again"}])
        tries.append(1)
        if len(tries) < 3:
            raise StoreBusy(0.0)

    with instrumented(store) as collector:
        store.transact(contended)
        spans, metrics = collector.take(), collector.metrics()
    attempts = named(spans, "transaction")
    assert [of(span).get("persist.retries", 0) for span in attempts] == [0, 1, 2]
    assert [of(span)["persist.outcome"] for span in attempts] == ["rolled_back", "rolled_back", "committed"]
    assert metrics["persist.retries"] == {"lock": 2}


def test_a_transaction_that_cannot_begin_has_ended_with_the_error(open_store: Any) -> None:
    store = open_store(sleep=lambda seconds: None)
    inner = real(store)
    runtime = getattr(inner, "runtime", None) or inner._runtime

    def lost(*args: Any, **named: Any) -> Any:
        raise Unavailable("the server is gone")

    with instrumented(store) as collector, pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime.transactions, "begin", lost)
        with pytest.raises(Unavailable), store.begin():
            pass
        (span,) = named(collector.take(), "transaction")
    assert (span.status.status_code, of(span)["error.type"]) == (StatusCode.ERROR, "persist.errors.Unavailable")


def test_a_cancelled_task_leaves_no_span_open(database_url: str) -> None:
    collector = Collector()
    started: list[str] = []
    ended: list[str] = []

    class Both:
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            started.append(span.name)

        def on_end(self, span: Any) -> None:
            ended.append(span.name)

        def _on_ending(self, span: Any) -> None: ...
        def shutdown(self) -> None: ...
        def force_flush(self, timeout_millis: int = 0) -> bool:
            return True

    collector.tracers.add_span_processor(Both())  # type: ignore[arg-type]  # it has the methods

    async def body() -> None:
        async with AsyncStore.open(database_url) as store:
            otel.instrument(store, tracer_provider=collector.tracers, meter_provider=collector.meters)
            session = await store.chat.sessions.create(agent="build", model=MODEL)
            inside = asyncio.Event()

            async def waits() -> None:
                async with store.begin() as tx, store.record(session.id) as recorder:
                    await tx.chat.sessions.get(session.id)
                    inside.set()
                    await asyncio.Event().wait()
                    await recorder.flush()

            async def records() -> None:
                async with store.record(session.id) as recorder:
                    for chunk in turn(*text("a"))[:4]:
                        await recorder.feed(chunk)
                    inside.set()
                    await asyncio.Event().wait()

            for body in (records, waits):
                inside.clear()
                task = asyncio.create_task(body())
                waiting = asyncio.create_task(inside.wait())
                await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
                task.cancel()
                waiting.cancel()
                await asyncio.gather(task, waiting, return_exceptions=True)

    asyncio.run(body())
    assert sorted(started) == sorted(ended)
    assert {"chat.record", "transaction"} <= set(ended)


def test_writers_that_commit_together_are_linked(database_url: str) -> None:
    collector = Collector()

    async def body() -> None:
        async with AsyncStore.open(database_url) as store:
            sessions = [await store.chat.sessions.create(agent="build", model=MODEL) for _ in range(4)]
            otel.instrument(store, tracer_provider=collector.tracers, meter_provider=collector.meters)

            async def one(session: Any) -> None:
                async with store.record(session.id) as recorder:
                    for chunk in turn(*text("a")):
                        await recorder.feed(chunk)

            await asyncio.gather(*map(one, sessions))

    asyncio.run(body())
    spans = collector.take()
    turns = {id_of(span) for span in named(spans, "chat.record")}
    assert len(turns) == 4
    together = [span for span in named(spans, "chat.record.write") if span.links]
    assert together
    assert {link.context.span_id for span in together for link in span.links} <= turns


def test_a_second_call_replaces_the_first(store: Any) -> None:
    with instrumented(store) as first, instrumented(store) as second:
        store.chat.sessions.list()
        assert first.take() == []
        assert tree(second.take()) == ["snapshot", "  chat.sessions.list"]
        assert "persist.transactions" not in first.metrics()
    with pytest.raises(InvalidValue):
        otel.instrument(object())  # type: ignore[arg-type]  # on purpose


class Raising(SpanProcessor):
    """Raises where a span begins, and where one ends."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise ValueError

    def on_end(self, span: Any) -> None:
        raise ValueError


@pytest.mark.parametrize("raises", ["on_start", "on_end"])
def test_a_tracer_that_raises_costs_no_transaction(store: Any, raises: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = "on_end" if raises == "on_start" else "on_start"
    monkeypatch.setattr(Raising, quiet, getattr(SpanProcessor, quiet))
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(Raising())
    end = otel.instrument(real(store), tracer_provider=tracers, statements=True)
    try:
        session = create(store)
        assert store.chat.sessions.get(session).id == session
    finally:
        end()
    create(store)
    assert len(store.chat.sessions.list().items) == 2
    assert (store.metrics().writing, store.metrics().reading) == (0, 0)


def test_stores_of_one_provider_are_observed_each(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)

    def observed() -> set[str]:
        found = reader.get_metrics_data()
        every = (
            [] if found is None else [one for of in found.resource_metrics for scope in of.scope_metrics for one in scope.metrics]
        )
        points = [point for one in every if one.name == "persist.transactions" for point in one.data.data_points]
        return {str(point.attributes["persist.store"]) for point in points if point.attributes}

    with Store.open(tmp_path / "a.db") as first, Store.open(tmp_path / "b.db") as second:
        end = otel.instrument(first, meter_provider=meters)
        otel.instrument(second, meter_provider=meters)
        assert observed() == {"a.db", "b.db"}
        end()
        assert observed() == {"b.db"}
        otel.instrument(second, meter_provider=meters)
        assert observed() == {"b.db"}
    with Store.open(tmp_path / "a.db") as again:
        otel.instrument(again, meter_provider=meters)
        assert observed() == {"a.db"}
    meters.shutdown()
