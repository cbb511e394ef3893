"""Rows become values here: frozen Pydantic models built without validating again what the database already holds."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

V = TypeVar("V", bound="Value")
_set = object.__setattr__


class Value(BaseModel):
    """A frozen value: the columns of one row, JSON columns as Python objects, instants as aware UTC datetimes."""

    # Rows are not validated, so what validates is made when somebody first asks for it.
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)


_names: dict[type[Value], set[str]] = {}


def build(model: type[V], fields: Mapping[str, Any]) -> V:
    """The value of a row's fields, every one of them given; equal to `model(**fields)`, at a tenth of its cost."""
    value = model.__new__(model)
    _set(value, "__dict__", dict(fields))
    names = _names.get(model)
    if names is None:
        names = _names[model] = set(model.model_fields)
    _set(value, "__pydantic_fields_set__", names)  # one for all: a frozen value never changes it, and its copies copy it
    _set(value, "__pydantic_extra__", None)
    _set(value, "__pydantic_private__", None)
    return value
