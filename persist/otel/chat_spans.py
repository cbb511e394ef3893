"""A chat session as a trace."""

import json
from collections import defaultdict
from datetime import datetime
from typing import Any

from persist.chat.schemas import ChatMessage, ChatSession, Role, ToolState
from persist.chat.storage import transcript
from persist.chat.storage.tool_calls import ToolCallPart, tool_calls
from persist.chat.storage.usage import usage_of
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.otel import conventions as gen_ai
from persist.otel.conventions import Tokens, attributes_of
from persist.otel.stored_spans import StoredSpan, span_id, trace_id


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
    message: ChatMessage,
    session: ChatSession,
    trace: str,
    root: str,
    id: str,
    shared: dict[str, Any],
    calls: list[ToolCallPart],
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
