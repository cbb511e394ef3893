"""SQL functions that compute the distance of two vectors, where a database has any."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VectorFunctions:
    """The names of an extension and of its SQL functions of two vectors; these count in float32."""

    extension: str
    cosine: str
    l2: str
