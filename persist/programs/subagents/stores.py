"""Lets handles and instructions use a Store or an AsyncStore: results are returned at once, or as coroutines."""

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, overload

from persist.db.transactions.repository import Async
from persist.db.values.arguments import check_choice, check_label
from persist.errors import InvalidValue
from persist.programs.repository import Programs
from persist.programs.schemas import BindingKind, Isolation, StartedSubagent, Subagent, TakenIn
from persist.programs.storage.attachments import checked_folder
from persist.programs.storage.lent_files import make_lent_file, plain_name
from persist.programs.storage.run_rows import outlives_runs
from persist.programs.subagents.instructions import Frame, Output, file_instructions, server_instructions


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


# Checks that a run and a frame are there, before somebody is told of them.

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


@dataclass(frozen=True, slots=True)
class SubagentFile:
    """A subagent with a file of its own. Give it access to the folder of `path`, and to nothing else of the run."""

    subagent: Subagent
    path: Path
    frame: Frame | None = field(repr=False)

    def instructions(self, *, binding: str = "result", kind: str = "let", source_statement: str | None = None) -> str:
        """Instructions as `instructions_for_subagent` gives them, for this file. Raises InvalidValue on Windows."""
        if sys.platform == "win32":
            raise InvalidValue("store", "the commands need a POSIX shell, which Windows has not.")
        name, word = _plain("binding", binding), check_choice("kind", kind, BindingKind)
        return file_instructions(Output(self.path, ""), self.frame, name, word, source_statement, self.subagent.agent_name)


@dataclass(frozen=True, slots=True)
class SubagentRole:
    """A subagent with a token for the server. Neither `repr` nor an error shows `token`, `dsn` and `options`.

    server   the connection string without the token
    options  the value of PGOPTIONS, which holds the token
    dsn      both in one string
    """

    subagent: Subagent
    server: str
    token: str = field(repr=False)
    dsn: str = field(repr=False)
    options: str = field(repr=False)
    frame: Frame | None = field(repr=False)

    def instructions(self, *, binding: str = "result", kind: str = "let", source_statement: str | None = None) -> str:
        """Instructions with commands of psql. They hold the token, in the environment of each command."""
        name, word = _plain("binding", binding), check_choice("kind", kind, BindingKind)
        return server_instructions(self.server, self.options, self.subagent, self.frame, name, word, source_statement)


def _plain(path: str, name: object) -> str:
    label = check_label(path, name)
    if not plain_name(label):
        raise InvalidValue(path, "values of subagents that are not trusted have plain names: letters, digits, _, . and -.")
    return label


def isolated(
    store: AnyStore,
    run_id: str,
    execution_id: int | None,
    isolation: str,
    *,
    agent: str | None,
    folder: str | Path | None,
    expires_in: timedelta | None,
    role: str | None,
) -> Any:
    """The SubagentFile or the SubagentRole, or a coroutine of it."""
    options: dict[str, Any] = {"isolation": isolation, "execution_id": execution_id, "agent": agent}
    options |= {} if expires_in is None else {"expires_in": expires_in}
    options |= {} if role is None else {"role": role}
    home = _home(store, run_id, folder) if isolation == Isolation.FILE else None
    questions = frame_questions(store, run_id, execution_id)
    if execution_id is not None:
        questions.append(lambda programs: programs.executions.depth(run_id, execution_id))

    def frame_of(found: list[Any]) -> Frame | None:
        return None if execution_id is None else Frame(found[1], found[2])

    asked, start = ask(store, questions, frame_of), lambda programs: programs.subagents.start(run_id, **options)
    if not is_async(store):
        return _made(transactions(store)[0](start), asked, home)

    async def awaited() -> SubagentFile | SubagentRole:
        frame = await asked
        started = await transactions(store)[0](start)
        return await asyncio.to_thread(_made, started, frame, home)

    return awaited()


def _home(store: AnyStore, run_id: str, folder: str | Path | None) -> Path:
    if folder is not None:
        return checked_folder(folder)
    if store.path is None or store.run_id != run_id:
        raise InvalidValue("folder", "the run has no file of its own, so say in which folder that of its subagent is made.")
    return checked_folder(store.path.absolute().parent)


def _made(started: StartedSubagent, frame: Frame | None, home: Path | None) -> SubagentFile | SubagentRole:
    if home is not None:
        return SubagentFile(started.subagent, make_lent_file(home, started.subagent, started.bindings, started.memory), frame)
    access = started.access
    assert access is not None
    return SubagentRole(started.subagent, access.server, access.token, access.dsn, access.options, frame)


@overload
def take_in(store: ProgramStore, run_id: str, execution_id: int | None = None, *, folder: str | Path | None = None) -> TakenIn:
    """Over a Store."""


@overload
def take_in(
    store: AsyncProgramStore, run_id: str, execution_id: int | None = None, *, folder: str | Path | None = None
) -> Coroutine[Any, Any, TakenIn]:
    """Over an AsyncStore."""


def take_in(
    store: AnyStore, run_id: str, execution_id: int | None = None, *, folder: str | Path | None = None
) -> TakenIn | Coroutine[Any, Any, TakenIn]:
    """Bind what the files of the frame's subagents may bind, see `tx.programs.subagents.take_in`; awaited over an AsyncStore."""
    is_async(store)
    taken: TakenIn | Coroutine[Any, Any, TakenIn] = transactions(store)[0](
        lambda programs: programs.subagents.take_in(run_id, execution_id, folder=folder)
    )
    return taken
