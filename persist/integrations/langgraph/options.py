"""The options of LangGraph's own stores: PersistStore does what one asks for, or refuses it."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langgraph.store.base import TTLConfig

from persist.db.values.arguments import check_list
from persist.errors import InvalidValue, shown


def configurable(config: object, path: str = "config") -> Mapping[str, Any]:
    """What a config names under `configurable`."""
    named = mapping(path, config).get("configurable")
    if not isinstance(named, Mapping):
        raise InvalidValue(f"{path}.configurable", f"expected a dict, got {type(named).__name__}.")
    return named


def thread_key(config: object) -> tuple[str, str]:
    """The thread and the namespace that a config names."""
    named = configurable(config)
    namespace = named.get("checkpoint_ns") or ""
    if not isinstance(namespace, str):
        raise InvalidValue("config.configurable.checkpoint_ns", f"expected text, got {type(namespace).__name__}.")
    return id_text("config.configurable.thread_id", named.get("thread_id")), namespace


def checkpoint_id(config: object, path: str = "config") -> str | None:
    """The checkpoint that a config names; None if it names none."""
    found = configurable(config, path).get("checkpoint_id") or None
    if found is not None and not isinstance(found, str):
        raise InvalidValue(f"{path}.configurable.checkpoint_id", f"expected text, got {type(found).__name__}.")
    return found


def id_text(path: str, value: object) -> str:
    """The id of a thread or a run as text; whole numbers and UUIDs, say, are ids too."""
    if isinstance(value, str):
        return value
    has_text = type(value).__str__ is not object.__str__ and not isinstance(value, bytes | bytearray)
    if not (has_text or type(value) is int):
        raise InvalidValue(path, f"expected text, got {type(value).__name__}.")
    return str(value)


def id_texts(path: str, value: object) -> list[str]:
    """The ids of threads or runs as texts."""
    return [id_text(f"{path}[{index}]", one) for index, one in enumerate(check_list(path, value))]


def mapping(path: str, value: object) -> Mapping[str, Any]:
    """The mapping."""
    if not isinstance(value, Mapping):
        raise InvalidValue(path, f"expected a dict, got {type(value).__name__}.")
    return value


def versions(path: str, value: object) -> dict[str, str]:
    """The versions of channels, as JSON."""
    found = {}
    for channel, version in mapping(path, value).items():
        if not isinstance(version, str | int | float):
            raise InvalidValue(f"{path}[{shown(channel)}]", f"a version is text or a number, got {type(version).__name__}.")
        found[channel] = json.dumps(version)
    return found


def pairs(path: str, value: object) -> Sequence[tuple[str, Any]]:
    """What a task wrote, as pairs of a channel and a value."""
    given = check_list(path, value)
    for index, pair in enumerate(given):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidValue(f"{path}[{index}]", "expected a pair of a channel and a value.")
    return given


def optional_limit(path: str, value: object) -> int | None:
    """The most items to give; None: all."""
    if value is not None and type(value) is not int:
        raise InvalidValue(path, f"expected a whole number or None, got {type(value).__name__}.")
    return value


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
