"""Messages with embeddings, and searches for them, each in a transaction of its own."""

from collections.abc import Sequence
from typing import Any

from tests.contract.conversations.scenes import message, put_many

WAYS = ["sqlite-vec", "numpy", "python"]
METRICS: list[Any] = ["cosine", "l2"]
NEAR = [1.0, 0.0]


def keep(store: Any, session_id: str | None = None, /, **embeddings: Sequence[float] | bytes | None) -> None:
    """A message by name with each of these embeddings."""
    put_many(store, [message(id, id, embedding=vector) for id, vector in embeddings.items()], session_id=session_id)


def search(store: Any, query: Any, **options: Any) -> list[tuple[str, float]]:
    return [(one.id, distance) for one, distance in store.conversations.vectors.search(query, **options)]


def found(store: Any, query: Any = NEAR, **options: Any) -> list[str]:
    """The ids, nearest first."""
    return [id for id, _ in search(store, query, **options)]


def backend_of(store: Any) -> str:
    return str(store.conversations.vectors.backend())
