"""The options of LangGraph's own stores: PersistStore does what one asks for, or refuses it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langgraph.store.base import TTLConfig

from persist.errors import InvalidValue
from persist.quoting import shown

Similarity = Callable[[Sequence[float], Sequence[float]], float]

_TTL = ("refresh_on_read", "omit_expired", "default_ttl", "sweep_interval_minutes")
_INDEX = ("dims", "embed", "fields", "text_fields", "distance_type", "ann_index_config")
_ANN = ("kind", "vector_type")


def check_ttl(config: TTLConfig | None) -> TTLConfig | None:
    """A store's `ttl` configuration. InvalidValue: it asks for what PersistStore does not do."""
    if config is None:
        return None
    given = _known("ttl", config, _TTL)
    default = given.get("default_ttl")
    if default is not None and (isinstance(default, bool) or not isinstance(default, int | float) or not default > 0):
        raise InvalidValue("ttl.default_ttl", f"expected a number of minutes above 0 or None, got {shown(default)}.")
    if given.get("omit_expired", True) is not True:
        raise InvalidValue("ttl.omit_expired", "an expired item is never returned; True says so, and leaving it out too.")
    if given.get("sweep_interval_minutes") is not None:
        raise InvalidValue(
            "ttl.sweep_interval_minutes",
            "no thread deletes expired items: call sweep_ttl, or run `persist maintain`, and leave it out.",
        )
    return config


def check_index(config: Mapping[str, Any]) -> None:
    """Check a store's `index` configuration. InvalidValue: it asks for what PersistStore does not do."""
    given = _known("index", config, _INDEX)
    dims = given.get("dims")
    if dims is not None and (type(dims) is not int or dims < 1):
        raise InvalidValue("index.dims", f"expected a whole number above 0, got {shown(dims)}.")
    ann = _known("index.ann_index_config", given.get("ann_index_config") or {}, _ANN)
    if ann.get("kind", "flat") != "flat":
        raise InvalidValue(
            "index.ann_index_config.kind",
            f"there is no index {shown(ann['kind'])}: a search compares every vector, which 'flat' asks for, or leaving it out.",
        )
    if ann.get("vector_type", "vector") != "vector":
        raise InvalidValue(
            "index.ann_index_config.vector_type",
            f"there are no vectors {shown(ann['vector_type'])}: they are of 32-bit floats, which 'vector' asks for.",
        )


def fields_of(config: Mapping[str, Any]) -> list[str]:
    """The paths of the texts to embed, which LangGraph's SqliteStore calls `text_fields`, and its other stores `fields`."""
    named = [
        (key, [given] if isinstance(given, str) else given) for key in ("fields", "text_fields") if (given := config.get(key))
    ]
    for key, paths in named:
        if not isinstance(paths, list | tuple) or not all(isinstance(path, str) for path in paths):
            raise InvalidValue(f"index.{key}", f"expected a list of paths, got {shown(paths)}.")
    if len(named) == 2 and list(named[0][1]) != list(named[1][1]):
        raise InvalidValue(
            "index.text_fields", "it names other fields than `fields`, which means the same; leave one of them out."
        )
    return list(named[0][1]) if named else ["$"]


def similarity_of(config: Mapping[str, Any]) -> Similarity:
    """How alike two vectors are by `distance_type`, in the numbers of LangGraph's PostgresStore: the nearest has the greatest."""
    named = config.get("distance_type", "cosine")
    try:
        return _SIMILARITIES[named]
    except (KeyError, TypeError):
        raise InvalidValue("index.distance_type", f"expected one of {', '.join(_SIMILARITIES)}, got {shown(named)}.") from None


def _known(path: str, given: Any, names: Sequence[str]) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidValue(path, f"expected a dict, got {type(given).__name__}.")
    for name in given:
        if name not in names:
            raise InvalidValue(path, f"there is no option {shown(name)}, only {', '.join(names)}.")
    return dict(given)


def _inner_product(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(map(float.__mul__, map(float, one), other))


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    scale = math.hypot(*one) * math.hypot(*other)
    return _inner_product(one, other) / scale if scale else 0.0


def _nearness(one: Sequence[float], other: Sequence[float]) -> float:
    return -math.dist(one, other)


_SIMILARITIES: dict[str, Similarity] = {"cosine": _cosine, "l2": _nearness, "inner_product": _inner_product}
