"""Spans of transactions, verbs, statements and recorders' turns. Of what is stored they name sessions, agents and models."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from persist.db.observation import Outcome, RecorderTally, TurnTrace
from persist.db.transactions.repository import Repository, on_demand
from persist.domains import Domains, domain_of_module

# What a verb is called in spans: `chat.messages.append`, as a caller writes it after `tx.`.


@cache
def verb_name(module: str, qualified: str) -> str:
    """Return domain, aggregate and verb of a function, by module and qualified name; other functions keep their own name."""
    domain = domain_of_module(module)
    if not domain:
        return qualified
    owner, _, verb = qualified.rpartition(".")
    aggregate = _aggregates(domain).get(owner)
    return ".".join(part for part in (domain, aggregate, verb) if part)


@cache
def _aggregates(domain: str) -> dict[str, str]:
    """By the names of the classes of the domain's repositories, bases included: the name of the attribute."""
    found: dict[str, str] = {}
    attribute = vars(Domains).get(domain)
    if not isinstance(attribute, on_demand):
        return found
    kind = attribute.kind
    makers = {name: one.kind for name in dir(kind) if isinstance(one := getattr(kind, name), on_demand)}
    made = {} if issubclass(kind, Repository) else vars(kind(None))  # some domains make their repositories at once
    kinds = makers | {name: type(one) for name, one in made.items() if isinstance(one, Repository)}
    for name, repository in kinds.items():
        found |= {base.__name__: name for base in repository.__mro__ if base.__name__ not in found}
    return found


# What persist does for OpenTelemetry itself makes no spans: it would go on for ever.

_QUIET = otel_context.create_key("persist-quiet")


@contextmanager
def quiet() -> Iterator[None]:
    """Trace no transaction that is made inside the block."""
    token = otel_context.attach(otel_context.set_value(_QUIET, True))
    try:
        yield
    finally:
        otel_context.detach(token)


log = logging.getLogger("persist")
_SECOND = 1_000_000_000


class StoreTracer:
    """Makes the spans of one store. `statements`: also one for each statement."""

    def __init__(
        self,
        tracer: trace.Tracer,
        attributes: Mapping[str, Any],
        *,
        statements: bool,
        duration: Histogram,
        waits: Histogram,
        commits: Histogram,
        end: Callable[[], None],
        code_of: Callable[[BaseException], str | None],
    ) -> None:
        self.tracer, self.attributes, self.statements = tracer, dict(attributes), statements
        self.duration, self.waits, self.commits, self.end = duration, waits, commits, end
        self._code_of = code_of

    def context(self) -> Context:
        return otel_context.get_current()

    def transaction(self, *, writable: bool, joined: bool) -> "Transaction | None":
        """A transaction is made, in the caller's context. None: it is not to be traced."""
        return None if otel_context.get_value(_QUIET) is not None else Transaction(self, writable=writable, joined=joined)

    def turn(self, session_id: str, options: Mapping[str, Any]) -> "Turn":
        return Turn(self, session_id, options)

    def recorders(self, what: str, turns: Sequence[TurnTrace]) -> "RecorderWrite":
        return RecorderWrite(self, what, [turn for turn in turns if isinstance(turn, Turn)])

    def start(self, name: str, kind: SpanKind, context: Context | None, start: int | None = None, **given: Any) -> Span:
        """Begin a span of the store. `start`: nanoseconds since 1970, now if None."""
        attributes = {**self.attributes, **given.pop("attributes")}
        try:
            return self.tracer.start_span(name, context, kind, attributes, start_time=start, record_exception=False, **given)
        except Exception as error:  # a sampler's or a processor's: the transaction holds a lock, and goes on
            _tell(error)
            return trace.INVALID_SPAN

    def fail(self, span: Span, error: BaseException | None) -> None:
        """Mark the span as failed. Neither the error's message nor its traceback, which may quote content."""
        if error is None:
            return
        kind = type(error)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        span.set_status(Status(StatusCode.ERROR))
        span.set_attribute("error.type", name)
        if (code := self._code_of(error)) is not None:
            span.set_attribute("db.response.status_code", code)

    def statement(self, parent: Span, sql: str, seconds: float, rows: int, error: BaseException | None) -> None:
        """A span of a statement that has ended now."""
        end = time.time_ns()
        verb = sql.split(None, 1)[0].upper() if sql else "STATEMENT"
        span = self.start(
            verb,
            SpanKind.CLIENT,
            trace.set_span_in_context(parent, Context()),
            end - int(seconds * _SECOND),
            attributes={"db.operation.name": verb, "db.query.text": sql},
        )
        if rows >= 0:
            span.set_attribute("persist.rows", rows)
        self.fail(span, error)
        _end(span, end)


