"""A workflow run as a trace, and executions that belong to none."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from persist.otel import conventions as gen_ai
from persist.otel.conventions import Tokens, attributes_of
from persist.otel.stored_spans import StoredSpan, span_id, trace_id
from persist.workflows.schemas import Execution, Outcome, RunStatus, WorkflowRunSummary


def run_spans(run: WorkflowRunSummary, executions: Sequence[Execution]) -> list[StoredSpan]:
    """The workflow's invocation that a run is, and its executions."""
    trace, root = trace_id("workflow run", run.id), span_id("workflow run", run.id)
    attributes: dict[str, Any] = {
        gen_ai.OPERATION: gen_ai.INVOKE_WORKFLOW,
        gen_ai.WORKFLOW: run.workflow_name,
        "persist.run.id": run.id,
        "persist.run.status": str(run.status),
        "persist.run.attempt": run.attempt,
    }
    failed = (run.failure_kind or "failed") if run.status == RunStatus.FAILED else None
    end = max(run.started_at, run.finished_at or run.updated_at)
    name = f"{gen_ai.INVOKE_WORKFLOW} {run.workflow_name}"
    first = StoredSpan(trace, root, None, name, "internal", run.started_at, end, attributes, failed and str(failed))
    return [first, *(_execution(one, trace, root) for one in executions)]


def loose_span(execution: Execution) -> StoredSpan:
    """The span of an execution that names no run: a trace of its own."""
    return _execution(execution, trace_id("execution", execution.id), None)


def _execution(one: Execution, trace: str, parent: str | None) -> StoredSpan:
    tokens = Tokens(one.input_tokens, one.output_tokens, one.cache_read_input_tokens, one.cache_creation_input_tokens)
    attributes: dict[str, Any] = {
        gen_ai.OPERATION: gen_ai.INVOKE_AGENT,
        gen_ai.AGENT: one.skill,
        **attributes_of(tokens),
        "persist.outcome": str(one.outcome),
    }
    if one.session_id is not None:
        attributes[gen_ai.CONVERSATION] = one.session_id
    if one.cost_usd is not None and isfinite(one.cost_usd):
        attributes[gen_ai.COST] = one.cost_usd
    failed = (one.stop_reason or "failed") if one.outcome == Outcome.FAILED else None
    end = max(one.started_at, one.finished_at or one.started_at)
    name = f"{gen_ai.INVOKE_AGENT} {one.skill}"
    return StoredSpan(trace, span_id("execution", one.id), parent, name, "internal", one.started_at, end, attributes, failed)
