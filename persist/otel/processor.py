"""`SpanProcessor`: calls that instrumented SDKs report become telemetry of an instance."""

import logging
import threading
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

try:
    from opentelemetry.sdk.trace import SpanProcessor as _SdkSpanProcessor
except ModuleNotFoundError as error:
    raise ImportError(
        "persist.otel.SpanProcessor needs the SDK of OpenTelemetry: pip install 'agent-persist[otel]' opentelemetry-sdk."
    ) from error

from persist.db.concurrency.writer_lock import Cancelled
from persist.db.transactions.notifier import Outage
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import EPOCH, epoch_us
from persist.errors import InvalidValue, PersistError
from persist.otel import conventions as gen_ai
from persist.otel.conventions import Tokens, tokens_of
from persist.otel.tracing import quiet
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.store.transaction import Transaction, TransactionBlock, transact_with_retries, work_of
from persist.usage.writing import MOST

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, Span


_MICROS = 1_000_000
_LAST = datetime(9999, 12, 31, tzinfo=UTC)
_LAST_US = epoch_us(_LAST)


class ObservedCall(NamedTuple):
    """A call of a model, or of a `tool`. `trace_id` and `span_id`, in hexadecimal, tell it from all others; `error`: its type."""

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
    alike = ("model", "provider", "operation", "agent", "trace_id", "span_id", "duration_ms", "error")
    reasoning = None if call.tokens is None else call.tokens.reasoning
    return {
        **{name: getattr(call, name) for name in alike},
        "token_reasoning": reasoning,
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


log = logging.getLogger("persist")

_OWN = "persist"
_GRACE = 1.0
"""Seconds that a statement which `shutdown` has cancelled may take to end."""
_KNOWN = 10_000
"""The calls of so many spans are remembered, so that a span that is told twice is stored once."""


class SpanProcessor(_SdkSpanProcessor):
    """Takes model calls and tool calls from spans that ended, by the GenAI semantic conventions, and stores them in batches.

    For `TracerProvider.add_span_processor`. It never waits for the database in the thread that ends a span, and raises nothing
    there. A span is stored once, however often this processor is told of it.

    dropped   calls that found the buffer full, or came after `shutdown`
    failed    calls that the database refused, or that could not be written before `shutdown` ended; they are logged
    stored    calls that are stored
    """

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        instance_id: str | None = None,
        buffer: int = 2048,
        batch: int = 256,
        interval: float = 1.0,
    ) -> None:
        """`instance_id`: whose telemetry it is; None means the owner of the file.

        `buffer`: the most calls that wait. `batch`: the most in one transaction. `interval`: the longest wait, in seconds.
        """
        for name, value in (("buffer", buffer), ("batch", batch)):
            if type(value) is not int or value < 1:
                raise InvalidValue(name, "expected a whole number, 1 or more.")
        if not 0 < interval <= 3600:
            raise InvalidValue("interval", "expected seconds, more than 0 and at most 3600.")
        self._runtime: Runtime = store._runtime if isinstance(store, AsyncStore) else store.runtime
        if instance_id is None and not self._runtime.dialect.one_file:
            raise InvalidValue("instance_id", "this database holds those of many; say which.")
        self._instance_id = instance_id
        self._outage = Outage(self._runtime.errors, "calls that spans told of cannot be stored")
        self._buffer, self._batch, self._interval = buffer, batch, interval
        self._changed = threading.Condition()
        """Guards what follows; notified when there is something to store, and when it is stored."""
        self._waiting: deque[ObservedCall] = deque()
        self._known: dict[tuple[str, str], None] = {}
        self._thread: threading.Thread | None = None
        self._writing = self._stopping = False
        self._flushes = self._in_hand = 0
        self._late = False
        """Whether `shutdown` has waited long enough: what is not written then is given up."""
        self._transaction: UnitOfWork | None = None
        """The transaction of the batch that is being written."""
        self._told: object = None
        """Why the last calls were not stored, where `shutdown` is to say so of all of them at once."""
        self.dropped = self.failed = self.stored = 0

    def on_start(self, span: "Span", parent_context: "Context | None" = None) -> None:
        """Do nothing: a span says what it used when it ends."""

    def on_end(self, span: "ReadableSpan") -> None:
        """Keep what the span says for the next batch."""
        try:
            if span.instrumentation_scope is not None and span.instrumentation_scope.name == _OWN:
                return
            call = observed(span)
            if call is not None:
                self._keep(call)
        except Exception:  # whatever a span holds, its thread goes on
            log.exception("a span cannot be taken in")

    def _keep(self, call: ObservedCall) -> None:
        with self._changed:
            id = (call.trace_id, call.span_id)
            if id in self._known:
                return
            if self._stopping or self._runtime.forked or len(self._waiting) >= self._buffer:
                self.dropped += 1
                return
            self._known[id] = None
            if len(self._known) > _KNOWN:
                del self._known[next(iter(self._known))]
            self._waiting.append(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="persist-spans", daemon=True)
                self._thread.start()
            if len(self._waiting) in (1, self._batch):
                self._changed.notify_all()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Store what waits. False: it took too long, or could not be stored."""
        deadline = time.monotonic() + timeout_millis / 1000
        with self._changed:
            failed, self._flushes = self.failed, self._flushes + 1
            self._changed.notify_all()
            try:
                over = self._changed.wait_for(self._is_idle, max(0.0, deadline - time.monotonic()))
            finally:
                self._flushes -= 1
            return over and self.failed == failed

    def _is_idle(self) -> bool:
        return not self._waiting and not self._writing

    def shutdown(self, timeout_millis: int = 5_000) -> None:
        """Store what waits, then take nothing more. A second call does nothing.

        What is not stored after that time, as while another program holds the lock of a file, is given up: it counts as failed,
        and one record of the logger `persist` says how much it is.
        """
        with self._changed:
            thread, already, self._stopping, failed = self._thread, self._stopping, True, self.failed
            self._changed.notify_all()
        if thread is None or already or thread is threading.current_thread():
            return
        thread.join(max(0.0, timeout_millis / 1000))
        if thread.is_alive():
            self._give_up(thread)
        with self._changed:
            lost, told = self.failed - failed + self._in_hand, self._told
        if lost:
            log.warning(
                "%d calls that spans told of are not stored: %s", lost, told or "shutdown did not wait for them any longer"
            )

    def _give_up(self, thread: threading.Thread) -> None:
        with self._changed:
            self._late = True
            self.failed += len(self._waiting)
            self._waiting.clear()
            work = self._transaction
        if work is not None:  # in a thread of its own: a server that does not answer keeps it waiting
            threading.Thread(target=work.interrupt, name="persist-spans-end", daemon=True).start()
        thread.join(_GRACE)

    def _is_late(self, error: PersistError | None = None) -> bool:
        return self._late

    def _run(self) -> None:
        with quiet():
            self._work()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                self._changed.wait_for(self._is_due, self._interval)
                calls = [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]
                self._writing, self._in_hand = bool(calls), len(calls)
                if not calls and self._stopping:
                    return
            if calls:
                self._write(calls)
                with self._changed:
                    self._writing, self._in_hand = False, 0
                    self._changed.notify_all()

    def _is_due(self) -> bool:
        return self._stopping or len(self._waiting) >= self._batch or (self._flushes > 0 and bool(self._waiting))

    def _write(self, calls: list[ObservedCall]) -> None:
        """Store the calls together; if a call is refused, one by one."""
        try:
            transact_with_retries(self._runtime, self._block, lambda tx: self._record(tx, calls), over=self._is_late)
            self._outage.is_over()
            self.stored += len(calls)
            self._in_hand -= len(calls)
        except Cancelled as error:
            self._refused(calls, error)
        except Exception as error:
            if not self._stopping and self._outage.met(error):
                self._wait_with(calls)
            elif len(calls) == 1 or self._late or self._runtime.errors.is_outage(error):
                self._refused(calls, error)
            else:
                for call in calls:
                    self._write([call])
        finally:
            self._transaction = None

    def _wait_with(self, calls: list[ObservedCall]) -> None:
        """Keep the calls until the outage is over, or `shutdown` asks for them: the buffer bounds how many there are."""
        with self._changed:
            self._waiting.extendleft(reversed(calls))
            self._in_hand -= len(calls)
            self._changed.wait_for(lambda: self._stopping, self._outage.pause())

    def _block(self) -> TransactionBlock:
        return TransactionBlock(self._runtime, writable=True, cancelled=self._is_late)

    def _record(self, tx: Transaction, calls: list[ObservedCall]) -> None:
        self._transaction = work_of(tx)
        for call in calls:
            if self._late:
                raise Cancelled
            record_call(tx, call, self._instance_id)

    def _refused(self, calls: list[ObservedCall], error: BaseException) -> None:
        told: Any = error if isinstance(error, PersistError) else type(error).__name__
        with self._changed:
            self.failed += len(calls)
            self._in_hand -= len(calls)
            if self._stopping:
                self._told = None if self._late else told
                return
        log.warning("%d calls that spans told of are not stored: %s", len(calls), told)
