"""PersistStore: LangGraph's store of long-term memory, over a store of persist."""

import asyncio
from collections.abc import Iterable, Sequence

from langgraph.store.base import BaseStore, IndexConfig, Op, Result, TTLConfig

from persist.integrations.langgraph.batching import Batch, Vectors
from persist.integrations.langgraph.coalescing import Coalescing
from persist.integrations.langgraph.options import check_ttl
from persist.integrations.langgraph.ranking import Index
from persist.integrations.store_bridge import StoreBridge, on_asyncio
from persist.store.async_store import AsyncStore
from persist.store.store import Store


class PersistStore(BaseStore):
    """Keeps items in a store: `builder.compile(store=PersistStore(store))`.

    `index` and `ttl` are as in every store of LangGraph. An option that asks for what is not done raises InvalidValue: no search
    is approximate, an expired item is never returned, and no background thread deletes it, but `sweep_ttl` and `persist maintain`
    do. Values are JSON objects: one that JSON would
    change raises InvalidValue, a ValueError, before anything is written. Over a Store or an AsyncStore the same methods work
    as those of PersistSaver.
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
        """See batch. The calls of one turn of an event loop share a transaction, in which they run one after the other."""
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
