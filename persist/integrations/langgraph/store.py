"""PersistStore: what agents of LangGraph remember across threads, over a store."""

import asyncio
from collections.abc import Iterable

from langgraph.store.base import BaseStore, IndexConfig, Op, Result, TTLConfig

from persist.aio import AsyncStore
from persist.integrations.faces import Faces
from persist.integrations.langgraph.batching import Batch, Vectors
from persist.integrations.langgraph.ranking import Index
from persist.store import Store


class PersistStore(BaseStore):
    """Keeps items in a store: `builder.compile(store=PersistStore(store))`.

    `index` and `ttl` are as every store of LangGraph takes them. An item that has expired is not there any more, whatever
    `omit_expired` says; `sweep_ttl` and `persist maintain` free its room, and no thread does. Values are JSON objects: what
    JSON cannot give back as it was raises InvalidValue, a ValueError, before anything is written. Which methods work over which
    face of a store, PersistSaver says.
    """

    supports_ttl = True

    def __init__(self, store: Store | AsyncStore, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None) -> None:
        super().__init__()
        self._faces = Faces(store)
        self._index = None if index is None else Index(index)
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations in one transaction. All of them read what was there before; of puts of a key the last counts."""
        batch = Batch(ops, self._index)
        texts: Vectors = {}
        queries: Vectors = {}
        if self._index is not None:
            if batch.texts:
                texts = dict(zip(batch.texts, self._index.embeddings.embed_documents(batch.texts), strict=True))
            queries = {text: self._index.embeddings.embed_query(text) for text in batch.queries}
        results = self._faces.now(batch.run(texts, queries), writes=batch.writes)
        if batch.refreshed:
            self._faces.now(batch.refresh, writes=True)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See batch."""
        batch = Batch(ops, self._index)
        texts: Vectors = {}
        queries: Vectors = {}
        if self._index is not None:
            if batch.texts:
                texts = dict(zip(batch.texts, await self._index.embeddings.aembed_documents(batch.texts), strict=True))
            found = await asyncio.gather(*map(self._index.embeddings.aembed_query, batch.queries))
            queries = dict(zip(batch.queries, found, strict=True))
        results = await self._faces.later(batch.run(texts, queries), writes=batch.writes)
        if batch.refreshed:
            await self._faces.later(batch.refresh, writes=True)
        return results

    def sweep_ttl(self) -> int:
        """Delete what has expired; how many items."""
        return self._faces.now(lambda tx: tx.checkpoints.memories.sweep(), writes=True)

    async def asweep_ttl(self) -> int:
        """See sweep_ttl."""
        return await self._faces.later(lambda tx: tx.checkpoints.memories.sweep(), writes=True)
