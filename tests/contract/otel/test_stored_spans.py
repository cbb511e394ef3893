"""What is stored, as spans: what they say by the conventions, the same ids each time, no content unless asked."""

import json
import math
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as semconv

from persist import Store, otel
from persist.cli import main
from persist.db.dialects.sqlite.row_guards import lift_row_guards
from persist.db.schema.base import SCHEMA_TOKEN
from persist.errors import InvalidValue
from persist.otel import conventions
from persist.otel.conventions import Tokens, attributes_of, tokens_of
from persist.schema.metadata import metadata
from tests.cases import each
from tests.contract.chat.scenes import MODEL, call, create, output, text, turn
from tests.contract.otel.scenes import real
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
    assert (whole.attributes["gen_ai.tool.call.arguments"], whole.attributes["gen_ai.tool.call.result"]) == (
        '{"q":"swordfish"}',
        '"swordfish"',
    )
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
            caplog.clear()
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


def test_what_is_stored_of_hostile_values_is_told_as_far_as_it_can_be(store: Any, backend: str, raw: Any) -> None:
    filled(store, None if backend == "sqlite" else "box")
    raw.rows("UPDATE tool_history SET duration_ms = ?", 2**62)
    raw.rows("UPDATE usage_samples SET token_input = ?, token_cache_read = ?", 2**63 - 1, 2**63 - 1)
    raw.rows("UPDATE executions SET cost_usd = ?", math.inf)
    raw.rows("UPDATE chat_messages SET created_at = ?", -(10**12))
    found = {span.name: span for span in otel.spans(real(store))}
    bash, usage, execution = (found[name] for name in ("execute_tool bash", "chat", "invoke_agent triage:plan"))
    assert (bash.start, bash.end.year) == (AT, 9999)
    assert bash.json()["endTimeUnixNano"] == str((2**63 - 1) // 1_000_000 * 1_000_000)
    assert usage.attributes["gen_ai.usage.input_tokens"] == 2**63 - 1
    assert "persist.cost_usd" not in execution.attributes
    assert found["chat claude"].json()["startTimeUnixNano"] == "0"


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
