"""The base of every repository, and the two decorators that make a method a verb."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from persist.db.work import Work

R = TypeVar("R")
P = ParamSpec("P")
S = TypeVar("S", bound="Repository")


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
        with self._work.verb(name, writes=writes):
            return method(self, *args, **kwargs)

    return call
