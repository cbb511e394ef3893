"""Stores of either face, as handles and instructions use them: asked and answered at once, or when it is awaited."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from persist.errors import InvalidValue
from persist.programs.repository import Programs

if TYPE_CHECKING:
    from persist.programs.aio import AsyncPrograms


class _Transaction(Protocol):
    programs: Programs


class _AsyncTransaction(Protocol):
    programs: "AsyncPrograms"


class ProgramStore(Protocol):
    """What this domain needs of a Store."""

    path: Path | None

    @property
    def run_id(self) -> str | None: ...

    def begin(self) -> AbstractContextManager[_Transaction]: ...

    def read(self) -> AbstractContextManager[_Transaction]: ...


class AsyncProgramStore(Protocol):
    """What it needs of an AsyncStore."""

    @property
    def path(self) -> Path | None: ...

    @property
    def run_id(self) -> str | None: ...

    def begin(self) -> AbstractAsyncContextManager[_AsyncTransaction]: ...

    def read(self) -> AbstractAsyncContextManager[_AsyncTransaction]: ...


AnyStore: TypeAlias = ProgramStore | AsyncProgramStore
Question: TypeAlias = Callable[[Any], Any]
"""A call of a verb of `tx.programs`, on whichever face."""


def is_async(store: Any) -> bool:
    """Whether its verbs are awaited. InvalidValue for what is no store."""
    try:
        block = type(store.read())
    except AttributeError:
        block = type(None)
    if hasattr(block, "__enter__"):
        return False
    if hasattr(block, "__aenter__"):
        return True
    raise InvalidValue("store", f"expected a Store or an AsyncStore, got {type(store).__name__}.")


def ask(store: Any, questions: Sequence[Question], answer: Callable[[list[Any]], Any]) -> Any:
    """What `answer` makes of the answers to all questions in one snapshot; of an AsyncStore a coroutine of that."""
    if not is_async(store):
        with store.read() as tx:
            found = [question(tx.programs) for question in questions]
        return answer(found)

    async def awaited() -> Any:
        async with store.read() as tx:
            found = [await question(tx.programs) for question in questions]
        made = answer(found)
        return await made if inspect.iscoroutine(made) else made

    return awaited()


def transactions(store: Any) -> tuple[Callable[[Question], Any], Callable[[Question], Any]]:
    """How to write and to read: the call of one verb in a transaction of its own; of an AsyncStore a coroutine."""

    def write(call: Question) -> Any:
        with store.begin() as tx:
            return call(tx.programs)

    async def write_async(call: Question) -> Any:
        async with store.begin() as tx:
            return await call(tx.programs)

    return write_async if is_async(store) else write, lambda call: ask(store, [call], lambda found: found[0])
