"""Semantic search: the texts of an item to embed, their vectors, and ranking items by a query."""

import array
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from langgraph.store.base import IndexConfig, PutOp, ensure_embeddings, get_text_at_path, tokenize_path

from persist.errors import InvalidValue
from persist.integrations.langgraph.options import check_index, fields_of, similarity_of

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
        """The texts of an item to embed, by path."""
        if op.value is None or op.index is False:
            return {}
        fields = self._fields if op.index is None else [(path, tokenize_path(path)) for path in op.index]
        found: dict[str, str] = {}
        for path, tokens in fields:
            texts = get_text_at_path(op.value, tokens)
            found |= {f"{path}.{place}" if len(texts) > 1 else path: text for place, text in enumerate(texts)}
        return found

    def packed(self, vector: Sequence[float]) -> bytes:
        """A vector as little-endian 32-bit floats.

        Raises InvalidValue if it is not finite or has another number of dimensions.
        """
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
