"""The asynchronous face of domains and repositories: classes whose verbs are coroutines, made from the synchronous ones.

Nothing is spelled twice: a verb of `Runs` is a verb of `AsyncRuns`, with its signature and its docstring.
"""

from collections.abc import Awaitable, Callable, Coroutine
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from persist.db.transactions.async_transactions import AsyncTransactionPerVerb, AsyncWork
from persist.db.transactions.repository import Repository, Split, on_demand

P = ParamSpec("P")
R = TypeVar("R")


class AsyncFace:
    """The base of all classes that `async_face` makes: domains, and repositories, whose verbs run those of `_repository`."""

    _repository: Any

    def __init__(self, work: AsyncWork) -> None:
        self._work = work


@cache
def async_face(kind: Any) -> Any:
    """The asynchronous class of a domain or repository, named `Async…` and made once. Its parts are made at their first use."""
    parts: dict[str, Any] = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, on_demand):
                parts[name] = on_demand(find=lambda part=value: async_face(part.kind))  # type: ignore[misc]  # a bound default
            elif not name.startswith("_") and hasattr(value, "writes"):
                parts[name] = awaitable(value)
    if issubclass(kind, Repository):
        parts["_repository"] = on_demand(lambda work: kind(work.work))
    return type(f"Async{kind.__name__}", (AsyncFace,), parts)


def awaitable(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[AsyncFace, P], Coroutine[Any, Any, R]]:
    """Turn a verb into a coroutine function with the same parameters, result and errors.

    A verb's attribute `ready`, if it has one, is called first (see `calls_verbs`).
    """
    ready: Callable[..., Awaitable[Any]] | None = getattr(method, "ready", None)
    splits: Split | None = getattr(method, "splits", None)
    looks, name = getattr(method, "looks", None), method.__qualname__

    @wraps(method)
    async def call(self: AsyncFace, /, *args: P.args, **kwargs: P.kwargs) -> R:
        work, repository = self._work, self._repository
        if ready is not None:
            run = work.run if isinstance(work, AsyncTransactionPerVerb) else None
            args, kwargs = await ready(run, *args, **kwargs)
        if isinstance(work, AsyncTransactionPerVerb):
            kind = type(repository)
            if splits is not None:
                parts = await work.run(splits.find(kind, args, kwargs), False)
                if parts:
                    return cast("R", sum([await work.run(splits.run(kind, part), True) for part in parts]))
            if looks is not None and work.work.looks_first(name):
                idle = await work.run(lambda own: looks(kind(own), *args, **kwargs), False)
                if idle is not None:
                    return idle.result  # type: ignore[no-any-return]  # what the verb itself would return
            result: R = await work.run(lambda own: method(kind(own), *args, **kwargs), method.writes)  # type: ignore[attr-defined]  # a verb
            if looks is not None:
                work.work.note(name, did_something=bool(result))
            return result
        return await work.call(lambda: method(repository, *args, **kwargs))

    return call
