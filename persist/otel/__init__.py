"""OpenTelemetry both ways: traces and metrics of a store, stored rows as spans, and spans of agent SDKs as stored rows.

`spans` needs nothing else. `instrument` needs the extra `otel`, `SpanProcessor` an SDK of OpenTelemetry.
"""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

if TYPE_CHECKING:
    from persist.otel.instruments import instrument as instrument
    from persist.otel.processor import SpanProcessor as SpanProcessor
    from persist.otel.stored_spans import StoredSpan as StoredSpan
    from persist.otel.stored_spans import spans as spans
lazy_names(globals())