def _end(span: Span, at: int | None = None) -> None:
    """End a span. What a processor raises must not look like the end of the transaction, which may have committed."""
    try:
        span.end(at)
    except Exception as error:
        _tell(error)


def _tell(error: Exception) -> None:
    log.warning("a span was not made or not exported: its tracer raised %s", type(error).__name__)


class Transaction:
    """One transaction: its span, and the spans of its verbs and statements. In a caller's transaction only the latter."""

    __slots__ = ("_asked", "_context", "_error", "_joined", "_rows", "_sent", "_span", "_store", "_verb", "_writable", "retries")

    def __init__(self, store: StoreTracer, *, writable: bool, joined: bool) -> None:
        self._store, self._writable, self._joined = store, writable, joined
        self._context: Context | None = None if joined else otel_context.get_current()
        self._asked = time.time_ns()
        self._span: Span | None = None
        self._verb: Verb | None = None
        self._error: BaseException | None = None
        self._rows = self._sent = 0
        self.retries = 0

    def within(self, context: Context | None, retries: int) -> None:
        """Take the context of the call, unless it is None, and the number of earlier attempts."""
        if context is not None:
            self._context = context
        self.retries = retries

    def began(self, waited: float) -> None:
        span = self._start()
        span.set_attribute("persist.wait", waited)
        if self._writable:
            self._store.waits.record(waited, self._store.attributes)

    def _start(self) -> Span:
        name = "transaction" if self._writable else "snapshot"
        attributes: dict[str, Any] = {"db.operation.name": name}
        if self.retries:
            attributes["persist.retries"] = self.retries
        self._span = self._store.start(name, SpanKind.CLIENT, self._context, self._asked, attributes=attributes)
        return self._span

    def verb(self, module: str, name: str) -> "Verb":
        self._verb = verb = Verb(self, self._store, verb_name(module, name))
        return verb

    @property
    def context(self) -> Context | None:
        """Where the spans of verbs belong; None: the caller's context, for a joined transaction."""
        return None if self._span is None else trace.set_span_in_context(self._span, self._context)

    def verb_ended(self, error: BaseException | None) -> None:
        """Take note of how the running verb ended."""
        self._verb = None
        self._error = error or self._error

    def statement(self, sql: str, seconds: float, rows: int, sent: int, error: BaseException | None) -> None:
        self._sent += sent
        self._rows += max(rows, 0)
        verb = self._verb
        if verb is not None:
            verb.sent += sent
            verb.rows += max(rows, 0)
        parent = self._span if verb is None else verb.span
        if self._store.statements and parent is not None:
            self._store.statement(parent, sql, seconds, rows, error)

    def ended(self, outcome: Outcome, committing: float, error: BaseException | None) -> None:
        if self._joined:
            return
        span = self._span or self._start()
        span.set_attributes({"persist.outcome": outcome, "persist.rows": self._rows, "persist.bytes": self._sent})
        if outcome == "committed":
            span.set_attribute("persist.commit", committing)
            self._store.commits.record(committing, self._store.attributes)
        elif outcome != "read" or error is not None:
            self._store.fail(span, error or self._error)
        _end(span)


