"""OpenTelemetry both ways: traces and metrics of a store, what it stores as spans, and spans of agent SDKs as what it stores.

`spans` needs nothing else. `instrument` needs the extra `otel`, `SpanProcessor` an SDK of OpenTelemetry.
"""

from persist.lazy_imports import lazy_names

with lazy_names(globals()):
    from persist.otel.instrumenting import instrument
    from persist.otel.processor import SpanProcessor
    from persist.otel.stored_spans import StoredSpan
    from persist.otel.storing import spans

__all__ = ["SpanProcessor", "StoredSpan", "instrument", "spans"]
