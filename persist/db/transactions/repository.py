"""The base of every repository, the two decorators that make a method a verb, and how repositories are reached."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.unreadable import results
else:
    results = lazy_module("persist.db.unreadable.results")

R = TypeVar("R")
P = ParamSpec("P")
S = TypeVar("S", bound="Repository")


class on_demand(Generic[R]):  # noqa: N801  # reads as the decorator-like word it is
    """An attribute that is made from the object's `_work` on first access and then kept."""

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


class EachVerb:
    """Takes the place of a unit of work in the repositories of a store: each verb runs in a transaction of its own."""

    def __init__(self, run: Callable[[Callable[[UnitOfWork], Any], bool], Any]) -> None:
        self.run = run
        """Runs a function in a new transaction, which writes or only reads."""


class Repository:
    """A set of verbs over one aggregate, inside one transaction, or each in a transaction of its own."""

    _work: UnitOfWork

    def __init__(self, work: UnitOfWork | EachVerb) -> None:
        self._work = cast("UnitOfWork", work)  # verbs see a unit of work: `_verb` makes one if there is none


def reads(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method a verb that only reads."""
    return _verb(method, writes=False)


def writes(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method a verb that writes: refused under read(), all or nothing inside join()."""
    return _verb(method, writes=True)


def writes_if_allowed(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method a verb that writes under begin() and outside of a transaction, and only reads under read()."""
    return _verb(method, writes=False, writes_alone=True)


def _verb(
    method: Callable[Concatenate[S, P], R], *, writes: bool, writes_alone: bool | None = None
) -> Callable[Concatenate[S, P], R]:
    name, writes_alone = method.__qualname__, writes if writes_alone is None else writes_alone

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        work: UnitOfWork | EachVerb = self._work
        if isinstance(work, EachVerb):
            return cast("R", work.run(lambda own: call(type(self)(own), *args, **kwargs), writes_alone))
        with Verb(work, name, writes=writes):
            result = method(self, *args, **kwargs)
            if work.carried and work.depth == 1:
                return cast("R", results.without_unreadable_cells(result, writes=writes))
            return result

    call.writes = writes_alone  # type: ignore[attr-defined]  # read by async_transactions
    return call
