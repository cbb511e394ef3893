"""Values: frozen Pydantic models, built from rows without validating again what the database already holds."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

V = TypeVar("V", bound="Value")
_set_dict, _set_names, _set_extra, _set_private = (
    vars(BaseModel)[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


class Value(BaseModel):
    """A frozen value: the columns of one row, JSON columns as Python objects, instants as aware UTC datetimes."""

    # Rows are not validated, so the validator is built only when first used.
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)


_field_names: dict[type[Value], set[str]] = {}


def construct(model: type[V], fields: Mapping[str, Any]) -> V:
    """A value with these fields, all of which must be given; equal to `model(**fields)`, at a tenth of the cost."""
    return built(model, dict(fields))


def built(model: type[V], fields: dict[str, Any]) -> V:
    """The value of `construct`. The value keeps `fields`, which the caller must not use again."""
    value = object.__new__(model)
    _set_dict(value, fields)
    try:
        names = _field_names[model]
    except KeyError:
        names = _field_names[model] = set(model.model_fields)
    _set_names(value, names)  # shared: a frozen value never changes the set, and copies copy it
    _set_extra(value, None)
    _set_private(value, None)
    return value
