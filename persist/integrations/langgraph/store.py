"""PersistStore: LangGraph's store of long-term memory, over a store of persist."""

import array
import asyncio
import math
import operator
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from persist.db.values.arguments import check_count, check_kind, check_list, optional_count
from persist.errors import InvalidValue
from persist.framework_state.checkpoints.schemas import Memory
from persist.integrations.langgraph.options import check_index, check_ttl, fields_of, mapping, similarity_of
from persist.integrations.store_bridge import StoreBridge, on_asyncio
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.store.transaction import Transaction

T = TypeVar("T")
_SHARED = 200
"""The most calls that share a transaction: others may write in between, and what a transaction holds stays small."""
_READING = 4
"""How many transactions that read run at a time, so that a slow search does not hold up everything."""


class Coalescing:
    """Runs functions of one turn of an event loop in a shared transaction; if one fails, each runs again alone."""

    def __init__(self, bridge: StoreBridge) -> None:
        self._bridge = bridge
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[_Line, _Line]] = WeakKeyDictionary()

    async def run(self, function: Callable[[Transaction], T], *, writes: bool) -> T:
        """Run a function in a transaction. If cancelled before that begins it never runs; else its end is awaited."""
        self._bridge.refuse_inside_transaction(writes=writes)
        if not on_asyncio():  # such as on trio: each call has a transaction of its own
            return await self._bridge.run_async(function, writes=writes)
        loop = asyncio.get_running_loop()
        lines = self._lines.get(loop)
        if lines is None:
            made = _Line(self._bridge, writes=False, most=_READING), _Line(self._bridge, writes=True, most=1)
            lines = self._lines.setdefault(loop, made)
        result: T = await lines[writes].run(function)
        return result


