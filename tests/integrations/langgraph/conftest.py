"""Savers and stores of LangGraph over each face on each database, and a runner that calls the methods of either face."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from persist.integrations.langgraph import PersistSaver, PersistStore

Call = Callable[..., Any]


@pytest.fixture
def call(face: str, do: Callable[[Awaitable[Any]], Any]) -> Call:
    """`call(thing.put, …)` calls it; over an AsyncStore it awaits the method with an `a` before its name."""

    def call(method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if face == "sync":
            found = method(*args, **options)
            return list(found) if method.__name__ == "list" else found
        owner: Any = getattr(method, "__self__", None)
        twin = getattr(owner, f"a{method.__name__}")
        if method.__name__ != "list":
            return do(twin(*args, **options))

        async def all_of() -> list[Any]:
            return [found async for found in twin(*args, **options)]

        return do(all_of())

    return call


@pytest.fixture
def saver(store: Any) -> PersistSaver:
    return PersistSaver(store)


@pytest.fixture
def items(store: Any) -> PersistStore:
    return PersistStore(store)
