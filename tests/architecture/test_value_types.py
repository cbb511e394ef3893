"""What a user annotates with: every type of persist in the signature of a verb, or in a field of such a type, is in `persist`."""

import inspect
import sys
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import persist
from persist import AsyncTenants, Store, Tenants, Transaction
from persist.domains import Domains
from tests.architecture.test_public_names import NAMES

INTERNAL = {
    "persist.workflows.verbs.limits.Omitted",  # the default of an argument that was left out
    "persist.workflows.schemas.RunRow",  # what both kinds of runs have in common
}


def repositories(found: object) -> Iterator[type]:
    """The classes of the repositories below an object, its own first."""
    yield type(found)
    made = {name for name in dir(type(found)) if type(inspect.getattr_static(type(found), name)).__name__ == "on_demand"}
    for name in sorted(made | {name for name in vars(found) if not name.startswith("_")}):
        below = getattr(found, name)
        if type(below).__module__.startswith("persist."):
            yield from repositories(below)


def hints_of(function: Any) -> dict[str, Any]:
    """Its annotations, with the names that its module imports for type checkers alone."""
    wanted = dict(vars(sys.modules["persist.store.store"])) | {name: getattr(persist, name) for name in NAMES}
    own = vars(sys.modules[function.__module__])
    return typing.get_type_hints(function, {**wanted, **own}, None)


def public_functions(of: type) -> Iterator[Any]:
    for name in dir(of):
        found = inspect.getattr_static(of, name)
        found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        found = inspect.unwrap(found) if callable(found) else found
        if inspect.isfunction(found) and (not name.startswith("_") or name == "__init__"):
            yield found


def types_in(hint: Any) -> Iterator[type]:
    """The types of persist that an annotation names."""
    for one in (hint, typing.get_origin(hint)):
        if isinstance(one, type) and one.__module__.startswith("persist."):
            yield one
    for argument in typing.get_args(hint):
        for one in argument if isinstance(argument, list) else [argument]:
            yield from types_in(one)


def annotated_with() -> set[type]:
    with Store.open("sqlite:///:memory:") as store, store.begin() as tx:
        classes = {one for one in repositories(tx) if one is not Transaction and not issubclass(one, Domains)}
    found: set[type] = set()
    for one in (*classes, Transaction, Tenants, AsyncTenants):
        for function in public_functions(one):
            if function.__name__ != "__init__" or one in (Tenants, AsyncTenants):
                found |= {named for hint in hints_of(function).values() for named in types_in(hint)}
    for name in ("open", "from_engine", "begin", "read", "record", "follow", "watch", "on_commit", "step", "phase"):
        found |= {named for hint in hints_of(inspect.getattr_static(Store, name, None)).values() for named in types_in(hint)}
    return found


def with_fields(found: set[type]) -> set[type]:
    """These types, and those of their fields."""
    todo, seen = list(found), set(found)
    while todo:
        one = todo.pop()
        own = {name: field.annotation for name, field in getattr(one, "model_fields", {}).items()}
        if is_dataclass(one):
            own = {field.name: field.type for field in fields(one) if not field.name.startswith("_")}
        new = {named for hint in own.values() for named in types_in(hint)} - seen
        seen |= new
        todo += new
    return seen


def test_every_type_that_a_user_annotates_with_is_in_persist() -> None:
    public = {id(getattr(persist, name)) for name in NAMES}
    found = {f"{one.__module__}.{one.__qualname__}": one for one in with_fields(annotated_with())}
    missing = {name for name, one in found.items() if id(one) not in public and ".<locals>." not in name}
    assert missing - INTERNAL == set()
    assert len(found) > 100
