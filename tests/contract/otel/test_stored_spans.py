"""What is stored, as spans: what they say by the conventions, the same ids each time, no content unless asked."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as semconv
from opentelemetry.trace import Status, StatusCode, Tracer

from persist import Store, otel
from persist.cli import main
from persist.db.dialects.sqlite.row_guards import lift_row_guards
from persist.db.schema.base import SCHEMA_TOKEN
from persist.errors import InvalidValue, StoreBusy
from persist.otel import conventions
from persist.otel import processor as processor_module
from persist.otel.conventions import Tokens, attributes_of, tokens_of
from persist.schema.metadata import metadata
from tests.cases import each
from tests.contract.chat.scenes import MODEL, call, create, output, text, turn
from tests.contract.otel.scenes import instrumented, real
from tests.unreadable.cells import lite_values

AT = datetime(2026, 1, 1, tzinfo=UTC)


def filled(store: Any, instance: str | None) -> str:
    """A session with an answer and a tool, a run with an execution, usage and a tool call."""
    session = create(store, agent="build")
    with store.record(session, model=MODEL) as recorder:
        for chunk in turn(*text("swordfish"), call("search", "c1", {"q": "swordfish"}), output("c1", "swordfish")):
            recorder.feed(chunk)
        recorder.step_usage(0, input_tokens=1000, cache_read_tokens=600, cache_write_tokens=100, output_tokens=50)
    run = store.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan")
    done = store.workflows.executions.start(
        skill="triage:plan", trigger_type="github", trigger_id="issue/1", workflow_run_id=run.id
    )
    store.workflows.executions.finish(
        done.id, success=False, error="swordfish", input_tokens=10, cache_read_input_tokens=5, output_tokens=3, cost_usd=0.5
    )
    store.workflows.executions.start(skill="chat", trigger_type="chat", trigger_id="thread")
    store.telemetry.usage.sample(
        at=AT, token_input=7, token_cache_read=2, token_output=1, cost_usd_micros=9, instance_id=instance
    )
    store.telemetry.tools.record("bash", exit_code=2, duration_ms=1500, at=AT, instance_id=instance)
    return session


def test_what_is_stored_as_spans(store: Any, backend: str) -> None:
    session = filled(store, None if backend == "sqlite" else "box")
    found = list(otel.spans(real(store)))
    by_name = {span.name: span for span in found}
    assert list(by_name) == [
        "invoke_agent build",
        "chat claude",
        "execute_tool search",
        "invoke_workflow triage",
        "invoke_agent triage:plan",
        "invoke_agent chat",
        "chat",
        "execute_tool bash",
    ]
    root, answer, tool = (by_name[name] for name in ("invoke_agent build", "chat claude", "execute_tool search"))
    assert root.parent_span_id is None
    assert (answer.parent_span_id, tool.parent_span_id) == (root.span_id, answer.span_id)
    assert {root.trace_id, answer.trace_id, tool.trace_id} == {root.trace_id}
    usage = {name: answer.attributes.get(name) for name in answer.attributes if name.startswith("gen_ai.usage")}
    assert usage == {
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 600,
        "gen_ai.usage.cache_creation.input_tokens": 100,
    }
    assert answer.attributes["gen_ai.conversation.id"] == session
    assert (answer.attributes["gen_ai.provider.name"], answer.attributes["gen_ai.request.model"]) == ("anthropic", "claude")
    assert (tool.attributes["gen_ai.tool.name"], tool.attributes["gen_ai.tool.call.id"]) == ("search", "c1")
    execution = by_name["invoke_agent triage:plan"]
    assert execution.parent_span_id == by_name["invoke_workflow triage"].span_id
    assert (execution.attributes["gen_ai.usage.input_tokens"], execution.error_type) == (15, "failed")
    assert by_name["invoke_agent chat"].parent_span_id is None
    assert by_name["chat"].attributes["gen_ai.usage.input_tokens"] == 9
    bash = by_name["execute_tool bash"]
    assert (bash.end - bash.start, bash.error_type) == (timedelta(seconds=1.5), "exit 2")
    assert all(span.start <= span.end for span in found)
    assert list(otel.spans(real(store))) == found, "a second export has the same ids"
    assert len({span.span_id for span in found}) == len(found)
    assert "swordfish" not in json.dumps([span.json() for span in found])
    whole = {span.name: span for span in otel.spans(real(store), content=True)}["execute_tool search"]
    shown = (whole.attributes["gen_ai.tool.call.arguments"], whole.attributes["gen_ai.tool.call.result"])
    assert shown == ('{"q":"swordfish"}', '"swordfish"')
    assert [span.name for span in otel.spans(real(store), domains=["workflows"], since=AT + timedelta(days=2000))] == []
    with pytest.raises(InvalidValue, match="domains"):
        otel.spans(real(store), domains=["blobs"])  # type: ignore[list-item]  # on purpose


EXPORTED = ["chat_sessions", "chat_messages", "chat_parts", "workflow_runs", "executions", "usage_samples", "tool_history"]


@pytest.mark.parametrize("table", EXPORTED)
def test_a_hostile_cell_ends_no_export(sqlite_url: str, table: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each cell of the first row of the table holds what no program of ours writes, and then what it held."""
    of = metadata.tables[f"{SCHEMA_TOKEN}.{table}"]
    columns, key = (
        [column for column in of.columns if not (column.primary_key or column.foreign_keys)],
        ", ".join(f'"{one.name}"' for one in of.primary_key),
    )
    first = f'({key}) = (SELECT {key} FROM "{table}" ORDER BY {key} LIMIT 1)'
    with Store.open(sqlite_url) as store, closing(sqlite3.connect(store.path or "", isolation_level=None)) as raw:
        filled(store, None)
        whole = [span.json() for span in otel.spans(store, content=True)]
        raw.execute("PRAGMA ignore_check_constraints=ON")
        lift_row_guards(raw)
        wide = ("9223372036854775807", "-9223372036854775808", "1e999", "-1")
        values = {one: [*lite_values(one), *(wide if "'soon'" in lite_values(one) else ())] for one in columns}
        for column, value in [(one, value) for one in columns for value in values[one]]:
            cell = f'"{column.name}" = {value}'
            (old,) = raw.execute(f'SELECT quote("{column.name}") FROM "{table}" WHERE {first}').fetchone()
            try:
                raw.execute(f'UPDATE "{table}" SET {cell} WHERE {first}')
            except sqlite3.IntegrityError:
                continue
            found = [span.json() for span in otel.spans(store, content=True)]
            assert len(found) >= len(whole) - 5, cell
            assert len(found) == len(whole) or "left out" in caplog.text, cell
            json.dumps(found, allow_nan=False)
            for span in found:
                assert 0 <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) < 2**63, cell
                numbers = [int(one["value"]["intValue"]) for one in span["attributes"] if "intValue" in one["value"]]
                assert all(-(2**63) <= number < 2**63 for number in numbers), cell
            raw.execute(f'UPDATE "{table}" SET "{column.name}" = {old} WHERE {first}')
        assert [span.json() for span in otel.spans(store, content=True)] == whole


