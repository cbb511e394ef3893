"""The base of every repository, written once for both faces, and the decorators that make a method a verb."""

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, cast, get_origin, overload

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.db.values.arguments import spells_keywords
from persist.lazy_imports import lazy_module


class Sync:
    """The face of a store whose verbs return their results."""


class Async:
    """The face of a store whose verbs are awaited."""


if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from persist.db.unreadable import conditions

    F = TypeVarWithDefault("F", default=Sync)
else:
    conditions = lazy_module("persist.db.unreadable.conditions")
    F = TypeVar("F")

R = TypeVar("R")
P = ParamSpec("P")
S = TypeVar("S")


AsyncRun = Callable[[Callable[[UnitOfWork], Any], bool], Awaitable[Any]]
"""Runs a function in a new transaction, which writes or only reads."""


class VerbMethod(Generic[S, P, R]):
    """What a verb is to a type checker: on the asynchronous face its result is awaited. At run time it is the function itself."""

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[Concatenate[S, P], R]: ...
    @overload
    def __get__(self, instance: "Repository[Sync]", owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, instance: "Repository[Async]", owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, R]: ...  # `self` in a repository of either face
    def __get__(self, instance: Any, owner: type) -> Any:
        raise AssertionError("a verb is a function")

    def __call__(self, *given: Any, **named: Any) -> Any:
        """What the implementation of overloads has to have."""
        raise AssertionError("a verb is a function")


class on_demand(Generic[R]):  # noqa: N801  # reads as the decorator-like word it is
    """An attribute made from `_work` on first access and then kept. `find`: returns the maker, imported on demand."""

    def __init__(self, make: Callable[[Any], R] | None = None, *, find: Callable[[], Callable[[Any], R]] | None = None) -> None:
        self._make, self._find = make, find
        self._kind: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @property
    def kind(self) -> Any:
        """What makes the attribute: the class, unless it is given a function."""
        if self._kind is None:
            if self._make is None:
                assert self._find is not None
                self._make = self._find()
            self._kind = get_origin(self._make) or self._make
        return self._kind

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> R: ...
    def __get__(self, instance: Any, owner: type) -> Self | R:
        if instance is None:
            return self
        made: R = (self._kind or self.kind)(instance._work)
        instance.__dict__[self._name] = made
        return made


class TransactionPerVerb:
    """Takes the place of a unit of work in the repositories of a store: each verb runs in a transaction of its own."""

    def __init__(self, run: Callable[[Callable[[UnitOfWork], Any], bool], Any], *, one_writer: bool) -> None:
        self.run = run
        """Runs a function in a new transaction, which writes or only reads."""
        self.one_writer = one_writer
        """Whether a transaction that writes locks the whole database."""
        self._busy: set[str] = set()

    def checks_first(self, verb: str) -> bool:
        """Whether a verb with a check begins with it: its last call found nothing to do, or there was none."""
        return self.one_writer and verb not in self._busy

    def note(self, verb: str, *, did_something: bool) -> None:
        """Remember whether a call of a verb with a check did something."""
        (self._busy.add if did_something else self._busy.discard)(verb)


class Domain(Generic[F]):
    """The repositories of one domain, as attributes."""

    def __init__(self, work: Any) -> None:
        self._work = work


class Repository(Generic[F]):
    """The verbs of an aggregate, in one transaction, or each in a new one."""

    _work: UnitOfWork
    _guarded = False
    """Whether the verbs write tables whose triggers note writers without persist's mark."""

    def __init__(self, work: Any) -> None:
        self._work = work  # verbs see a unit of work: `_verb` makes one if there is none


def reads(method: Callable[Concatenate[S, P], R]) -> VerbMethod[S, P, R]:
    """Make a method a verb that only reads."""
    return _typed(_verb(method, writes=False))


def writes(method: Callable[Concatenate[S, P], R]) -> VerbMethod[S, P, R]:
    """Make a method a verb that writes: refused under read(), all or nothing inside join()."""
    return _typed(_verb(method, writes=True))


def writes_if_allowed(method: Callable[Concatenate[S, P], R]) -> VerbMethod[S, P, R]:
    """Make a method a verb that writes under begin() and outside of a transaction, and only reads under read()."""
    return _typed(_verb(method, writes=False, writes_alone=True))


class NothingToDo(NamedTuple):
    """What a check in a snapshot returns if the verb would write nothing: the verb's result."""

    result: Any


