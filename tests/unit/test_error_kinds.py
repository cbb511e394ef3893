"""What integrations say of an error about content: where it is and of which kind, and nothing of the content."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from persist.errors import InvalidValue
from persist.integrations.framework_errors import kind_of
from tests.cases import each

SECRET = "swordfish-4711"


class Inner(BaseModel):
    number: int


class Outer(BaseModel):
    listed: list[Inner] = []
    named: dict[str, int] = {}


def own() -> None:
    raise InvalidValue("state", "the keys 1 and '1' are one key in JSON.")


def foreign() -> None:
    raise ValueError(SECRET)


def deep() -> None:
    raise RecursionError(SECRET)


SAID: dict[str, tuple[Callable[[], Any], str]] = {
    "a value": (lambda: Outer.model_validate({"listed": [{"number": 1}, {"number": SECRET}]}), "int_parsing at [1]"),
    "a field": (lambda: Outer.model_validate({"listed": [{SECRET: 1}]}), "missing at [0].number"),
    "a key": (lambda: Outer.model_validate({"named": {SECRET: SECRET}}), "int_parsing"),
    "many": (
        lambda: Outer.model_validate({"named": dict.fromkeys("abcde", SECRET)}),
        "int_parsing, int_parsing, int_parsing, and 2 more",
    ),
    "a text": (lambda: json.loads(f'["{SECRET}",'), "JSONDecodeError at character 18"),
    "bytes": (lambda: json.loads(f'["{SECRET}'.encode() + b'\xff"]'), "UnicodeDecodeError"),
    "a type": (lambda: json.dumps({SECRET: {1}}), "Object of type set is not JSON serializable"),
    "another type": (lambda: to_jsonable_python(object()), "Unable to serialize unknown type: <class 'object'>"),
    "whatever a validator says": (foreign, "ValueError"),
    "depth": (deep, "it is nested too deeply"),
    "an error of persist": (own, "state: the keys 1 and '1' are one key in JSON"),
}


@each("name", SAID)
def test_what_is_said(name: str) -> None:
    fail, said = SAID[name]
    with pytest.raises(Exception) as caught:  # noqa: PT011  # of every kind
        fail()
    assert kind_of(caught.value) == said
