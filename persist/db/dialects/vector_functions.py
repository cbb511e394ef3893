"""The names of SQL functions that compute the distance of two vectors, where a database has them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VectorFunctions:
    """The names of an extension and of its distance functions, which compute in float32."""

    extension: str
    cosine: str
    l2: str
