"""Arguments of a checkpointer, checked before anything is read or written. What is refused raises InvalidValue, a ValueError."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from persist.db.values.arguments import check_list
from persist.errors import InvalidValue
from persist.quoting import shown


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