def writes_if_needed(
    nothing_to_do: Callable[..., NothingToDo | None],
) -> Callable[[Callable[Concatenate[S, P], R]], VerbMethod[S, P, R]]:
    """Make a method a verb that writes, but that often finds nothing to do, such as one that idle workers repeat.

    Where a writer locks the whole database, a call outside of a transaction begins with `nothing_to_do`, which has the same
    arguments, in a snapshot, and takes the lock only if there is something to do. After a call with a true result the next call
    takes the lock at once: there is probably more to do.
    """

    def decorate(method: Callable[Concatenate[S, P], R]) -> VerbMethod[S, P, R]:
        return _typed(_verb(method, writes=True, nothing_to_do=nothing_to_do))

    return decorate


def writes_in_parts(
    split: Callable[..., list[Callable[[Any], int]]],
) -> Callable[[Callable[Concatenate[S, P], int]], VerbMethod[S, P, int]]:
    """Make a method a verb that writes and returns a number, and that outside of a transaction is many short ones.

    There `split`, a function of the same arguments, returns what is to be called with the repository, each in a transaction of
    its own; the numbers that these return are added up. If there are none, the method itself runs.
    """

    def decorate(method: Callable[Concatenate[S, P], int]) -> VerbMethod[S, P, int]:
        return _typed(_verb(method, writes=True, split=split))

    return decorate


def calls_verbs(*, ready: Callable[..., Awaitable[Any]]) -> Callable[[Callable[Concatenate[S, P], R]], VerbMethod[S, P, R]]:
    """Make a method that calls verbs of its repository a verb itself, which writes but is in no transaction of its own.

    On the asynchronous face `ready` is called before: with the arguments, and with what runs a function in a transaction of its
    own, or None inside a transaction. It returns the arguments that are left to call the method with.
    """

    def decorate(method: Callable[Concatenate[S, P], R]) -> VerbMethod[S, P, R]:
        method.writes, method.ready = True, ready  # type: ignore[attr-defined]  # read by async_faces
        return _typed(method)

    return decorate


class Split:
    """How a verb outside of a transaction is split into parts."""

    def __init__(self, split: Callable[..., list[Callable[[Any], int]]], name: str, module: str) -> None:
        def part(self: Repository, do: Callable[[Any], int]) -> int:
            return do(self)

        part.__qualname__, part.__module__ = name, module
        self._find, self._part = _verb(split, writes=False), _verb(part, writes=True)

    def find(self, kind: Any, args: Any, kwargs: Any) -> Callable[[UnitOfWork], list[Callable[[Any], int]]]:
        return lambda own: self._find(kind(own), *args, **kwargs)

    def run(self, kind: Any, do: Callable[[Any], int]) -> Callable[[UnitOfWork], int]:
        return lambda own: self._part(kind(own), do)


def _typed(verb: Callable[Concatenate[S, P], R]) -> VerbMethod[S, P, R]:
    return cast("VerbMethod[S, P, R]", verb)


def _verb(
    method: Callable[Concatenate[S, P], R],
    *,
    writes: bool,
    writes_alone: bool | None = None,
    nothing_to_do: Callable[..., NothingToDo | None] | None = None,
    split: Callable[..., list[Callable[[Any], int]]] | None = None,
) -> Callable[Concatenate[S, P], R]:
    name, writes_alone = method.__qualname__, writes if writes_alone is None else writes_alone
    module = method.__module__
    checks: Any = None if nothing_to_do is None else _verb(nothing_to_do, writes=False)
    splits = None if split is None else Split(split, name, module)

    @wraps(spells_keywords(method))
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        work: UnitOfWork | TransactionPerVerb = self._work
        if isinstance(work, TransactionPerVerb):
            if splits is not None:
                parts = work.run(splits.find(type(self), args, kwargs), False)
                if parts:
                    return cast("R", sum(work.run(splits.run(type(self), part), True) for part in parts))
            if checks is not None and work.checks_first(name):
                idle = work.run(lambda own: checks(type(self)(own), *args, **kwargs), False)
                if idle is not None:
                    return cast("R", idle.result)
            done = cast("R", work.run(lambda own: call(type(self)(own), *args, **kwargs), writes_alone))
            if checks is not None:
                work.note(name, did_something=bool(done))
            return done
        verb = Verb(work, name, writes, self._guarded, module)
        try:
            try:
                result = method(self, *args, **kwargs)
            except Exception as error:
                if not verb.runs_again(error, (*args, *kwargs.values())):
                    raise
                result = method(self, *args, **kwargs)
            if work.carried and work.depth == 1:
                result = cast("R", conditions.without_unreadable_cells(result, writes=writes))
        except BaseException as error:
            verb.end(error)
            raise
        verb.end(None, result)
        return result

    call.writes, call.checks, call.splits = writes_alone, checks, splits  # type: ignore[attr-defined]  # read by async_faces
    return call
