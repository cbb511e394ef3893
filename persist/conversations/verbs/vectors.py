"""Search by embedding."""

from collections.abc import Sequence
from typing import Literal

from persist.conversations.schemas import ConvMessage, Metric
from persist.conversations.storage.embeddings import pack
from persist.conversations.storage.message_rows import find_messages
from persist.conversations.vector_search.candidates import candidates
from persist.conversations.vector_search.scope import Scope
from persist.conversations.vector_search.similarity import Query, nearest
from persist.db.transactions.repository import F, Repository, reads
from persist.db.values.arguments import check_choice
from persist.db.values.pages import check_limit
from persist.errors import InvalidValue


class Vectors(Repository[F]):
    """`tx.conversations.vectors`."""

    @reads
    def search(
        self,
        query: Sequence[float],
        *,
        k: int = 10,
        session_id: str | None = None,
        branch_id: str | None = None,
        metric: Literal["cosine", "l2"] = "cosine",
    ) -> list[tuple[ConvMessage, float]]:
        """The `k` (1 to 1000) messages nearest to the query with their distances, nearest first, equal distances by id.

        Exact, and equal on every backend: cosine is 1 - cos, 1.0 if either vector is zero; l2 is Euclidean. `query`:
        numbers or packed float32, rounded to float32 as embeddings are. Messages without an embedding of its dimension, and
        those that cannot be read, are skipped. `session_id`: the session's pool. `branch_id`: the branch's history, what it
        inherits included. Raises NotFound.
        """
        work = self._work
        packed = pack("query", query)
        if not packed:
            raise InvalidValue("query", "expected one number or more.")
        wanted = Query(packed, check_choice("metric", metric, Metric))
        check_limit(k, path="k")
        scope = Scope(work, session_id=session_id, branch_id=branch_id)
        near, count, looked, found = candidates(work).near, k, set[str](), dict[str, ConvMessage]()
        while True:
            ranked = nearest(wanted, count, near(scope, wanted, count))
            new = [id for _, id in ranked if id not in looked]
            looked |= {*new}
            found |= find_messages(work, new)
            hits = [(found[id], distance) for distance, id in ranked if id in found]
            if len(hits) >= k or len(ranked) < count:
                return hits[:k]
            count *= 2  # some cannot be read: the next nearest take their places

    @reads
    def backend(self) -> str:
        """What computes candidates in this transaction: "sqlite-vec", "numpy" or "python". Results do not depend on it."""
        return candidates(self._work).name
