"""`SpanProcessor`: what instrumented SDKs say of their calls becomes usage and tool calls, and harms nobody."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode

from persist import Store, otel
from persist.errors import InvalidValue, StoreBusy
from persist.otel import processor as processor_module
from tests.contract.otel.scenes import instrumented, real

CALL: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": "claude",
    "gen_ai.usage.input_tokens": 1000,
    "gen_ai.usage.cache_read.input_tokens": 600,
    "gen_ai.usage.cache_creation.input_tokens": 100,
    "gen_ai.usage.output_tokens": 50,
}
NOON = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() * 1e9)


@pytest.fixture
def box(backend: str) -> str | None:
    return None if backend == "sqlite" else "box"


def test_calls_become_usage_and_tool_calls(store: Any, box: str | None) -> None:
    processor, provider = otel.SpanProcessor(real(store), instance_id=box), TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("some.instrumentation")
    agent = tracer.start_span("invoke_agent x", attributes={**CALL, "gen_ai.operation.name": "invoke_agent"}, start_time=NOON)
    first = tracer.start_span("chat claude", attributes=CALL, start_time=NOON)
    first.end(NOON + 2_000_000_000)
    tracer.start_span("chat claude", attributes=CALL, start_time=NOON).end(NOON + 2_500_000_000)
    tool = tracer.start_span(
        "execute_tool bash", attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "bash"}, start_time=NOON
    )
    tool.set_status(Status(StatusCode.ERROR))
    tool.end(NOON + 1_500_000_000)
    agent.end(NOON + 3_000_000_000)
    tracer.start_span("GET", attributes={"http.method": "GET"}).end()
    processor.on_end(first)  # type: ignore[arg-type]  # told twice
    assert processor.force_flush()
    totals = store.telemetry.usage.totals(instance_id=box)
    assert (totals.token_input, totals.token_cache_read, totals.token_cache_write, totals.token_output) == (600, 1200, 200, 100)
    (stored,) = store.telemetry.tools.last(instance_id=box)
    assert (stored.tool_key, stored.exit_code, stored.duration_ms) == ("bash", 1, 1500)
    assert stored.occurred_at == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert (processor.stored, processor.dropped, processor.failed) == (3, 0, 0)
    provider.shutdown()
    tracer.start_span("late", attributes=CALL).end()
    processor.shutdown()
    assert store.telemetry.usage.totals(instance_id=box).samples == totals.samples
    restarted = otel.SpanProcessor(real(store), instance_id=box)
    restarted.on_end(first)  # type: ignore[arg-type]  # a span that another process was told of
    restarted.shutdown()
    assert store.telemetry.usage.totals(instance_id=box).token_output == totals.token_output
    calls = store.usage.calls.list(instance_id=box).items
    assert {(call.model, call.provider, call.operation, call.duration_ms) for call in calls} == {
        ("claude", "anthropic", "chat", 2000),
        ("claude", "anthropic", "chat", 2500),
    }
    context = first.get_span_context()
    assert (f"{context.trace_id:032x}", f"{context.span_id:016x}") in [(call.trace_id, call.span_id) for call in calls]


def test_a_full_buffer_drops_and_counts(store: Any, box: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    processor = otel.SpanProcessor(real(store), instance_id=box, buffer=2, batch=100, interval=3600)
    provider = TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("some.instrumentation")
    for _ in range(5):
        tracer.start_span("chat", attributes=CALL).end()
    assert processor.dropped == 3
    assert processor.force_flush()
    assert processor.stored == 2
    with pytest.MonkeyPatch.context() as patch:

        def busy(*args: Any, **options: Any) -> None:
            raise StoreBusy(5.0)

        patch.setattr(processor_module, "transact_with_retries", busy)
        tracer.start_span("chat", attributes=CALL).end()
        assert not processor.force_flush(timeout_millis=200)
    assert processor.force_flush()  # what met the outage is stored after it
    assert (processor.failed, processor.stored) == (0, 3)
    provider.shutdown()


def test_a_call_that_is_refused_does_not_take_others_with_it(store: Any, box: str | None) -> None:
    processor = otel.SpanProcessor(real(store), instance_id=box)
    provider = TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("some.instrumentation")
    for model in ("claude", "a\x00b"):  # no database keeps a NUL
        tracer.start_span("chat", attributes={**CALL, "gen_ai.request.model": model}, start_time=NOON).end(NOON)
    tracer.start_span("x", attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "good"}).end()
    assert not processor.force_flush()
    assert [one.tool_key for one in store.telemetry.tools.last(instance_id=box)] == ["good"]
    assert store.telemetry.usage.totals(instance_id=box).token_output == 50
    assert (processor.stored, processor.failed) == (2, 1)
    provider.shutdown()


@pytest.mark.parametrize(("output", "reasoning", "stored"), [(50, 30, 50), (None, 30, 30), (20, 30, 30), (50, None, 50)])
def test_reasoning_is_a_part_of_the_output(
    store: Any, box: str | None, output: int | None, reasoning: int | None, stored: int
) -> None:
    attributes = {**CALL, "gen_ai.usage.output_tokens": output, "gen_ai.usage.reasoning.output_tokens": reasoning}
    processor, provider = otel.SpanProcessor(real(store), instance_id=box), TracerProvider()
    provider.add_span_processor(processor)
    told = {name: value for name, value in attributes.items() if value is not None}
    provider.get_tracer("some.instrumentation").start_span("chat", attributes=told).end()
    assert processor.force_flush()
    provider.shutdown()
    (call,) = store.usage.calls.list(instance_id=box).items
    (day,) = store.usage.by_day().items
    sample = store.telemetry.usage.totals(instance_id=box)
    assert call.token_output == day.token_output == sample.token_output == stored
    assert call.token_reasoning == reasoning


def test_what_no_call_can_have_used_counts_as_unknown(store: Any, box: str | None) -> None:
    processor = otel.SpanProcessor(real(store), instance_id=box)
    provider = TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("some.instrumentation")
    costs = (float("inf"), float("nan"), -1.0, 1e300, 2.0**53 / 1_000_000)
    for tokens, cost in zip((2**53 + 1, 2**63, 2**200, -1, 2**53), costs, strict=True):
        told = {"gen_ai.usage.output_tokens": tokens, "gen_ai.usage.input_tokens": 1, "persist.cost_usd": cost}
        tracer.start_span("chat", attributes={**CALL, **told}, start_time=NOON).end(NOON)
    for start, end in ((-(2**80), 2**80), (2**62, 2**63), (5, 3)):
        tracer.start_span("x", attributes={"gen_ai.operation.name": "execute_tool"}, start_time=start).end(end)
    assert processor.force_flush()
    assert (processor.stored, processor.failed, processor.dropped) == (8, 0, 0)
    outputs = [(call.token_output, call.cost_usd_micros) for call in store.usage.calls.list(instance_id=box).items]
    assert sorted(outputs, key=str) == [(2**53, 2**53), *[(None, None)] * 4]
    lasted = [(one.occurred_at.year, one.duration_ms) for one in store.telemetry.tools.last(instance_id=box)]
    calendar = (datetime(9999, 12, 31, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert sorted(lasted) == [(1970, 0), (1970, calendar), (2116, 2**62 // 1_000_000)]
    provider.shutdown()


def test_shutdown_waits_for_a_lock_only_as_long_as_it_is_told(
    store: Any, box: str | None, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    processor = otel.SpanProcessor(real(store), instance_id=box, batch=2, interval=3600)
    provider = TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("some.instrumentation")
    raw.rows("BEGIN IMMEDIATE" if raw.is_sqlite else "BEGIN")  # held for as long as the test likes
    raw.is_sqlite or raw.rows("LOCK TABLE usage_samples")
    for _ in range(5):
        tracer.start_span("chat", attributes=CALL).end()
    assert not processor.force_flush(1)
    processor.shutdown(1)
    thread = processor._thread
    assert thread is not None
    thread.join()
    tracer.start_span("chat", attributes=CALL).end()
    assert (processor.stored, processor.failed, processor.dropped) == (0, 5, 1)
    raw.rows("ROLLBACK")
    provider.shutdown()
    told = [record.getMessage() for record in caplog.records if "spans told of" in record.getMessage()]
    assert told == ["5 calls that spans told of are not stored: shutdown did not wait for them any longer"]
    assert store.telemetry.usage.totals(instance_id=box).samples == 0


def test_spans_of_persist_are_none_of_its_business(store: Any, box: str | None) -> None:
    with instrumented(store, statements=True) as collector:
        processor = otel.SpanProcessor(real(store), instance_id=box)
        collector.tracers.add_span_processor(processor)
        tracer = collector.tracers.get_tracer("some.instrumentation")
        tracer.start_span("chat", attributes=CALL).end()
        assert processor.force_flush()
        assert [span.name for span in collector.take()] == ["chat"]
        own = collector.tracers.get_tracer("persist")
        own.start_span("chat", attributes=CALL).end()
        processor.force_flush()
        assert processor.stored == 1


def test_what_it_cannot_work_with(sqlite_url: str, postgres_url: str) -> None:
    with Store.open(postgres_url) as server, pytest.raises(InvalidValue, match="instance_id"):
        otel.SpanProcessor(server)
    with Store.open(sqlite_url) as store:
        for wrong in ({"buffer": 0}, {"batch": True}, {"interval": 0}):
            with pytest.raises(InvalidValue):
                otel.SpanProcessor(store, **wrong)
        processor = otel.SpanProcessor(store)
    provider = TracerProvider()
    provider.add_span_processor(processor)
    provider.get_tracer("some.instrumentation").start_span("chat", attributes=CALL).end()
    assert not processor.force_flush(), "the store is closed"
    provider.shutdown()
