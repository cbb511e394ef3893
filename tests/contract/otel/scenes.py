"""What the tests of observation share: a real SDK that keeps spans and metrics in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from persist import otel


class Collector:
    """Where spans and metrics arrive."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(), MeterProvider([self.reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.host = self.tracers.get_tracer("host")

    def take(self) -> list[ReadableSpan]:
        """The spans that have ended since the last call, in the order of their ends."""
        found = list(self.exporter.get_finished_spans())
        self.exporter.clear()
        return found

    def metrics(self) -> dict[str, dict[str, Any]]:
        """By instrument, and by the value of the attribute that tells its points apart ("" without one)."""
        found: dict[str, dict[str, Any]] = {}
        data: Any = self.reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else []:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in metric.data.data_points:
                    rest = [v for k, v in point.attributes.items() if k not in ("db.system.name", "persist.store")]
                    found.setdefault(metric.name, {})[",".join(map(str, rest))] = getattr(point, "value", None) or getattr(
                        point, "count", 0
                    )
        return found


def real(store: Any) -> Any:
    """The store itself, without what drives an AsyncStore from synchronous tests."""
    return getattr(store, "_target", store)


@contextmanager
def instrumented(store: Any, **options: Any) -> Iterator[Collector]:
    """Collect what the store tells inside the block."""
    collector = Collector()
    end = otel.instrument(real(store), tracer_provider=collector.tracers, meter_provider=collector.meters, **options)
    try:
        yield collector
    finally:
        end()
        collector.tracers.shutdown()
        collector.meters.shutdown()


def named(spans: list[ReadableSpan], name: str) -> list[ReadableSpan]:
    """Those of that name."""
    return [span for span in spans if span.name == name]


def only(spans: list[ReadableSpan], name: str) -> ReadableSpan:
    """The one of that name."""
    (found,) = named(spans, name)
    return found


def of(span: ReadableSpan) -> Any:
    """The attributes of a span."""
    return span.attributes


def parent(span: ReadableSpan) -> int | None:
    """The id of a span's parent."""
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    """The id of a span."""
    context: Any = span.get_span_context()
    return int(context.span_id)


def tree(spans: list[ReadableSpan]) -> list[str]:
    """The names, each after its parent's, and further to the right."""
    known = {id_of(span): span for span in spans}

    def depth(span: ReadableSpan) -> int:
        above = known.get(parent(span) or 0)
        return 0 if above is None else 1 + depth(above)

    return [f"{'  ' * depth(span)}{span.name}" for span in sorted(spans, key=lambda span: span.start_time or 0)]


def fail_after_writing(store: Any, session_id: str, error: Exception) -> None:
    """A transaction that writes the word swordfish, and that the error then ends."""
    try:
        with store.begin() as tx:
            tx.chat.messages.append(session_id, role="user", parts=[{"type": "text", "text": "swordfish"}])
            raise error
    except type(error):
        pass


def below(spans: list[ReadableSpan], above: ReadableSpan) -> set[str]:
    """The names of a span's children."""
    return {span.name for span in spans if parent(span) == id_of(above)}