NAMES = """
    agent.id agent.name conversation.id operation.name output.messages provider.name request.model response.model system
    tool.call.arguments tool.call.id tool.call.result tool.name workflow.name usage.cache_creation.input_tokens
    usage.cache_read.input_tokens usage.input_tokens usage.output_tokens usage.reasoning.output_tokens
"""
OPERATIONS = "chat generate_content text_completion embeddings invoke_agent invoke_workflow execute_tool"


def test_the_names_are_those_of_the_conventions() -> None:
    ours = {value for value in vars(conventions).values() if isinstance(value, str) and value.startswith("gen_ai.")}
    assert ours == {f"gen_ai.{name}" for name in NAMES.split()}
    operations = {conventions.INVOKE_AGENT, conventions.INVOKE_WORKFLOW, conventions.EXECUTE_TOOL, *conventions.MODEL_CALLS}
    assert operations == set(OPERATIONS.split())
    if hasattr(semconv, "GEN_AI_WORKFLOW_NAME"):  # the oldest SDK that the tests run with knows an older edition
        assert ours <= {value for name, value in vars(semconv).items() if name.startswith("GEN_AI_")}
        assert operations <= {member.value for member in semconv.GenAiOperationNameValues}


@each(
    ("stored", "told"),
    [
        (Tokens(300, 50, 600, 100), {"input": 1000, "output": 50}),
        (Tokens(None, None, 5), {"input": 5}),
        (Tokens(1, 2, reasoning=3), {"input": 1, "output": 5}),
        (Tokens(None, None), {}),
        (Tokens(0, 0, 0, 0), {"input": 0, "output": 0}),
    ],
)
def test_input_includes_what_the_cache_took(stored: Tokens, told: dict[str, int]) -> None:
    attributes = attributes_of(stored)
    assert {name: attributes.get(f"gen_ai.usage.{name}_tokens") for name in told} == told
    assert ("gen_ai.usage.input_tokens" in attributes) == ("input" in told)
    back = tokens_of(attributes)
    if stored.reasoning is None and told and stored.input is not None:
        assert back is not None
        assert (back.input, back.output, back.cache_read or 0) == (stored.input, stored.output, stored.cache_read or 0)
    assert tokens_of({"gen_ai.usage.input_tokens": "many", "gen_ai.usage.output_tokens": -1}) is None


