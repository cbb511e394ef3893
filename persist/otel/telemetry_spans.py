"""The usage and the tool calls of one instance as a trace."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from persist.otel import conventions as gen_ai
from persist.otel.conventions import Tokens, attributes_of
from persist.otel.stored_spans import StoredSpan, span_id, trace_id
from persist.store.store import Store
from persist.store.transaction import work_of
from persist.telemetry.samples import samples

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
    yield from _usage(store, instance_id, known, trace, shared, since)
    yield from _tools(store, instance_id, known, trace, shared, since)


def _usage(
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
