"""A batch of a LangGraph store's operations, run in one transaction: first all reads, then all puts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from persist.checkpoints.schemas import Memory
from persist.db.values.arguments import check_count, check_kind, check_list, optional_count
from persist.errors import InvalidValue
from persist.integrations.langgraph.arguments import mapping
from persist.integrations.langgraph.filtering import check_filter, in_namespace, matches
from persist.integrations.langgraph.ranking import Index, ranked
from persist.store.transaction import Transaction

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
        """Refresh the expiry of the items read. A transaction of its own, so that a batch of reads does not wait for a writer."""
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
