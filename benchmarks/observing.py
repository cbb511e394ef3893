"""What traces and metrics cost: the same work in a store that makes them, and in one that does not.

Spans go through the SDK's batches to an exporter that drops them.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.goals import reached
from benchmarks.measure import Operation, Row, interleaved, middle, us
from benchmarks.place import Place
from benchmarks.recording import CHUNK, begin_text
from persist import Store, otel

_CHUNKS, _TRANSACTIONS = 2000, 600


class Dropped(SpanExporter):
    """Exports nothing."""

    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def rows(place: Place) -> Iterator[Row]:
    """On a file."""
    with ExitStack() as stack:
        tracers, meters = TracerProvider(shutdown_on_exit=False), MeterProvider(shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(Dropped()))
        stack.callback(tracers.shutdown)
        stack.callback(meters.shutdown)
        stores = {name: stack.enter_context(Store.open(place.file(f"observed-{name}"))) for name in ("off", "on", "statements")}
        otel.instrument(stores["on"], tracer_provider=tracers, meter_provider=meters)
        otel.instrument(stores["statements"], tracer_provider=tracers, meter_provider=meters, statements=True)
        chunk = _chunks(stores, _CHUNKS // 4 if place.quick else _CHUNKS)
        yield reached("observed-chunk", chunk["on"] / chunk["off"], f"{us(chunk['on'])} vs {us(chunk['off'])}")
        yield _beside("  … with a span for each statement", chunk)
        whole = _transactions(stores, _TRANSACTIONS // 4 if place.quick else _TRANSACTIONS)
        yield Row("begin, append and commit, traced vs not", whole["on"] / whole["off"], float("inf"), _detail(whole, "on"))
        yield _beside("  … with a span for each statement", whole)


def _beside(what: str, taken: dict[str, float]) -> Row:
    return Row(what, taken["statements"] / taken["off"], float("inf"), _detail(taken, "statements"))


def _detail(taken: dict[str, float], name: str) -> str:
    return f"{us(taken[name])} vs {us(taken['off'])}"


def _chunks(stores: dict[str, Store], chunks: int) -> dict[str, float]:
    with ExitStack() as stack:
        feed: dict[str, Operation] = {}
        for name, store in stores.items():
            recorder = stack.enter_context(store.record(_session(store)))
            begin_text(recorder)
            feed[name] = partial(recorder.feed, CHUNK)
        return {name: middle(seconds) for name, seconds in interleaved(feed, rounds=chunks, warm=50).items()}


def _transactions(stores: dict[str, Store], transactions: int) -> dict[str, float]:
    append = {name: _append(store, _session(store)) for name, store in stores.items()}
    return {name: middle(seconds) for name, seconds in interleaved(append, rounds=transactions, warm=20).items()}


def _append(store: Store, session_id: str) -> Callable[[], object]:
    def append() -> None:
        with store.begin() as tx:
            tx.chat.messages.append(session_id, role="user", parts=[{"type": "text", "text": "hi"}])

    return append


def _session(store: Store) -> str:
    with store.begin() as tx:
        return tx.chat.sessions.create(agent="bench", model={}).id
