"""Lets handles and instructions use a Store or an AsyncStore: results are returned at once, or as coroutines."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from persist.db.transactions.repository import Async
from persist.errors import InvalidValue
from persist.programs.repository import Programs
from persist.programs.storage.run_rows import outlives_runs


class _Transaction(Protocol):
    programs: Programs


class _AsyncTransaction(Protocol):
    programs: Programs[Async]


class ProgramStore(Protocol):
    """The methods of a Store that this domain calls."""

    path: Path | None

    @property
    def run_id(self) -> str | None: ...

    def begin(self) -> AbstractContextManager[_Transaction]: ...

    def read(self) -> AbstractContextManager[_Transaction]: ...


class AsyncProgramStore(Protocol):
    """The methods of an AsyncStore that this domain calls."""

    @property
    def path(self) -> Path | None: ...

    @property
    def run_id(self) -> str | None: ...

    def begin(self) -> AbstractAsyncContextManager[_AsyncTransaction]: ...

    def read(self) -> AbstractAsyncContextManager[_AsyncTransaction]: ...


AnyStore: TypeAlias = ProgramStore | AsyncProgramStore
Question: TypeAlias = Callable[[Any], Any]
"""A call of a verb of `tx.programs`, sync or async."""


def is_async(store: Any) -> bool:
    """Whether the store is an AsyncStore. Raises InvalidValue if it is no store."""
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
    """Pass the results of all questions, read in one snapshot, to `answer`, and return its result; a coroutine if async."""
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
    """Two functions, write and read: each calls a verb in its own transaction; coroutine functions if async."""

    def write(call: Question) -> Any:
        with store.begin() as tx:
            return call(tx.programs)

    async def write_async(call: Question) -> Any:
        async with store.begin() as tx:
            return await call(tx.programs)

    return write_async if is_async(store) else write, lambda call: ask(store, [call], lambda found: found[0])


R = TypeVar("R")


def frame_questions(store: AnyStore, run_id: str, execution_id: int | None) -> list[Question]:
    """The verb calls that check the frame. They raise NotFound for the run or the execution."""
    questions: list[Question] = [lambda programs: programs.runs.get(run_id)]
    if execution_id is not None:
        questions.append(lambda programs: programs.executions.get(run_id, execution_id))
    return questions


def check_frame(store: AnyStore, run_id: str, execution_id: int | None, then: R) -> Any:
    """Check run and execution; return `then`, or a coroutine of it. Raises NotFound. "project" and "user" need no run."""
    if execution_id is None and outlives_runs(run_id, store.run_id):
        return ask(store, [], lambda _: then)
    return ask(store, frame_questions(store, run_id, execution_id), lambda _: then)
