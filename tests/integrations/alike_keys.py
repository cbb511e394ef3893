"""Dicts with two keys that are different in Python and one in JSON."""

from typing import Any

ALIKE: list[dict[Any, Any]] = [
    {1: "a", "1": "b"},
    {"1": "b", 1: "a"},
    {True: "a", "true": "b"},
    {1.5: "a", "1.5": "b"},
    {"list": [{"deep": {-7: "a", "-7": "b"}}]},
]

NULL: dict[Any, Any] = {None: "a", "null": "b"}
"""One in the JSON of the standard library."""

NONE: dict[Any, Any] = {None: "a", "None": "b"}
"""One in the JSON of pydantic."""
