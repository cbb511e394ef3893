"""Values built from rows equal those that the validating constructor makes."""

import collections.abc
import copy
import enum
import importlib
import pickle
import pkgutil
import types
import typing
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

import persist
from persist.db.values.frozen import Value, construct
from persist.framework_state.checkpoints.schemas import Blob
from tests.cases import each

SAMPLES: dict[Any, list[Any]] = {
    str: ["text", ""],
    int: [7, -(2**63)],
    float: [0.25, 0.0],
    bool: [True, False],
    bytes: [b"\x00\xff"],
    datetime: [datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)],
    timedelta: [timedelta(seconds=1.5)],
    Any: [{"a": [1, None]}, None, 3],
    Blob: [Blob("msgpack", b"\x00\xff")],
}


def _value_classes() -> list[type[Value]]:
    for module in pkgutil.walk_packages(persist.__path__, "persist."):
        if module.name.endswith((".schemas", "_values")):
            importlib.import_module(module.name)
    return list(_below(Value))


def _below(base: type[Value]) -> Iterator[type[Value]]:
    for child in base.__subclasses__():
        if child.__module__.startswith("persist."):
            yield child
        yield from _below(child)


def samples(annotation: Any) -> list[Any]:
    """A few values of a type."""
    if annotation in SAMPLES:
        return SAMPLES[annotation]
    if annotation is type(None):
        return [None]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return [sample for one in inner for sample in samples(one)]
    if origin is list:
        return [[], samples(inner[0])]
    if origin is tuple:
        return [(), tuple(samples(inner[0]))]
    if origin is collections.abc.Sequence:
        return [samples(inner[0])]
    if origin is dict:
        return [{}, {"key": samples(inner[1])[0]}]
    if origin is typing.Literal:
        return list(inner)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return list(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Value):
        return [annotation(**fields) for fields in rows(annotation)]
    raise AssertionError(f"no samples of {annotation}: add some to this test")


def rows(model: type[Value]) -> list[dict[str, Any]]:
    """Fields for a few values of a class, every sample of every field in one of them."""
    columns = {name: samples(field.annotation) for name, field in model.model_fields.items()}
    maximum = max(map(len, columns.values()))
    return [{name: column[number % len(column)] for name, column in columns.items()} for number in range(maximum)]


MODELS = _value_classes()


def test_there_are_values() -> None:
    assert {"ChatSession", "ChatMessage", "StepUsage"} <= {model.__name__ for model in MODELS}


@each("model", MODELS, ids=lambda model: str(model.__name__))
def test_a_built_value_equals_a_validated_one(model: type[Value]) -> None:
    for fields in rows(model):
        built, validated = construct(model, fields), model(**fields)
        assert built == validated
        assert validated == built
        assert type(built) is model
        assert repr(built) == repr(validated)
        assert built.model_dump() == validated.model_dump()
        assert built.model_dump_json() == validated.model_dump_json()
        assert built.model_fields_set == validated.model_fields_set
        assert built.model_extra == validated.model_extra
        assert built.__dict__.keys() == validated.__dict__.keys()
        assert [type(value) for value in built.__dict__.values()] == [type(value) for value in validated.__dict__.values()]


@each("model", MODELS, ids=lambda model: str(model.__name__))
def test_a_built_value_lives_like_a_validated_one(model: type[Value]) -> None:
    fields = rows(model)[0]
    built = construct(model, fields)
    assert copy.deepcopy(built) == built
    assert pickle.loads(pickle.dumps(built)) == built
    assert built.model_copy() == built
    assert model.model_validate(built.model_dump()) == built
    name = next(iter(fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(built, name, fields[name])


@each("model", MODELS, ids=lambda model: str(model.__name__))
def test_a_built_value_keeps_a_row_of_its_own(model: type[Value]) -> None:
    fields = rows(model)[0]
    built = construct(model, fields)
    fields.clear()
    assert built == model(**rows(model)[0])


@each("model", MODELS, ids=lambda model: str(model.__name__))
def test_a_field_too_many_is_refused_when_validating(model: type[Value]) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        model(**rows(model)[0] | {"surprise": 1})
