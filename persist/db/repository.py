"""The base of every repository, the two decorators that make a method a verb, and how repositories are reached."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from persist.db.work import Work
from persist.later import later

if TYPE_CHECKING:
    from persist.db import given_back
else:
    given_back = later("persist.db.given_back")

R = TypeVar("R")
P = ParamSpec("P")
S = TypeVar("S", bound="Repository")


class on_demand(Generic[R]):  # noqa: N801  # reads as the decorator-like word it is
    """An attribute of whatever has a `_work`, made from it when first asked for and then kept."""

    def __init__(self, make: Callable[[Any], R]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> R: ...
    def __get__(self, instance: Any, owner: type) -> Self | R:
        if instance is None:
            return self
        made = instance.__dict__[self._name] = self._make(instance._work)
        return made


class Repository:
    """A set of verbs over one aggregate, inside one transaction."""

    def __init__(self, work: Work) -> None:
        self._work = work


def reads(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A verb that only reads."""
    return _verb(method, writes=False)


def writes(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A verb that writes: refused under read(), all or nothing inside join()."""
    return _verb(method, writes=True)


def _verb(method: Callable[Concatenate[S, P], R], *, writes: bool) -> Callable[Concatenate[S, P], R]:
    name = method.__qualname__

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        work = self._work
        with work.verb(name, writes=writes):
            result = method(self, *args, **kwargs)
            if work.carried and work._depth == 1:
                return cast("R", given_back.given_back(result, writes=writes))
            return result

    return call
