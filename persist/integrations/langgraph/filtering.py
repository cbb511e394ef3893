"""Filters of searches and namespaces, by LangGraph's rules."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from langgraph.store.base import MatchCondition

_EQUAL: Mapping[str, Callable[[Any, Any], Any]] = {"$eq": operator.eq, "$ne": operator.ne}
_ORDERED: Mapping[str, Callable[[Any, Any], Any]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def matches(value: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """Whether an item's value matches a filter: for each key an equal value, or comparisons such as {"$gte": 3}."""
    return all(_equals(value.get(key), wanted) for key, wanted in (filter or {}).items())


def check_filter(filter: Mapping[str, Any] | None) -> None:
    """Raises ValueError for an unknown comparison operator."""
    for wanted in (filter or {}).values():
        if isinstance(wanted, Mapping):
            unknown = [name for name in wanted if str(name).startswith("$") and name not in _EQUAL and name not in _ORDERED]
            if unknown:
                raise ValueError(f"Unsupported operator: {unknown[0]}")
            check_filter(wanted)


def in_namespace(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Whether a namespace begins or ends with the condition's labels; the label "*" matches any."""
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"Unsupported match type: {condition.match_type}")
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[max(0, len(namespace) - len(path)) :]
    return len(part) == len(path) and all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))


def _equals(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compares(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, Mapping) and all(_equals(value.get(key), below) for key, below in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(_equals(one, other) for one, other in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _compares(value: Any, name: str, operand: Any) -> bool:
    if name in _EQUAL:
        return bool(_EQUAL[name](value, operand))
    if name not in _ORDERED:
        raise ValueError(f"Unsupported operator: {name}")
    try:
        return bool(_ORDERED[name](float(value), float(operand)))
    except (TypeError, ValueError):  # values that are not numbers are not ordered
        return False
