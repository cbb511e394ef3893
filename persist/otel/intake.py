"""What a span of an instrumented SDK says that is worth storing, and the one place where it is stored."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from persist.db.values.clock import EPOCH, epoch_us
from persist.otel import conventions as gen_ai
from persist.otel.conventions import Tokens, tokens_of
from persist.store.transaction import Transaction
from persist.usage.writing import MOST

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_MICROS = 1_000_000
_LAST = datetime(9999, 12, 31, tzinfo=UTC)
_LAST_US = epoch_us(_LAST)


class ObservedCall(NamedTuple):
    """A call of a model, with its tokens, or of a tool, with its name.

    trace_id, span_id   hexadecimal digits; together they tell one call from all others
    tool                None for a call of a model
    error               the type of the error, None if the call succeeded
    """

    trace_id: str
    span_id: str
    began_at: datetime
    ended_at: datetime
    operation: str
    provider: str | None
    model: str | None
    agent: str | None
    tokens: Tokens | None
    cost_usd_micros: int | None
    tool: str | None
    error: str | None

    @property
    def duration_ms(self) -> int:
        """How long the call took."""
        return max(0, (self.ended_at - self.began_at) // timedelta(milliseconds=1))


def observed(span: "ReadableSpan") -> ObservedCall | None:
    """A span as a call; None unless a model used tokens or a tool ran. Agents' and workflows' tokens belong to calls inside."""
    attributes: Any = span.attributes or {}
    operation, context = attributes.get(gen_ai.OPERATION), span.get_span_context()
    if not isinstance(operation, str) or context is None or span.start_time is None or span.end_time is None:
        return None
    tool = (_text(attributes.get(gen_ai.TOOL)) or span.name) if operation == gen_ai.EXECUTE_TOOL else None
    tokens = tokens_of(attributes) if operation in gen_ai.MODEL_CALLS else None
    if tool is None and tokens is None:
        return None
    failed = span.status.is_ok is False
    return ObservedCall(
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        began_at=_instant(span.start_time),
        ended_at=_instant(span.end_time),
        operation=operation,
        provider=_text(attributes.get(gen_ai.PROVIDER)) or _text(attributes.get(gen_ai.SYSTEM)),
        model=_text(attributes.get(gen_ai.RESPONSE_MODEL)) or _text(attributes.get(gen_ai.REQUEST_MODEL)),
        agent=_text(attributes.get(gen_ai.AGENT)),
        tokens=tokens,
        cost_usd_micros=_micros(attributes.get(gen_ai.COST)),
        tool=tool,
        error=(_text(attributes.get("error.type")) or "error") if failed else None,
    )


def record_call(tx: Transaction, call: ObservedCall, instance_id: str | None) -> None:
    """Store one call as telemetry of an instance. This is the only place that writes what spans say."""
    if call.tool is not None:
        tx.telemetry.tools.record(
            call.tool,
            exit_code=0 if call.error is None else 1,
            duration_ms=call.duration_ms,
            at=call.began_at,
            instance_id=instance_id,
        )
    if call.tokens is not None:
        # by its key a call is counted once, also after a restart
        model = {} if call.model is None else _of_model(call)
        tx.telemetry.usage.sample(
            at=call.ended_at,
            token_input=call.tokens.input,
            token_output=_with(call.tokens.output, call.tokens.reasoning),
            token_cache_read=call.tokens.cache_read,
            token_cache_write=call.tokens.cache_write,
            cost_usd_micros=call.cost_usd_micros,
            instance_id=instance_id,
            **model,
        )


def _of_model(call: ObservedCall) -> dict[str, Any]:
    return {
        "model": call.model,
        "provider": call.provider,
        "operation": call.operation,
        "agent": call.agent,
        "token_reasoning": None if call.tokens is None else call.tokens.reasoning,
        "trace_id": call.trace_id,
        "span_id": call.span_id,
        "duration_ms": call.duration_ms,
        "error": call.error,
        "key": f"{call.trace_id}-{call.span_id}",
    }


def _with(output: int | None, reasoning: int | None) -> int | None:
    """The output of a stored call, of which reasoning is a part."""
    return output if reasoning is None else (output or 0) + reasoning


def _instant(nanos: int) -> datetime:
    """The instant of nanoseconds since 1970; one outside of the years 1970 to 9999 becomes their begin or end."""
    return EPOCH + timedelta(microseconds=min(max(0, nanos // 1000), _LAST_US))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _micros(cost: object) -> int | None:
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost <= MOST / _MICROS:
        return None  # so is an infinite one, and one that is no number
    return min(MOST, round(cost * _MICROS))
