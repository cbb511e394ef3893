"""`instrument`: from this call on, a store makes spans and metrics."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from persist.db.transactions.runtime import Runtime
from persist.errors import InvalidValue
from persist.store.async_store import AsyncStore
from persist.store.store import Store

try:
    from opentelemetry import metrics, trace
except ModuleNotFoundError as error:
    raise ImportError("persist.otel.instrument needs OpenTelemetry: pip install 'agent-persist[otel]'.") from error

from persist.otel.instruments import GLOBAL, Instruments
from persist.otel.tracing import StoreTracer

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

SCOPE = "persist"
"""The name of the instrumentation, by which `SpanProcessor` knows the spans of persist itself."""


def instrument(
    store: Store | AsyncStore,
    *,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
    statements: bool = False,
    name: str | None = None,
) -> Callable[[], None]:
    """Make spans and metrics of what the store does from now on. Return a function that ends this.

    tracer_provider, meter_provider   None: the global providers
    statements                        make a span for each statement, which costs more than the statement of a chunk
    name                              the attribute `persist.store` of the metrics; by default the file's name, or the schema

    A second call replaces the first. Recorders that were made before go on without spans.
    """
    runtime = _runtime(store)
    attributes = {"db.system.name": runtime.dialect.name, "persist.store": name or _name(runtime)}
    meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
    instruments = Instruments(meter, GLOBAL if meter_provider is None else meter_provider, runtime, attributes)
    tracer = StoreTracer(
        trace.get_tracer(SCOPE, tracer_provider=tracer_provider),
        attributes,
        statements=statements,
        duration=instruments.duration,
        waits=instruments.waits,
        commits=instruments.commits,
        end=instruments.end,
        code_of=runtime.errors.code_of,
    )
    former, runtime.tracer = runtime.tracer, tracer
    if isinstance(former, StoreTracer):
        former.end()

    def end() -> None:
        tracer.end()
        if runtime.tracer is tracer:
            runtime.tracer = None

    return end


def _runtime(store: object) -> Runtime:
    if isinstance(store, AsyncStore):
        return store._runtime
    if isinstance(store, Store):
        return store.runtime
    raise InvalidValue("store", f"expected a Store or an AsyncStore, got {type(store).__name__}.")


def _name(runtime: Runtime) -> str:
    path = runtime.dialect.path
    return path.name if path is not None else runtime.dialect.schema or ":memory:"
