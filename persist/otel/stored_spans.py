"""A span that was made from what is stored: its value, its ids, and the forms in which it leaves."""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from persist.db.values.clock import epoch_ms

_KINDS = {"internal": 1, "client": 3}
_STATUS_ERROR = 2
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_MAX_NANOS = INT64_MAX // 1_000_000 * 1_000_000


def trace_id(kind: str, id: str) -> str:
    """The id of the trace of a stored thing: the same in every export, 32 hexadecimal digits."""
    return hashlib.sha256(f"persist trace {kind} {id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def span_id(kind: str, id: str) -> str:
    """The id of the span of a stored thing: the same in every export, 16 hexadecimal digits."""
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
    """Spans as one request of OTLP, which is what a line of an export holds and what `/v1/traces` of a collector takes."""
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