def test_the_command_writes_what_a_collector_takes(sqlite_url: str, tmp_path: Any) -> None:
    with Store.open(sqlite_url) as store:
        filled(store, None)
        expected = [span.json() for span in otel.spans(store)]
    runner = CliRunner()
    target = tmp_path / "spans.jsonl"
    done = runner.invoke(main, ["otel", "export", str(target), "--url", sqlite_url])
    assert (done.exit_code, done.output) == (0, "Exported 8 spans.\n")
    (line,) = target.read_text(encoding="ascii").splitlines()
    (resource,) = json.loads(line)["resourceSpans"]
    assert resource["scopeSpans"][0]["spans"] == expected
    refused = runner.invoke(main, ["otel", "export", str(target), "--url", sqlite_url])
    assert refused.exit_code == 1
    some = runner.invoke(main, ["otel", "export", "--url", sqlite_url, "--domain", "chat", "--content", "-q"])
    assert "swordfish" in some.output
    assert "triage" not in some.output


# `SpanProcessor`: what instrumented SDKs say of their calls becomes usage and tool calls, and harms nobody.


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


def storing(store: Any, box: str | None, **options: Any) -> tuple[otel.SpanProcessor, TracerProvider, Tracer]:
    """A processor that stores calls, and a provider and a tracer that give it their spans."""
    processor, provider = otel.SpanProcessor(real(store), instance_id=box, **options), TracerProvider()
    provider.add_span_processor(processor)
    return processor, provider, provider.get_tracer("some.instrumentation")


def test_calls_become_usage_and_tool_calls(store: Any, box: str | None) -> None:
    processor, provider, tracer = storing(store, box)
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
    shown = {(call.model, call.provider, call.operation, call.duration_ms) for call in calls}
    assert shown == {("claude", "anthropic", "chat", 2000), ("claude", "anthropic", "chat", 2500)}
    context = first.get_span_context()
    assert (f"{context.trace_id:032x}", f"{context.span_id:016x}") in [(call.trace_id, call.span_id) for call in calls]


def test_a_full_buffer_drops_and_counts(store: Any, box: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    processor, provider, tracer = storing(store, box, buffer=2, batch=100, interval=3600)
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
    processor, provider, tracer = storing(store, box)
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
    processor, provider, tracer = storing(store, box)
    told = {name: value for name, value in attributes.items() if value is not None}
    tracer.start_span("chat", attributes=told).end()
    assert processor.force_flush()
    provider.shutdown()
    (call,) = store.usage.calls.list(instance_id=box).items
    (day,) = store.usage.by_day().items
    sample = store.telemetry.usage.totals(instance_id=box)
    assert call.token_output == day.token_output == sample.token_output == stored
    assert call.token_reasoning == reasoning


def test_what_no_call_can_have_used_counts_as_unknown(store: Any, box: str | None) -> None:
    processor, provider, tracer = storing(store, box)
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
    processor, provider, tracer = storing(store, box, batch=2, interval=3600)
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