class _Call:
    """A function that waits for its transaction, and the future of its result."""

    __slots__ = ("begun", "done", "function")

    def __init__(self, function: Callable[[Transaction], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.function = function
        self.begun = False
        self.done: asyncio.Future[Any] = loop.create_future()


class _Line:
    def __init__(self, bridge: StoreBridge, *, writes: bool, most: int) -> None:
        self._bridge, self._writes, self._most = bridge, writes, most
        self._waiting: deque[_Call] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._woken = False

    async def run(self, function: Callable[[Transaction], Any]) -> Any:
        loop = asyncio.get_running_loop()
        call = _Call(function, loop)
        self._waiting.append(call)
        if not self._woken and len(self._running) < self._most:
            self._woken = True
            loop.call_soon(self._start, context=Context())  # no caller's transaction is that of the others
        try:
            return await asyncio.shield(call.done)
        except asyncio.CancelledError:
            if not call.begun:
                call.done.cancel()
                raise
            while not call.done.done():
                try:
                    await asyncio.wait([call.done])
                except asyncio.CancelledError:
                    continue
            if not call.done.cancelled():
                call.done.exception()  # retrieved, so that asyncio does not log it
            raise

    def _start(self) -> None:
        self._woken = False
        while len(self._running) < self._most and (calls := self._next()):
            task = asyncio.get_running_loop().create_task(self._run(calls))
            self._running.add(task)
            task.add_done_callback(partial(self._ended, calls))

    def _next(self) -> list[_Call]:
        calls: list[_Call] = []
        while self._waiting and len(calls) < _SHARED:
            call = self._waiting.popleft()
            if not call.done.done():  # else it was cancelled while it waited
                call.begun = True
                calls.append(call)
        return calls

    def _ended(self, calls: Sequence[_Call], task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        for call in calls:
            call.done.cancel()  # only where the loop ended the task, else each is done
        self._start()

    async def _run(self, calls: Sequence[_Call]) -> None:
        try:
            results = await self._bridge.run_async(lambda tx: [call.function(tx) for call in calls], writes=self._writes)
        except Exception as error:
            if len(calls) > 1 and not self._bridge.is_outage(error):
                for call in calls:
                    await self._run([call])
                return
            for call in calls:
                call.done.set_exception(error)
        else:
            for call, result in zip(calls, results, strict=True):
                call.done.set_result(result)


_EQUAL: Mapping[str, Callable[[Any, Any], Any]] = {"$eq": operator.eq, "$ne": operator.ne}
_ORDERED: Mapping[str, Callable[[Any, Any], Any]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def matches(value: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """Whether an item's value matches a filter: for each key an equal value, or comparisons such as {"$gte": 3}."""
    return all(_equals(value.get(key), wanted) for key, wanted in (filter or {}).items())


def check_filter(filter: Mapping[str, Any] | None) -> None:
    """Raises ValueError for an unknown comparison operator."""
    for wanted in (filter or {}).values():
        if isinstance(wanted, Mapping):
            unknown = [name for name in wanted if str(name).startswith("$") and name not in _EQUAL and name not in _ORDERED]
            if unknown:
                raise ValueError(f"Unsupported operator: {unknown[0]}")
            check_filter(wanted)


def in_namespace(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Whether a namespace begins or ends with the condition's labels; the label "*" matches any."""
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"Unsupported match type: {condition.match_type}")
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[max(0, len(namespace) - len(path)) :]
    return len(part) == len(path) and all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))


def _equals(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compares(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, Mapping) and all(_equals(value.get(key), below) for key, below in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(_equals(one, other) for one, other in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _compares(value: Any, name: str, operand: Any) -> bool:
    if name in _EQUAL:
        return bool(_EQUAL[name](value, operand))
    if name not in _ORDERED:
        raise ValueError(f"Unsupported operator: {name}")
    try:
        return bool(_ORDERED[name](float(value), float(operand)))
    except (TypeError, ValueError):  # values that are not numbers are not ordered
        return False


Key = tuple[tuple[str, ...], str]


class Index:
    """A LangGraph store's `index` configuration: embedding function, dimensions, fields and similarity."""

    def __init__(self, config: IndexConfig) -> None:
        check_index(config)
        self.embeddings = ensure_embeddings(config.get("embed"))
        self._dims = config.get("dims")
        self._fields = [(path, path if path == "$" else tokenize_path(path)) for path in fields_of(config)]
        self._similarity = similarity_of(config)

    def texts(self, op: PutOp) -> dict[str, str]:
        if op.value is None or op.index is False:
            return {}
        fields = self._fields if op.index is None else [(path, tokenize_path(path)) for path in op.index]
        found: dict[str, str] = {}
        for path, tokens in fields:
            texts = get_text_at_path(op.value, tokens)
            found |= {f"{path}.{place}" if len(texts) > 1 else path: text for place, text in enumerate(texts)}
        return found

    def packed(self, vector: Sequence[float]) -> bytes:
        """A vector as little-endian 32-bit floats. Raises InvalidValue if it is not finite or has other dimensions."""
        if self._dims is not None and len(vector) != self._dims:
            raise InvalidValue("embedding", f"it has {len(vector)} dimensions, and the index has {self._dims}.")
        if not all(math.isfinite(number) for number in vector):
            raise InvalidValue("embedding", "it is not finite.")
        numbers = array.array("f", vector)
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers.tobytes()

    def scores(self, query: Sequence[float], stored: Iterable[tuple[tuple[str, ...], str, bytes]]) -> dict[Key, float]:
        """Each item's score: the similarity of its text nearest to the query."""
        best: dict[Key, float] = {}
        for namespace, key, data in stored:
            vector = unpacked(data)
            if len(vector) != len(query):
                raise InvalidValue("query", f"it has {len(query)} dimensions, and what is stored has {len(vector)}.")
            score = self._similarity(query, vector)
            best[namespace, key] = max(score, best.get((namespace, key), score))
        return best


def unpacked(data: bytes) -> Sequence[float]:
    """The numbers of a stored vector."""
    numbers = array.array("f", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def ranked(found: Sequence[Any], best: dict[Key, float], offset: int, limit: int) -> list[tuple[Any, float | None]]:
    """Items by falling score, from `offset`; if fewer than `limit`, filled up with items without a vector."""
    scored = sorted(
        (item for item in found if (item.namespace, item.key) in best), key=lambda item: -best[item.namespace, item.key]
    )
    nearest: list[tuple[Any, float | None]] = [(item, best[item.namespace, item.key]) for item in scored[offset : offset + limit]]
    unscored = [(item, None) for item in found if (item.namespace, item.key) not in best]
    return nearest + unscored[: limit - len(nearest)]


Vectors = Mapping[str, Sequence[float]]


class Batch:
    """Checked operations, the texts to embed before they run, and the memories to refresh afterwards."""

    def __init__(self, ops: Iterable[Op], index: Index | None) -> None:
        self._ops: list[Op] = check_list("ops", ops)
        for op in self._ops:
            _check(op)
        # of several puts to one key only the last is run
        puts = {(tuple(op.namespace), op.key): op for op in self._ops if isinstance(op, PutOp)}
        self._puts = [(op, {} if index is None else index.texts(op)) for op in puts.values()]
        self._index = index
        self.writes = bool(puts)
        self.texts = list(dict.fromkeys(text for _, texts in self._puts for text in texts.values()))
        searches = [op.query for op in self._ops if isinstance(op, SearchOp) and op.query]
        self.queries = [] if index is None else list(dict.fromkeys(searches))
        self.refreshed: list[Memory] = []

    def run(self, texts: Vectors, queries: Vectors) -> Callable[[Transaction], list[Result]]:
        """A function that runs the batch in a transaction and returns its results in order, given all vectors by their text."""

        def run(tx: Transaction) -> list[Result]:
            self.refreshed = []
            results = [self._read(tx, op, queries) for op in self._ops]
            for op, paths in self._puts:
                self._put(tx, op, {path: texts[text] for path, text in paths.items()})
            return results

        return run

    def refresh(self, tx: Transaction) -> None:
        """Refresh the expiry of the items read. A separate transaction spares reads the wait for a writer."""
        tx.checkpoints.memories.refresh(self.refreshed)

    def _put(self, tx: Transaction, op: PutOp, vectors: Vectors) -> None:
        namespace = tuple(op.namespace)
        if op.value is None:
            tx.checkpoints.memories.delete(namespace, op.key)
            return
        packed = {} if self._index is None else {path: self._index.packed(vector) for path, vector in vectors.items()}
        tx.checkpoints.memories.put(namespace, op.key, dict(op.value), ttl_minutes=op.ttl, embeddings=packed)

    def _read(self, tx: Transaction, op: Op, queries: Vectors) -> Result:
        if isinstance(op, GetOp):
            found = tx.checkpoints.memories.get(tuple(op.namespace), op.key)
            self._to_refresh([] if found is None else [found], op.refresh_ttl)
            return None if found is None else Item(**_fields(found))
        if isinstance(op, SearchOp):
            results = self._search(tx, op, queries)
            self._to_refresh([memory for memory, _ in results], op.refresh_ttl)
            return [SearchItem(**_fields(memory), score=score) for memory, score in results]
        if isinstance(op, ListNamespacesOp):
            return _namespaces(tx, op)
        return None

    def _search(self, tx: Transaction, op: SearchOp, queries: Vectors) -> list[tuple[Memory, float | None]]:
        memories, prefix = tx.checkpoints.memories, tuple(op.namespace_prefix)
        index, query = self._index, queries.get(op.query) if op.query else None
        if query is None and not op.filter:
            return [(memory, None) for memory in memories.list(prefix, limit=op.limit, offset=op.offset)]
        found = [memory for memory in memories.list(prefix) if matches(memory.value, op.filter)]
        if query is None or index is None:
            return [(memory, None) for memory in found[op.offset : op.offset + op.limit]]
        return ranked(found, index.scores(query, memories.embeddings(prefix)), op.offset, op.limit)

    def _to_refresh(self, found: Iterable[Memory], refresh: bool) -> None:
        if refresh:
            self.refreshed += [memory for memory in found if memory.ttl_minutes is not None]


def _check(op: Op) -> None:
    """Raises InvalidValue, or the framework's InvalidNamespaceError, for an operation that cannot be run."""
    if isinstance(op, GetOp | PutOp):
        paths: list[tuple[str, object]] = [("namespace", op.namespace)]
        check_kind("key", op.key, str)
        if isinstance(op, PutOp) and op.value is not None:
            mapping("value", op.value)
            for index, path in enumerate(check_list("index", op.index or ())):
                check_kind(f"index[{index}]", path, str)
    elif isinstance(op, SearchOp):
        paths = [("namespace_prefix", op.namespace_prefix)]
        check_filter(None if op.filter is None else mapping("filter", op.filter))
        if op.query is not None:
            check_kind("query", op.query, str)
    elif isinstance(op, ListNamespacesOp):
        given = check_list("match_conditions", op.match_conditions or ())
        conditions = [check_kind(f"match_conditions[{index}]", one, MatchCondition) for index, one in enumerate(given)]
        paths = [(f"match_conditions[{index}].path", condition.path) for index, condition in enumerate(conditions)]
        optional_count("max_depth", op.max_depth)
    else:
        raise InvalidValue("ops", f"Unknown operation type: {type(op).__name__}")
    if isinstance(op, SearchOp | ListNamespacesOp):
        for name in ("limit", "offset"):
            check_count(name, getattr(op, name))
    for name, path in paths:
        for label in check_list(name, path):
            if not isinstance(label, str) or not label or "." in label or "\x00" in label:
                raise InvalidNamespaceError(f"Invalid namespace label {label!r} in {path}: expected text without dots and NULs.")


def _namespaces(tx: Transaction, op: ListNamespacesOp) -> list[tuple[str, ...]]:
    conditions = op.match_conditions or ()
    found: Iterable[tuple[str, ...]] = (
        namespace
        for namespace in tx.checkpoints.memories.namespaces()
        if all(in_namespace(namespace, condition) for condition in conditions)
    )
    if op.max_depth is not None:
        found = sorted({namespace[: op.max_depth] for namespace in found})
    return list(found)[op.offset : op.offset + op.limit]


def _fields(memory: Memory) -> dict[str, Any]:
    names = ("namespace", "key", "value", "created_at", "updated_at")
    return {name: getattr(memory, name) for name in names}


class PersistStore(BaseStore):
    """Keeps items in a store: `builder.compile(store=PersistStore(store))`.

    `index` and `ttl` are as in every store of LangGraph. An option that asks for what is not done raises InvalidValue: no search
    is approximate, an expired item is never returned, and no background thread deletes it, but `sweep_ttl` and `persist maintain`
    do. Values are JSON objects: one that JSON would change raises InvalidValue, a ValueError, before anything is written. Over a
    Store or an AsyncStore the same methods work as those of PersistSaver.
    """

    supports_ttl = True

    def __init__(self, store: Store | AsyncStore, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None) -> None:
        super().__init__()
        self._bridge = StoreBridge(store)
        self._coalescing = Coalescing(self._bridge)
        self._index = None if index is None else Index(index)
        self.ttl_config = check_ttl(ttl)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in one transaction. Reads see the state before the puts; of several puts to a key only the last runs."""
        batch = Batch(ops, self._index)
        texts: Vectors = {}
        queries: Vectors = {}
        if self._index is not None:
            if batch.texts:
                texts = dict(zip(batch.texts, self._index.embeddings.embed_documents(batch.texts), strict=True))
            queries = {text: self._index.embeddings.embed_query(text) for text in batch.queries}
        results = self._bridge.run_sync(batch.run(texts, queries), writes=batch.writes)
        if batch.refreshed:
            self._bridge.run_sync(batch.refresh, writes=True)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See batch. Calls in one turn of an event loop share a transaction, and run one after the other."""
        batch = Batch(ops, self._index)
        texts: Vectors = {}
        queries: Vectors = {}
        if self._index is not None:
            if batch.texts:
                texts = dict(zip(batch.texts, await self._index.embeddings.aembed_documents(batch.texts), strict=True))
            queries = await self._embedded(self._index, batch.queries)
        results = await self._coalescing.run(batch.run(texts, queries), writes=batch.writes)
        if batch.refreshed:
            await self._coalescing.run(batch.refresh, writes=True)
        return results

    async def _embedded(self, index: Index, queries: Sequence[str]) -> Vectors:
        """The vectors of queries, which are asked for at once where the event loop is asyncio's."""
        embed = index.embeddings.aembed_query
        if on_asyncio():
            return dict(zip(queries, await asyncio.gather(*map(embed, queries)), strict=True))
        return {query: await embed(query) for query in queries}

    def sweep_ttl(self) -> int:
        """Delete expired items; the number deleted."""
        return self._bridge.run_sync(lambda tx: tx.checkpoints.memories.sweep(), writes=True)

    async def asweep_ttl(self) -> int:
        """See sweep_ttl."""
        return await self._bridge.run_async(lambda tx: tx.checkpoints.memories.sweep(), writes=True)
