"""Subagents that are not trusted: a file of their own that is taken in, or a token with which they connect to the server."""

import asyncio
import sys
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, overload

from persist.db.values.arguments import check_choice, check_label
from persist.errors import InvalidValue
from persist.programs.schemas import BindingKind, Isolation, StartedSubagent, Subagent, TakenIn
from persist.programs.storage.attachments import checked_folder
from persist.programs.storage.lent_files import make_lent_file, plain_name
from persist.programs.subagents import stores
from persist.programs.subagents.instructions import Frame, Output, file_instructions, server_instructions


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
    store: stores.AnyStore,
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
    questions = stores.frame_questions(store, run_id, execution_id)
    if execution_id is not None:
        questions.append(lambda programs: programs.executions.depth(run_id, execution_id))

    def frame_of(found: list[Any]) -> Frame | None:
        return None if execution_id is None else Frame(found[1], found[2])

    asked, start = stores.ask(store, questions, frame_of), lambda programs: programs.subagents.start(run_id, **options)
    if not stores.is_async(store):
        return _made(stores.transactions(store)[0](start), asked, home)

    async def awaited() -> SubagentFile | SubagentRole:
        frame = await asked
        started = await stores.transactions(store)[0](start)
        return await asyncio.to_thread(_made, started, frame, home)

    return awaited()


def _home(store: stores.AnyStore, run_id: str, folder: str | Path | None) -> Path:
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
def take_in(
    store: stores.ProgramStore, run_id: str, execution_id: int | None = None, *, folder: str | Path | None = None
) -> TakenIn:
    """Over a Store."""


@overload
def take_in(
    store: stores.AsyncProgramStore, run_id: str, execution_id: int | None = None, *, folder: str | Path | None = None
) -> Coroutine[Any, Any, TakenIn]:
    """Over an AsyncStore."""


def take_in(
    store: stores.AnyStore, run_id: str, execution_id: int | None = None, *, folder: str | Path | None = None
) -> TakenIn | Coroutine[Any, Any, TakenIn]:
    """Bind what the files of the frame's subagents may bind, see `tx.programs.subagents.take_in`; awaited over an AsyncStore."""
    stores.is_async(store)
    taken: TakenIn | Coroutine[Any, Any, TakenIn] = stores.transactions(store)[0](
        lambda programs: programs.subagents.take_in(run_id, execution_id, folder=folder)
    )
    return taken
