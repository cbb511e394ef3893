"""`instrument`: from this call on, a store makes spans and metrics. Observed instruments read `Store.metrics`, once for all."""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
except ModuleNotFoundError as error:
    raise ImportError("persist.otel.instrument needs OpenTelemetry: pip install 'agent-persist[otel]'.") from error

from persist.db.transactions.runtime import Runtime
from persist.errors import InvalidValue, PersistError
from persist.otel.tracing import StoreTracer, quiet
from persist.store.async_store import AsyncStore
from persist.store.metrics import Metrics, metrics_of
from persist.store.store import Store

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

log = logging.getLogger("persist")

_FRESH = 0.5
"""Seconds for which a reading serves instruments that are collected one after the other."""

Read = Callable[[Metrics], "float | dict[str, int] | None"]

COUNTERS: dict[str, tuple[str, str, Read, str]] = {
    "persist.transactions": ("{transaction}", "Transactions that ended.", lambda m: m.transactions, "persist.outcome"),
    "persist.transaction.wait.time": ("s", "Waiting for write transactions to begin.", lambda m: m.wait_seconds, ""),
    "persist.transaction.commit.time": ("s", "COMMITs that were sent by themselves.", lambda m: m.commit_seconds, ""),
    "persist.retries": ("{attempt}", "Repeated attempts.", lambda m: m.retries, "persist.cause"),
    "persist.recorder.turns": ("{turn}", "Recorders that ended.", lambda m: m.recorders_ended, ""),
    "persist.recorder.chunks": ("{chunk}", "Chunks that recorders were fed.", lambda m: m.chunks, ""),
    "persist.recorder.text": ("By", "Text in these chunks.", lambda m: m.text_bytes, ""),
    "persist.recorder.folds": ("{part}", "Parts that were folded.", lambda m: m.folds, ""),
    "persist.recorder.commits": ("{commit}", "Commits of recorders.", lambda m: m.recorder_commits, ""),
    "persist.recorder.wait.time": ("s", "Waiting of recorders for the lock.", lambda m: m.recorder_wait_seconds, ""),
    "persist.group.commits": ("{commit}", "Group commits.", lambda m: m.groups, ""),
    "persist.group.tasks": ("{task}", "Tasks in group commits.", lambda m: m.grouped, ""),
    "persist.follower.looks": ("{look}", "Looks of followers after a change.", lambda m: m.follower_looks, ""),
    "persist.follower.lag.time": ("s", "From a change to the end of the look.", lambda m: m.follower_lag_seconds, ""),
    "persist.leases.lost": ("{lease}", "Runs that workers lost.", lambda m: m.leases_lost, ""),
}
"""By name: unit, description, what is read, and for numbers by name the attribute that has the name."""

GAUGES: dict[str, tuple[str, str, Read, str]] = {
    "persist.transactions.open": (
        "{transaction}",
        "Open transactions.",
        lambda m: {"writing": m.writing, "reading": m.reading},
        "persist.state",
    ),
    "persist.pool.connections": ("{connection}", "Connections that the pools have lent.", lambda m: m.connections, ""),
    "persist.recorders.open": ("{recorder}", "Open recorders.", lambda m: m.recorders, ""),
    "persist.group.largest": ("{task}", "Tasks in the largest group commit.", lambda m: m.largest_group, ""),
    "persist.wal.size": ("By", "The write-ahead log beside the file.", lambda m: m.wal_bytes, ""),
    "persist.queue.depth": ("{run}", "Runs that a worker could claim.", lambda m: m.queue_depth, ""),
    "persist.queue.age": ("s", "How long the oldest of them has waited.", lambda m: m.queue_age_seconds, ""),
    "persist.events.lag": ("{event}", "Events that a consumer has not acknowledged.", lambda m: m.consumers, "persist.consumer"),
}


class Observed:
    """The stores that one meter observes: of an instrument's name the SDK knows the callback alone that came first."""

    _of_providers: ClassVar["weakref.WeakKeyDictionary[object, Observed]"] = weakref.WeakKeyDictionary()
    _mutex = threading.Lock()

    def __init__(self, meter: Meter) -> None:
        self._stores: list[Instruments] = []
        for name, (unit, what, read, by) in COUNTERS.items():
            meter.create_observable_counter(name, [self._observer(read, by)], unit, what)
        for name, (unit, what, read, by) in GAUGES.items():
            meter.create_observable_gauge(name, [self._observer(read, by)], unit, what)

    @classmethod
    def of(cls, provider: object, meter: Meter) -> "Observed":
        with cls._mutex:
            found = cls._of_providers.get(provider)
            if found is None:
                found = cls._of_providers[provider] = cls(meter)
            return found

    def add(self, store: "Instruments") -> None:
        with self._mutex:
            self._stores = [one for one in self._stores if one.is_open] + [store]

    def _observer(self, read: Read, by: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> list[Observation]:
            return [found for store in self._stores for found in store.observe(read, by)]

        return observe


class _Global:
    """Stands for the global provider, whichever that is or becomes."""


GLOBAL = _Global()


class Instruments:
    """The instruments of one store. They hold it weakly, and observe nothing once it is closed."""

    def __init__(self, meter: Meter, provider: object, runtime: Runtime, attributes: Mapping[str, str]) -> None:
        self._runtime = weakref.ref(runtime)
        self._attributes = dict(attributes)
        self._mutex = threading.Lock()
        self._read_at = float("-inf")
        self._metrics: Metrics | None = None
        self._told = self._ended = False
        self.duration = meter.create_histogram("db.client.operation.duration", "s", "Duration of verbs.")
        self.waits = meter.create_histogram("persist.transaction.wait", "s", "Waiting of a write transaction to begin.")
        self.commits = meter.create_histogram("persist.transaction.commit", "s", "Duration of a COMMIT.")
        Observed.of(provider, meter).add(self)

    @property
    def is_open(self) -> bool:
        runtime = self._runtime()
        return not (runtime is None or runtime.closed or runtime.forked or self._ended)

    def end(self) -> None:
        self._ended = True

    def observe(self, read: Read, by: str) -> list[Observation]:
        metrics = self._reading()
        found: Any = None if metrics is None else read(metrics)
        if found is None:
            return []
        if isinstance(found, dict):
            return [Observation(number, {**self._attributes, by: key}) for key, number in found.items()]
        return [Observation(found, self._attributes)]

    def _reading(self) -> Metrics | None:
        runtime = self._runtime()
        if runtime is None or not self.is_open:
            return None
        with self._mutex:
            if time.monotonic() - self._read_at > _FRESH:
                with quiet():
                    self._metrics, self._read_at = self._read(runtime), time.monotonic()
            return self._metrics

    def _read(self, runtime: Runtime) -> Metrics | None:
        """Read what there is. The one connection of a database in memory is the host's own, and is left to it."""
        try:
            return metrics_of(runtime, database=not runtime.one_connection)
        except PersistError as error:
            if not self._told:
                log.warning("metrics of the database cannot be read now: %s", error)
            self._told = True
        try:
            return metrics_of(runtime, database=False)
        except PersistError:  # the store is being closed
            return None


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