class Verb:
    """One verb: a span that is the current one while the verb runs."""

    __slots__ = ("_began", "_name", "_store", "_token", "_transaction", "rows", "sent", "span")

    def __init__(self, transaction: Transaction, store: StoreTracer, name: str) -> None:
        self._transaction, self._store, self._name = transaction, store, name
        self.rows = self.sent = 0
        domain, _, rest = name.rpartition(".")[0].partition(".")
        attributes = {
            "db.operation.name": name,
            "persist.domain": domain,
            "persist.aggregate": rest,
            "persist.verb": name.rpartition(".")[2],
        }
        context = transaction.context
        self._began = time.perf_counter()
        self.span = store.start(name, SpanKind.INTERNAL, context, attributes=attributes)
        self._token = otel_context.attach(trace.set_span_in_context(self.span, context))

    def ended(self, result: object, error: BaseException | None) -> None:
        otel_context.detach(self._token)
        span = self.span
        span.set_attributes({"persist.rows": self.rows, "persist.bytes": self.sent, "persist.retries": self._transaction.retries})
        returned = _returned(result)
        if error is None and returned is not None:
            span.set_attribute("db.response.returned_rows", returned)
        self._store.fail(span, error)
        self._transaction.verb_ended(error)
        _end(span)
        attributes = {**self._store.attributes, "db.operation.name": self._name}
        if error is not None:
            attributes["error.type"] = type(error).__name__
        self._store.duration.record(time.perf_counter() - self._began, attributes)


def _returned(result: object) -> int | None:
    """How many values a verb returned; None if it returned no list."""
    items = getattr(result, "items", result)
    return len(items) if isinstance(items, list | tuple) else None


class Turn:
    """One turn of a recorder. Its span begins with its first transaction; rows of growing text are counted in it."""

    __slots__ = ("_attributes", "_began", "_context", "_ended", "_span", "_store")

    def __init__(self, store: StoreTracer, session_id: str, options: Mapping[str, Any]) -> None:
        self._store = store
        self._context = otel_context.get_current()
        self._began = time.time_ns()
        self._ended = False
        self._span: Span | None = None
        named = {
            "gen_ai.agent.name": options.get("agent"),
            "gen_ai.provider.name": options.get("provider"),
            "gen_ai.request.model": options.get("model"),
            "persist.save_on": options.get("save_on"),
        }
        self._attributes = {name: value for name, value in named.items() if isinstance(value, str)}
        self._attributes |= {"gen_ai.conversation.id": session_id, "db.operation.name": "chat.record"}

    @property
    def span(self) -> Span:
        if self._span is None:
            self._span = self._store.start(
                "chat.record", SpanKind.INTERNAL, self._context, self._began, attributes=self._attributes
            )
        return self._span

    @property
    def context(self) -> Context:
        return trace.set_span_in_context(self.span, self._context)

    def ended(self, tally: RecorderTally, error: BaseException | None) -> None:
        if self._ended or self._span is None:
            self._ended = True
            return
        self._ended = True
        counts = {"persist.chunks": tally.chunks, "persist.bytes": tally.bytes, "persist.folds": tally.folds}
        self._span.set_attributes(counts)
        self._store.fail(self._span, error)
        _end(self._span)


class RecorderWrite:
    """One transaction of recorders: a child of its turn, or linked with the turns of its tasks."""

    __slots__ = ("_rows", "_sent", "_span", "_store")

    def __init__(self, store: StoreTracer, what: str, turns: Sequence[Turn]) -> None:
        self._store = store
        self._rows = self._sent = 0
        context = turns[0].context if len(turns) == 1 else Context() if turns else None
        links = [Link(turn.span.get_span_context()) for turn in turns] if len(turns) > 1 else []
        attributes = {"db.operation.name": what, "persist.turns": len(turns)}
        self._span = store.start("chat.record.write", SpanKind.CLIENT, context, links=links, attributes=attributes)

    def statement(self, sql: str, seconds: float, rows: int, sent: int, error: BaseException | None) -> None:
        self._sent += sent
        self._rows += max(rows, 0)
        if self._store.statements:
            self._store.statement(self._span, sql, seconds, rows, error)

    def ended(self, error: BaseException | None) -> None:
        if self._store.statements:
            self._span.set_attributes({"persist.rows": self._rows, "persist.bytes": self._sent})
        self._store.fail(self._span, error)
        _end(self._span)
