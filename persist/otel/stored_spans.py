"""`spans`: what a store holds, as spans by the GenAI semantic conventions, and each span's ids and formats."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, Literal, TypeVar

from persist.chat.schemas import ChatMessage, ChatSession, Role, ToolState
from persist.chat.storage import transcript
from persist.chat.storage.statements import ToolCallPart, tool_calls
from persist.chat.storage.usage import usage_of
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_flag
from persist.db.values.clock import as_utc, epoch_ms
from persist.db.values.pages import Page
from persist.errors import InvalidValue, NotFound, shown
from persist.otel import conventions as gen_ai
from persist.otel.conventions import Tokens, attributes_of
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.store.transaction import Transaction, work_of
from persist.telemetry.windows import instances, samples
from persist.workflows.schemas import Execution, Outcome, RunStatus, WorkflowRunSummary

T = TypeVar("T")
_KINDS = {"internal": 1, "client": 3}
_STATUS_ERROR = 2
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_MAX_NANOS = INT64_MAX // 1_000_000 * 1_000_000


def trace_id(kind: str, id: str) -> str:
    """The id of a stored row's trace, the same in every export: 32 hexadecimal digits."""
    return hashlib.sha256(f"persist trace {kind} {id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def span_id(kind: str, id: str) -> str:
    """The id of a stored row's span, the same in every export: 16 hexadecimal digits."""
    return hashlib.sha256(f"persist span {kind} {id}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class StoredSpan:
    """A span, by the GenAI semantic conventions. Ids are hexadecimal digits; without a parent it is the root of its trace.

    error_type   what went wrong, in one word; None if nothing is known to have gone wrong
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: Literal["internal", "client"]
    start: datetime
    end: datetime
    attributes: dict[str, Any] = field(default_factory=dict)
    error_type: str | None = None

    def json(self) -> dict[str, Any]:
        """The span in the JSON form of OTLP."""
        attributes = self.attributes if self.error_type is None else {**self.attributes, "error.type": self.error_type}
        found: dict[str, Any] = {
            "traceId": self.trace_id,
            "spanId": self.span_id,
            "name": self.name,
            "kind": _KINDS[self.kind],
            "startTimeUnixNano": _nanos(self.start),
            "endTimeUnixNano": _nanos(self.end),
            "attributes": [{"key": name, "value": _value(value)} for name, value in attributes.items()],
        }
        if self.parent_span_id is not None:
            found["parentSpanId"] = self.parent_span_id
        if self.error_type is not None:
            found["status"] = {"code": _STATUS_ERROR}
        return found


def request(spans: list[StoredSpan]) -> dict[str, Any]:
    """Spans as a request of OTLP: the format of a line of an export, and of `/v1/traces` of a collector."""
    scope = {"scope": {"name": "persist"}, "spans": [span.json() for span in spans]}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "persist"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _nanos(at: datetime) -> str:
    """Nanoseconds since 1970, in the range that collectors take: an instant before 1970 or after 2262 is told as that year."""
    return str(min(max(0, epoch_ms(at) * 1_000_000), _MAX_NANOS))


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(min(max(INT64_MIN, value), INT64_MAX))}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value).encode("utf-8", "replace").decode()}  # without lone halves, which no UTF-8 has


def session_spans(work: UnitOfWork, session: ChatSession, *, content: bool) -> list[StoredSpan]:
    """The agent's invocation that a session is, its answers and their tools. `content`: with what tools were given and gave."""
    trace, root = trace_id("chat session", session.id), span_id("chat session", session.id)
    shared = {gen_ai.CONVERSATION: session.id, gen_ai.AGENT: session.agent}
    made = [
        StoredSpan(
            trace,
            root,
            None,
            f"{gen_ai.INVOKE_AGENT} {session.agent}",
            "internal",
            session.created_at,
            max(session.created_at, session.updated_at),
            {gen_ai.OPERATION: gen_ai.INVOKE_AGENT, **shared, **_model(session.model)},
        )
    ]
    calls: defaultdict[str, list[ToolCallPart]] = defaultdict(list)
    for call in tool_calls(work, session.id, whole=content):
        calls[call.message_id].append(call)
    rows = transcript.read_rows(work, session.id, include_hidden=True, limit=None, before=None)
    for message in rows:
        if message.role != Role.ASSISTANT:
            continue
        answer = span_id("chat message", message.id)
        agent = message.metadata.get("agent")
        shared_here = {**shared, gen_ai.AGENT: agent} if isinstance(agent, str) else shared
        made.append(_answer(message, session, trace, root, answer, shared_here, calls.get(message.id, [])))
        made += [_tool(call, trace, answer, shared_here) for call in calls.get(message.id, ())]
    return made


def _answer(
    message: ChatMessage, session: ChatSession, trace: str, root: str, id: str, shared: dict[str, Any], calls: list[ToolCallPart]
) -> StoredSpan:
    model = _model(message.metadata.get("model")) or _model(session.model)
    name = model.get(gen_ai.REQUEST_MODEL)
    attributes = {gen_ai.OPERATION: gen_ai.CHAT, **shared, **model, **_usage(message.metadata)}
    end: datetime = max(message.created_at, message.updated_at, *(call.updated_at for call in calls))
    kind = "error" if message.metadata.get("error") else None
    title = gen_ai.CHAT if name is None else f"{gen_ai.CHAT} {name}"
    return StoredSpan(trace, id, root, title, "client", message.created_at, end, attributes, kind)


def _usage(metadata: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(metadata.get("usage"), dict):
        return {}
    counts = usage_of(metadata)
    tokens = Tokens(counts["input"], counts["output"], counts["cache_read"], counts["cache_write"], counts["reasoning"])
    return dict(attributes_of(tokens))


def _model(model: Any) -> dict[str, str]:
    found = model if isinstance(model, dict) else {}
    named = {gen_ai.PROVIDER: found.get("provider_id"), gen_ai.REQUEST_MODEL: found.get("model_id")}
    return {name: value for name, value in named.items() if isinstance(value, str) and value}


def _tool(call: ToolCallPart, trace: str, answer: str, shared: dict[str, Any]) -> StoredSpan:
    data = call.data if isinstance(call.data, dict) else {}
    known = call.type.startswith("tool-")
    name = call.type.removeprefix("tool-") if known else data.get("toolName")
    tool = name if isinstance(name, str) and name else call.type
    attributes: dict[str, Any] = {
        gen_ai.OPERATION: gen_ai.EXECUTE_TOOL,
        **shared,
        gen_ai.TOOL: tool,
        gen_ai.TOOL_CALL: call.tool_call_id,
    }
    for key, attribute in (("input", gen_ai.TOOL_ARGUMENTS), ("output", gen_ai.TOOL_RESULT)):
        if key in data:
            attributes[attribute] = _json(data[key])
    failed = call.tool_state if call.tool_state in (ToolState.OUTPUT_ERROR, ToolState.OUTPUT_DENIED) else None
    return StoredSpan(
        trace,
        span_id("chat part", call.id),
        answer,
        f"{gen_ai.EXECUTE_TOOL} {tool}",
        "internal",
        call.created_at,
        max(call.created_at, call.updated_at),
        attributes,
        failed,
    )


def _json(value: Any) -> str:
    """The JSON text of a stored value, which may hold lone halves of characters and integers of any length."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_PAGE = 1000
_SECOND = timedelta(seconds=1)
_MICROS = 1_000_000
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_LONGEST_MS = (_LAST - _FIRST) // timedelta(milliseconds=1)
"""The longest duration that a calendar holds. Stored ones are up to 64 bits."""


def instance_spans(store: Store, instance_id: str, since: datetime | None) -> Iterator[StoredSpan]:
    """A span for each second with usage, and one for each tool call. `instance_id`: as stored, empty for the file's own."""
    known = instance_id or store.instance_id or ""
    trace = trace_id("instance", known)
    shared: dict[str, Any] = {gen_ai.AGENT_ID: known} if known else {}
    yield from _usage_attributes(store, instance_id, known, trace, shared, since)
    yield from _tools(store, instance_id, known, trace, shared, since)


def _usage_attributes(
    store: Store, stored: str, known: str, trace: str, shared: dict[str, Any], since: datetime | None
) -> Iterator[StoredSpan]:
    after = None if since is None else _shifted(since, -_SECOND)
    while True:
        with store.read() as tx:
            found = samples(work_of(tx), stored, after=after, limit=_PAGE)
        for one in found:
            tokens = Tokens(one.token_input, one.token_output, one.token_cache_read, one.token_cache_write)
            attributes: dict[str, Any] = {gen_ai.OPERATION: gen_ai.CHAT, **shared, **attributes_of(tokens)}
            if one.cost_usd_micros is not None:
                attributes[gen_ai.COST] = one.cost_usd_micros / _MICROS
            id = span_id("usage sample", f"{known} {one.occurred_at.isoformat()}")
            yield StoredSpan(
                trace, id, None, gen_ai.CHAT, "client", one.occurred_at, _shifted(one.occurred_at, _SECOND), attributes
            )
        if len(found) < _PAGE:
            return
        after = found[-1].occurred_at


def _tools(
    store: Store, stored: str, known: str, trace: str, shared: dict[str, Any], since: datetime | None
) -> Iterator[StoredSpan]:
    before: int | None = None
    while True:
        with store.read() as tx:
            calls = tx.telemetry.tools.last(_PAGE, before=before, instance_id=known or None)
        for call in calls:
            if since is not None and call.occurred_at < since:
                continue
            attributes = {gen_ai.OPERATION: gen_ai.EXECUTE_TOOL, **shared, gen_ai.TOOL: call.tool_key}
            if call.exit_code is not None:
                attributes["persist.exit_code"] = call.exit_code
            lasted = min(max(0, call.duration_ms or 0), _LONGEST_MS)
            end = _shifted(call.occurred_at, timedelta(milliseconds=lasted))
            failed = f"exit {call.exit_code}" if call.exit_code else None
            name = f"{gen_ai.EXECUTE_TOOL} {call.tool_key}"
            id = span_id("tool call", f"{known} {call.id}")
            yield StoredSpan(trace, id, None, name, "internal", call.occurred_at, end, attributes, failed)
        if len(calls) < _PAGE:
            return
        before = calls[-1].id


def _shifted(at: datetime, by: timedelta) -> datetime:
    """The instant after that time, or the end of the calendar that it would pass."""
    try:
        return at + by
    except OverflowError:
        return _FIRST if by < timedelta(0) else _LAST


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


Domain = Literal["chat", "workflows", "telemetry"]
DOMAINS: tuple[Domain, ...] = ("chat", "workflows", "telemetry")
_LISTED = 100


def spans(
    store: Store | AsyncStore, *, domains: Iterable[Domain] = DOMAINS, since: datetime | None = None, content: bool = False
) -> Iterator[StoredSpan]:
    """What the store holds, as spans: a parent before its children, and the same ids in every export.

    chat        a trace per session: an agent's invocation, in it a model call per answer, in it the tools that it called
    workflows   a trace per run: a workflow's invocation, in it an agent's invocation per execution
    telemetry   a trace per instance: its usage by the second, and its tool calls

    since    only sessions and runs that changed then or later, and telemetry of then or later
    content  also the arguments and results of tools

    It reads in several short snapshots. With an AsyncStore iterate in a thread, since it blocks. Rows that cannot be read are
    left out, with a warning of the logger `persist`.
    """
    chosen = tuple(domains)
    for domain in chosen:
        if domain not in DOMAINS:
            raise InvalidValue("domains", f"{shown(domain)} is none of {', '.join(DOMAINS)}.")
    whole = check_flag("content", content)
    begin = None if since is None else as_utc("since", since)
    source = store._store if isinstance(store, AsyncStore) else store
    makers: dict[Domain, Callable[[], Iterator[StoredSpan]]] = {
        "chat": lambda: _chat(source, begin, whole),
        "workflows": lambda: _workflows(source, begin),
        "telemetry": lambda: _telemetry(source, begin),
    }
    return (span for domain in DOMAINS if domain in chosen for span in makers[domain]())


def _listed(store: Store, page: Callable[[Transaction, str | None], Page[T]]) -> Iterator[T]:
    after: str | None = None
    while True:
        with store.read() as tx:
            found = page(tx, after)
        yield from found.items
        if (after := found.cursor) is None:
            return


def _chat(store: Store, since: datetime | None, content: bool) -> Iterator[StoredSpan]:
    for session in _listed(store, lambda tx, after: tx.chat.sessions.list(include_archived=True, limit=_LISTED, after=after)):
        if since is not None and session.updated_at < since:
            continue
        with store.read() as tx:
            try:
                found = session_spans(work_of(tx), session, content=content)
            except NotFound:  # deleted since the list was read
                continue
        yield from found


def _workflows(store: Store, since: datetime | None) -> Iterator[StoredSpan]:
    for run in _listed(store, lambda tx, after: tx.workflows.runs.list(limit=_LISTED, after=after)):
        if since is not None and run.updated_at < since:
            continue
        with store.read() as tx:
            try:
                executions = tx.workflows.executions.for_run(run.id)
            except NotFound:  # pruned since the list was read
                continue
        yield from run_spans(run, executions)
    for execution in _listed(store, lambda tx, after: tx.workflows.executions.list(limit=_LISTED, after=after)):
        if execution.workflow_run_id is None and (since is None or (execution.finished_at or execution.started_at) >= since):
            yield _execution(execution, trace_id("execution", execution.id), None)  # a trace of its own


def _telemetry(store: Store, since: datetime | None) -> Iterator[StoredSpan]:
    with store.read() as tx:
        found = instances(work_of(tx))
    for instance_id in found:
        yield from instance_spans(store, instance_id, since)
